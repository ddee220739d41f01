#include "cli/console/signals.h"

#include <csignal>
#include <initializer_list>

namespace tarn::cli {
namespace {

// A handler can reach nothing but a global; it lives in the program only.
volatile std::sig_atomic_t pending_signal = 0;

void Remember(int signal) { pending_signal = signal; }

void Install(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  // No SA_RESTART: a read that waits for a terminal must come back.
  Install(SIGINT, Remember, SA_RESETHAND);
  Install(SIGTERM, Remember, SA_RESETHAND);
  Install(SIGPIPE, SIG_IGN, 0);
}

void RestoreSignalDefaults() {
  for (int signal : {SIGINT, SIGTERM, SIGPIPE}) Install(signal, SIG_DFL, 0);
}

void ForgetInterrupt() {
  if (pending_signal != SIGINT) return;
  pending_signal = 0;
  Install(SIGINT, Remember, SA_RESETHAND);
}

int PendingSignal() { return pending_signal; }

}  // namespace tarn::cli
