// Which network interface collectives should use: the one whose address the kernel picks as the
// source towards the master. On machines with several, libraries' own guesses fail
// (ncclSystemError in socketStartConnect).
#ifndef EVERSTEP_WORKER_SUPERVISOR_NETWORK_INTERFACE_H_
#define EVERSTEP_WORKER_SUPERVISOR_NETWORK_INTERFACE_H_

#include <cstdint>
#include <string>

#include "common/result.h"

namespace everstep {

// `master` is an IP address or a name that resolves. Sends nothing.
Result<std::string> InterfaceTowards(const std::string& master, uint16_t port);

// The one that has `address`, an IP address of this machine.
Result<std::string> InterfaceWith(const std::string& address);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_SUPERVISOR_NETWORK_INTERFACE_H_
