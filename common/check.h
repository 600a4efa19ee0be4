// CHECK for what cannot happen unless the program itself is wrong: it prints the place and the
// condition and aborts. What can happen (input, network, disk) is a Result instead.
#ifndef EVERSTEP_COMMON_CHECK_H_
#define EVERSTEP_COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>


#define EVERSTEP_CHECK(condition)                                                            \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);     \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#endif  // EVERSTEP_COMMON_CHECK_H_
