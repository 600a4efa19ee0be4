// Rows of a data set to conversations, by the data set's formatting, columns and tags.
#ifndef EVERSTEP_WORKER_DATA_CONVERT_H_
#define EVERSTEP_WORKER_DATA_CONVERT_H_

#include <string>
#include <vector>

#include "common/result.h"
#include "worker/data/conversation.h"
#include "worker/data/dataset_info.h"
#include "worker/data/row_table.h"

namespace everstep {

// The columns that the data set needs exist in the table; the error names those there are. Without
// `needs_answers` (stage pt) the usual answer column may be missing.
Status CheckColumns(const DatasetEntry& entry, const RowTable& table, bool needs_answers);

// One conversation. A row whose turns are out of order, or that has no answer, comes back without
// prompt or response: it is dropped and counted later. Errors are rows that cannot be read at all:
// a value of a wrong type, a message without role or content, a picture.
Result<Conversation> ConvertRow(const DatasetEntry& entry, const RowTable& table, size_t row);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_CONVERT_H_
