// The rows of a data set as they stand in its files.
#ifndef EVERSTEP_WORKER_DATA_ROW_TABLE_H_
#define EVERSTEP_WORKER_DATA_ROW_TABLE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace everstep {

// Where each row stands, for messages.
class RowOrigins {
 public:
  // Rows that follow come from `path`.
  void StartFile(std::string path);
  // `line` from 1; 0 = rows of this file are counted.
  void AddRow(size_t line);

  // "data/a.jsonl:12", or "data/a.json: row 12" where rows have no lines of their own.
  std::string Where(size_t row) const;

 private:
  struct File {
    std::string path;
    size_t first_row = 0;
  };
  std::vector<File> files_;
  std::vector<size_t> lines_;
};

struct RowTable {
  std::string source;                // path of the file or folder
  std::vector<OrderedJson> rows;     // objects, in the files' order
  std::vector<std::string> columns;  // names that occur in any row, in the order of appearance
  std::shared_ptr<const RowOrigins> origins;
};

// Reads a json (array or one object a line), jsonl, csv or txt file, or a folder of files of one of
// these types (in the order of their names). Errors: missing, empty, of another type, malformed
// (with the line).
Result<RowTable> ReadRowTable(const std::string& path);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_ROW_TABLE_H_
