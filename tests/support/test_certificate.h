// Certificates for tests that speak TLS.
#ifndef EVERSTEP_TESTS_SUPPORT_TEST_CERTIFICATE_H_
#define EVERSTEP_TESTS_SUPPORT_TEST_CERTIFICATE_H_

#include <string>

namespace everstep {

// A certificate for `host` (a name or an address) and its authority, both made on the spot.
struct TestCertificate {
  std::string authority_pem;    // what a client has to trust
  std::string certificate_pem;  // for the server, with its key
};
TestCertificate MakeTestCertificate(const std::string& host);

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_TEST_CERTIFICATE_H_
