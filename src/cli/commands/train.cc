// `tarn train`: hands over to tarn-train, the training part, which builds on
// libtorch and may not be installed.
#include "cli/cli.h"
#include "cli/commands/hand_over.h"

namespace tarn::cli {
namespace {

constexpr char kMissing[] =
    "tarn train: error: the training part, tarn-train, was not found\n"
    "It needs libtorch and is built by `make build`; `make runtime` leaves it "
    "out.\nLooked next to this program, in ../libexec/tarn and on PATH.\n";

}  // namespace

int Train(int argc, char** argv) {
  return HandOver("tarn-train", kMissing, argc, argv);
}

}  // namespace tarn::cli
