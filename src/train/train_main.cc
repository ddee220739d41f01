// tarn-train: what `tarn train` runs. It checks the arguments and loads the
// trainer, libtarn_train, and with it libtorch, only for a run that can begin.
#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "train/options/command_line.h"
#include "train/run/before_start.h"
#include "train/run/failure.h"

namespace tarn::train {
namespace {

constexpr char kLibrary[] = "libtarn_train.so";

// libtorch's OpenMP reads its settings as it is loaded. By default its threads
// spin for milliseconds at every barrier: on a machine that is shared, training
// then takes ten times as long; if they sleep at once, they wake too late for
// the next of a step's many short loops. 10,000 turns last longer than most
// waits and far less than a time slice. And a pool that shrinks under load
// would split sums differently from run to run.
void SetUpPools() {
  if (getenv("GOMP_SPINCOUNT") != nullptr ||
      getenv("OMP_WAIT_POLICY") != nullptr) {
    return;
  }
  setenv("GOMP_SPINCOUNT", "10000", 1);
  setenv("OMP_DYNAMIC", "FALSE", 0);
  setenv("MKL_DYNAMIC", "FALSE", 0);
}

// With --ranks 2 and more, the launcher next to this program starts the
// processes.
[[noreturn]] void StartRanks(char** argv) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length > 0) {
    const std::string launcher =
        std::string(path, static_cast<size_t>(length)) + "-ranks";
    execv(launcher.c_str(), argv);
  }
  throw Error(ErrorCode::kIo,
              "--ranks: want the launcher tarn-train-ranks next to tarn-train, "
              "got none");
}

using TrainFunction = int (*)(int, const char* const*, const char*,
                              const char*);

TrainFunction LoadTrainer() {
  const char* named = getenv("TARN_TRAIN_LIBRARY");
  void* library = dlopen(named != nullptr ? named : kLibrary, RTLD_NOW);
  void* function = library == nullptr ? nullptr : dlsym(library, "tarn_train");
  if (function == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorCode::kIo,
                StrCat("want the trainer's library ", kLibrary, ", got: ",
                       reason == nullptr ? "no tarn_train in it" : reason));
  }
  return reinterpret_cast<TrainFunction>(function);
}

int Run(int argc, char** argv) {
  const CommandLine line = ParseCommandLine({argv + 1, argv + argc});
  if (line.help) {
    std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is no error
    WriteStream(STDOUT_FILENO, HelpText("tarn train"), "standard output");
    return 0;
  }
  CheckBeforeStart(line.given);
  if (ReadRanks(line.given).ranks > 1) StartRanks(argv);
  SetUpPools();
  return LoadTrainer()(argc - 1, argv + 1, nullptr, nullptr);
}

}  // namespace
}  // namespace tarn::train

int main(int argc, char** argv) {
  try {
    return tarn::train::Run(argc, argv);
  } catch (const std::exception&) {
    return tarn::train::ReportFailure(std::current_exception());
  }
}
