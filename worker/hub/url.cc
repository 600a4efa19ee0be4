#include "worker/hub/url.h"

#include <algorithm>
#include <cctype>

namespace everstep {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "host", "host:port", "[::1]:port" into `url`; false when it is none of them.
bool SplitAuthority(std::string_view authority, Url* url) {
  if (authority.find('@') != std::string_view::npos) return false;
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return false;
    url->host = std::string(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
  } else {
    const size_t colon = authority.find(':');
    url->host = Lower(authority.substr(0, colon));
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  url->port = url->tls ? "443" : "80";
  if (!port.empty()) {
    if (!port.starts_with(':') || !IsPort(port.substr(1))) return false;
    url->port = std::string(port.substr(1));
  }
  return !url->host.empty();
}

}  // namespace

std::string Url::HostHeader() const {
  const bool bracketed = host.find(':') != std::string::npos;
  const std::string name = bracketed ? "[" + host + "]" : host;
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

std::string Url::Text() const { return (tls ? "https://" : "http://") + HostHeader() + target; }

Result<Url> ParseUrl(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("'" + std::string(text) + "' is no http:// or https:// address");
  };
  // Anything below a space would end up inside a request's head.
  const auto is_unsafe = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_unsafe)) return bad();
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return bad();
  const std::string scheme = Lower(text.substr(0, scheme_end));
  if (scheme != "http" && scheme != "https") return bad();
  Url url;
  url.tls = scheme == "https";
  std::string_view rest = text.substr(scheme_end + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t path = rest.find_first_of("/?");
  if (!SplitAuthority(rest.substr(0, path), &url)) return bad();
  url.target = path == std::string_view::npos ? "/" : std::string(rest.substr(path));
  if (url.target.starts_with('?')) url.target.insert(0, "/");
  return url;
}

Result<Url> ResolveLocation(const Url& base, std::string_view location) {
  if (location.find("://") < location.find_first_of("/?#")) return ParseUrl(location);
  if (location.starts_with("//")) {
    return ParseUrl((base.tls ? "https:" : "http:") + std::string(location));
  }
  Url root = base;
  root.target = "";
  std::string path(location);
  if (!location.starts_with('/')) {
    const std::string base_path = base.target.substr(0, base.target.find('?'));
    path = base_path.substr(0, base_path.rfind('/') + 1) + path;
  }
  return ParseUrl(root.Text() + path);
}

std::string PercentEncode(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kKept = "-._~";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || kKept.find(c) != std::string_view::npos ||
        (keep_slashes && c == '/')) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

}  // namespace everstep
