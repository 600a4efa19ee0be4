// Strings across the C interface of the text library.
#ifndef EVERSTEP_WORKER_TEXT_FFI_STRINGS_H_
#define EVERSTEP_WORKER_TEXT_FFI_STRINGS_H_

#include <string>
#include <string_view>

#include "worker/text/text_ffi.h"

namespace everstep {

inline EverstepText FfiText(std::string_view text) { return {text.data(), text.size()}; }

// Takes `bytes` over.
inline std::string TakeString(EverstepBytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  everstep_bytes_free(bytes);
  return text;
}

}  // namespace everstep

#endif  // EVERSTEP_WORKER_TEXT_FFI_STRINGS_H_
