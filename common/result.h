// Errors are values: everything that can go wrong at run time returns a Result<T>.
//
// An Error carries a code (what kind of thing went wrong, for callers that branch on it) and one
// line of text (what, where and what to do about it, for the person who reads it).
#ifndef EVERSTEP_COMMON_RESULT_H_
#define EVERSTEP_COMMON_RESULT_H_

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace everstep {

enum class ErrorCode {
  kInvalidArgument,     // the input is wrong: a person has to change it
  kNotFound,            // what was named does not exist
  kAlreadyExists,       // it exists and must not
  kConflict,            // somebody else changed it first: read again and retry
  kFailedPrecondition,  // the system is not in a state that allows this
  kAborted,             // cancelled by a newer generation or by a peer's death
  kDeadlineExceeded,
  kUnavailable,        // may work later: connection refused, peer away
  kDataLoss,           // corrupt or truncated data
  kResourceExhausted,  // no space, no memory, no descriptors
  kInternal,
};

std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

// Result of an operation that has nothing to return.
using Status = Result<void>;

inline tl::unexpected<Error> MakeError(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> InvalidArgument(std::string message) {
  return MakeError(ErrorCode::kInvalidArgument, std::move(message));
}
inline tl::unexpected<Error> NotFound(std::string message) {
  return MakeError(ErrorCode::kNotFound, std::move(message));
}
inline tl::unexpected<Error> DataLoss(std::string message) {
  return MakeError(ErrorCode::kDataLoss, std::move(message));
}
inline tl::unexpected<Error> Unavailable(std::string message) {
  return MakeError(ErrorCode::kUnavailable, std::move(message));
}
inline tl::unexpected<Error> Internal(std::string message) {
  return MakeError(ErrorCode::kInternal, std::move(message));
}

// Text of errno `number` ("No such file or directory").
std::string ErrnoText(int number);

}  // namespace everstep

#define EVERSTEP_CONCAT_INNER_(a, b) a##b
#define EVERSTEP_CONCAT_(a, b) EVERSTEP_CONCAT_INNER_(a, b)

// Returns the error of `expression` (a Result) from the enclosing function, if it has one.
#define RETURN_IF_ERROR(expression)                                            \
  do {                                                                         \
    if (auto everstep_status = (expression); !everstep_status.has_value()) {   \
      return tl::unexpected<::everstep::Error>(std::move(everstep_status).error()); \
    }                                                                          \
  } while (false)

// `ASSIGN_OR_RETURN(auto x, F());` declares x as the value of F(), or returns its error.
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER_(EVERSTEP_CONCAT_(everstep_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER_(result, declaration, expression)           \
  auto result = (expression);                                              \
  if (!result.has_value()) {                                               \
    return tl::unexpected<::everstep::Error>(std::move(result).error());   \
  }                                                                        \
  declaration = std::move(result).value()

#endif  // EVERSTEP_COMMON_RESULT_H_
