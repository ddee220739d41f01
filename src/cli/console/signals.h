// SIGINT and SIGTERM set a flag that long loops check; SIGPIPE is ignored.
#pragma once

namespace tarn::cli {

/// The first SIGINT or SIGTERM sets the flag, a second one ends the process.
/// Reads that wait are interrupted (EINTR).
void InstallSignalHandlers();

/// Gives SIGPIPE, SIGINT and SIGTERM their defaults back, for a program that is
/// about to take this one's place.
void RestoreSignalDefaults();

/// The signal that arrived, 0 when none has.
int PendingSignal();

/// Forgets a SIGINT, so that the next one sets the flag again; other signals
/// stay. For a program that continues after it.
void ForgetInterrupt();

/// Waits until a file can be read, or has ended; false once a signal is
/// pending, also one that came before the call.
bool WaitForInput(int file);

/// 128 + the signal, the exit code shells give a program it ended.
inline int SignalExitCode(int signal) { return 128 + signal; }

}  // namespace tarn::cli
