// tarn-train: what `tarn train` runs.
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "train/train_program.h"

namespace {

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
  // The program starts again by its own path, so that lists of processes name
  // it. If it cannot start again it continues as it is, only slower.
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length < 0) return;
  path[length] = '\0';
  execv(path, argv);
}

// With --ranks 2 and more, the launcher beside this program starts the processes:
// it comes back here in each of them, through the library.
bool WantsRanks(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool joined = word.starts_with("--ranks=");
    if (!joined && word != "--ranks") continue;
    const std::string value =
        joined ? word.substr(8) : i + 1 < argc ? argv[i + 1] : "";
    return value != "1";
  }
  return false;
}

int StartRanks(char** argv) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length > 0) {
    const std::string self(path, static_cast<size_t>(length));
    const std::string launcher = self + "-ranks";
    execv(launcher.c_str(), argv);
  }
  std::fprintf(stderr,
               "tarn train: error: --ranks: want the launcher tarn-train-ranks "
               "next to tarn-train, got none\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (WantsRanks(argc, argv)) return StartRanks(argv);
  SetUpPools(argv);
  return tarn::train::TrainProgram({argv + 1, argv + argc},
                                   tarn::train::OneRank);
}
