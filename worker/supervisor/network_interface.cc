#include "worker/supervisor/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace everstep {
namespace {

bool SameAddress(const sockaddr* a, const sockaddr_storage& b) {
  if (a == nullptr || a->sa_family != b.ss_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&b)->sin_addr.s_addr;
  }
  if (a->sa_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(&b)->sin6_addr,
                       sizeof(in6_addr)) == 0;
  }
  return false;
}

// The first address of `host`; `flags` are getaddrinfo's.
Result<sockaddr_storage> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  addrinfo* raw = nullptr;
  const std::string service = std::to_string(port);
  if (const int error = getaddrinfo(host.c_str(), service.c_str(), &hints, &raw); error != 0) {
    return Unavailable(std::string("cannot be resolved: ") + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(raw, freeaddrinfo);
  sockaddr_storage address{};
  std::memcpy(&address, raw->ai_addr, raw->ai_addrlen);
  return address;
}

// The address that packets to `to` would come from.
Result<sockaddr_storage> SourceTowards(const sockaddr_storage& to) {
  const int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unavailable("cannot create a socket: " + ErrnoText(errno));
  sockaddr_storage source{};
  socklen_t size = sizeof(source);
  const bool found = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&source), &size) == 0;
  const int error = errno;
  close(fd);
  if (!found) return Unavailable("no route: " + ErrnoText(error));
  return source;
}

Result<std::string> InterfaceOf(const sockaddr_storage& address) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return Unavailable("cannot list interfaces: " + ErrnoText(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, freeifaddrs);
  for (const ifaddrs* each = raw; each != nullptr; each = each->ifa_next) {
    if (SameAddress(each->ifa_addr, address)) return std::string(each->ifa_name);
  }
  // The whole of 127.0.0.0/8 is the loopback's, though only one address of it is listed.
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  if (address.ss_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == 127) return "lo";
  return NotFound("no interface has the source address");
}

}  // namespace

Result<std::string> InterfaceTowards(const std::string& master, uint16_t port) {
  auto name = Resolve(master, port, 0).and_then(SourceTowards).and_then(InterfaceOf);
  if (!name) {
    return MakeError(name.error().code, "MASTER_ADDR=" + master + ": " + name.error().message);
  }
  return name;
}

Result<std::string> InterfaceWith(const std::string& address) {
  auto name = Resolve(address, 0, AI_NUMERICHOST).and_then(InterfaceOf);
  if (!name) return MakeError(name.error().code, address + ": " + name.error().message);
  return name;
}

}  // namespace everstep
