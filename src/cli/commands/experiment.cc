// `tarn experiment` and `tarn plot`: hand over to tarn-experiment and
// tarn-plot, launchers of the Python packages `experiments` and `plotting`,
// which come with the training part.
#include "cli/cli.h"
#include "cli/commands/hand_over.h"

namespace tarn::cli {
namespace {

constexpr char kNoExperiments[] =
    "tarn experiment: error: the experiments, tarn-experiment, were not found\n"
    "They need Python and torch and come with `make build`; `make runtime` "
    "leaves them out.\n"
    "Looked next to this program, in ../libexec/tarn and on PATH.\n";

constexpr char kNoPlots[] =
    "tarn plot: error: the plotting program, tarn-plot, was not found\n"
    "It needs Python and matplotlib and comes with `make build`; `make "
    "runtime` leaves it out.\n"
    "Looked next to this program, in ../libexec/tarn and on PATH.\n";

}  // namespace

int Experiment(int argc, char** argv) {
  return HandOver("tarn-experiment", kNoExperiments, argc, argv);
}

int Plot(int argc, char** argv) {
  return HandOver("tarn-plot", kNoPlots, argc, argv);
}

}  // namespace tarn::cli
