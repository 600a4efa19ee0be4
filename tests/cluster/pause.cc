// What keeps a pod's namespaces: waits until it is told to end, and collects orphans as process 1.
#include <signal.h>
#include <sys/wait.h>

#include <initializer_list>

int main() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGCHLD) return 0;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}
