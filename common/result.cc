#include "common/result.h"

#include <system_error>

namespace everstep {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kAlreadyExists:
      return "AlreadyExists";
    case ErrorCode::kConflict:
      return "Conflict";
    case ErrorCode::kFailedPrecondition:
      return "FailedPrecondition";
    case ErrorCode::kAborted:
      return "Aborted";
    case ErrorCode::kDeadlineExceeded:
      return "DeadlineExceeded";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    case ErrorCode::kDataLoss:
      return "DataLoss";
    case ErrorCode::kResourceExhausted:
      return "ResourceExhausted";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

std::string ErrnoText(int number) { return std::generic_category().message(number); }

}  // namespace everstep
