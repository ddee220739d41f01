#include "cli/console/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace tarn::cli {
namespace {

// A handler can reach nothing but a global; it lives in the program only.
volatile std::sig_atomic_t pending_signal = 0;

// A pipe with a byte for each signal: whoever waits for input waits for it,
// too, and misses none that comes just before, on whichever thread. -1: there
// is none.
int wake_read = -1;
volatile std::sig_atomic_t wake_write = -1;

void Remember(int signal) {
  pending_signal = signal;
  const int error = errno;
  const char byte = 0;
  if (wake_write >= 0 && write(wake_write, &byte, 1) < 0) {
    // It is full: a byte waits there already.
  }
  errno = error;
}

void OpenWake() {
  int ends[2];
  if (wake_read >= 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  wake_read = ends[0];
  wake_write = ends[1];
}

void DrainWake() {
  char bytes[16];
  while (wake_read >= 0 && read(wake_read, bytes, sizeof(bytes)) > 0) {
  }
}

void Install(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  OpenWake();
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
  DrainWake();
  Install(SIGINT, Remember, SA_RESETHAND);
}

int PendingSignal() { return pending_signal; }

bool WaitForInput(int file) {
  while (pending_signal == 0) {
    pollfd files[] = {{file, POLLIN, 0}, {wake_read, POLLIN, 0}};
    const int ready = poll(files, wake_read >= 0 ? 2 : 1, -1);
    // What cannot be waited for says so when it is read.
    if (ready < 0 && errno != EINTR) break;
    if (ready > 0 && files[0].revents != 0) break;
  }
  return pending_signal == 0;
}

}  // namespace tarn::cli
