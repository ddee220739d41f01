// `tarn eval` for image models: bits/dim of images, or of what follows the
// first pixels of each.
#pragma once

#include <cstdint>

#include "cli/cli.h"
#include "cli/console/image_file.h"

namespace tarn::cli {

struct EvalImageFlags {
  ImageChoice images;
  int64_t pixels = 0;      // given, and not scored; the first byte never is
  bool per_image = false;  // also the figure of each image
  bool json = false;
};

/// Scores and prints; where a signal ends the run, what was scored so far.
/// Returns the exit code.
int EvalImages(const LoadedModel& opened, const EvalImageFlags& flags);

}  // namespace tarn::cli
