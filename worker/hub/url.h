// http and https addresses, as far as a hub client needs them (RFC 3986).
#ifndef EVERSTEP_WORKER_HUB_URL_H_
#define EVERSTEP_WORKER_HUB_URL_H_

#include <string>
#include <string_view>

#include "common/result.h"

namespace everstep {

struct Url {
  bool tls = false;
  std::string host;    // without brackets where it is an IPv6 address
  std::string port;    // always set
  std::string target;  // path and query, begins with '/'

  // What decides whether a credential may be sent along.
  bool SameOrigin(const Url& other) const {
    return tls == other.tls && host == other.host && port == other.port;
  }
  std::string HostHeader() const;
  std::string Text() const;
};

Result<Url> ParseUrl(std::string_view text);

// The address that a `Location` header names, seen from `base`: absolute, "//host/path", "/path"
// or relative to the base's path.
Result<Url> ResolveLocation(const Url& base, std::string_view location);

// Keeps letters, digits and -._~ (and '/' when asked), writes the rest as %XX.
std::string PercentEncode(std::string_view text, bool keep_slashes);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_URL_H_
