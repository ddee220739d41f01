// The program `tarn` with one more mixer.
#include "cli/cli.h"
#include "ema.h"

int main(int argc, char** argv) {
  tarn::plugin::RegisterEma();
  return tarn::cli::Main(argc, argv);
}
