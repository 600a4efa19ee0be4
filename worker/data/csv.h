// Comma-separated values (RFC 4180).
#ifndef EVERSTEP_WORKER_DATA_CSV_H_
#define EVERSTEP_WORKER_DATA_CSV_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace everstep {

struct CsvRecord {
  std::vector<std::string> fields;
  size_t line = 0;  // that it starts in, from 1
};

// All records, the header included; empty lines are skipped. Fields may be quoted, and then hold
// commas, line breaks and doubled quotes. Errors start with `source` and the line.
Result<std::vector<CsvRecord>> ParseCsv(std::string_view text, std::string_view source);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_CSV_H_
