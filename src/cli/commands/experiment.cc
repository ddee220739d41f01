// `tarn experiment`: hands over to tarn-experiment, a launcher of the Python
// package `experiments`, which builds on the training part.
#include "cli/cli.h"
#include "cli/commands/hand_over.h"

namespace tarn::cli {
namespace {

constexpr char kMissing[] =
    "tarn experiment: error: the experiments, tarn-experiment, are not here\n"
    "They stand on Python and torch and come with `make build`; `make runtime` "
    "leaves them out.\n"
    "Looked beside this program, in ../libexec/tarn and on PATH.\n";

}  // namespace

int Experiment(int argc, char** argv) {
  return HandOver("tarn-experiment", kMissing, argc, argv);
}

}  // namespace tarn::cli
