// tarn-train: what `tarn train` runs.
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/simd_target.h"
#include "train/options/command_line.h"
#include "train/run/progress.h"
#include "train/trainer.h"

namespace {

constexpr int kFailure = 1, kUsage = 2, kBadFile = 3;

std::atomic<bool> stop_asked{false};
volatile sig_atomic_t stop_signal = 0;
static_assert(std::atomic<bool>::is_always_lock_free);

// The first signal asks for an orderly stop; the second, with the handler
// gone, ends the process as usual.
void AskStop(int number) {
  stop_signal = number;
  stop_asked = true;
}

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = AskStop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A full disk or a closed pipe gives an error code, not the end of the run.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

int ExitCode(const tarn::Error& error) {
  switch (error.code()) {
    case tarn::ErrorCode::kArgument:
    case tarn::ErrorCode::kShape:
    case tarn::ErrorCode::kDevice:
      return kUsage;
    case tarn::ErrorCode::kFormat:
      return kBadFile;
    default:
      return kFailure;
  }
}

// libtorch's OpenMP reads its settings before main, so that the program must
// start again to change them. By default its threads spin for milliseconds at
// every barrier: on a machine that is shared, training then takes ten times as
// long; if they sleep at once, they wake too late for the next of a step's many
// short loops. 10,000 turns last longer than most waits and far less than a
// time slice. And a pool that shrinks under load would split sums differently
// from run to run.
void SetUpPools(char** argv) {
  if (getenv("GOMP_SPINCOUNT") != nullptr ||
      getenv("OMP_WAIT_POLICY") != nullptr) {
    return;
  }
  setenv("GOMP_SPINCOUNT", "10000", 1);
  setenv("OMP_DYNAMIC", "FALSE", 0);
  setenv("MKL_DYNAMIC", "FALSE", 0);
  // It starts by its own path, so that lists of processes name it. If it cannot
  // start again it continues as it is, only slower.
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length < 0) return;
  path[length] = '\0';
  execv(path, argv);
}

// A step frees what the next one allocates. By default the C library gives such
// memory back in between, and its pages are mapped and cleared again.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// The text for a POSIX shell: in single quotes unless plainly harmless.
std::string ShellWord(const std::string& text) {
  const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

void PrintFigures(const tarn::train::TrainResult& result) {
  std::printf("training time %s (%.1f s), %lld steps\n",
              tarn::train::DurationText(result.elapsed_s).c_str(),
              result.elapsed_s, static_cast<long long>(result.step));
  if (result.last_held_out) {
    const auto text = [&](double value) {
      return tarn::train::MetricText(result.metric, value);
    };
    std::printf("held out %s (best %s at step %lld)\n",
                text(*result.last_held_out).c_str(),
                text(*result.best_held_out).c_str(),
                static_cast<long long>(result.best_step));
  }
  std::printf("model in %s\n", result.out.c_str());
}

int Run(const std::vector<std::string>& arguments) {
  const tarn::train::CommandLine line =
      tarn::train::ParseCommandLine(arguments);
  if (line.help) {
    std::fputs(tarn::train::HelpText("tarn train").c_str(), stdout);
    return 0;
  }
  tarn::ApplySimdTargetFromEnvironment();
  bool quiet = false;
  for (const auto& [name, value] : line.given) quiet |= name == "quiet";
  tarn::train::Progress progress(stderr, isatty(STDERR_FILENO) == 1, quiet);
  const tarn::train::TrainResult result =
      tarn::train::Train(line.given, stop_asked, progress);
  progress.Clear();
  if (result.finished) {
    PrintFigures(result);
    return 0;
  }
  std::fprintf(stderr,
               "stopped after step %lld, saved; go on with: "
               "tarn train --out %s --resume%s\n",
               static_cast<long long>(result.step),
               ShellWord(result.out).c_str(),
               result.reads_stdin ? " < THE SAME TEXT" : "");
  return 128 + stop_signal;
}

}  // namespace

int main(int argc, char** argv) {
  SetUpPools(argv);
  KeepFreedMemory();
  HandleSignals();
  try {
    return Run({argv + 1, argv + argc});
  } catch (const tarn::Error& error) {
    std::fprintf(stderr, "tarn train: error: %s\n",
                 tarn::train::OneLine(error.what()).c_str());
    return ExitCode(error);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tarn train: error: out of memory\n");
  } catch (const std::exception& error) {
    // libtorch's own messages carry a stack below their first line.
    const std::string text = error.what();
    std::fprintf(stderr, "tarn train: error: %s\n",
                 text.substr(0, text.find('\n')).c_str());
  }
  return kFailure;
}
