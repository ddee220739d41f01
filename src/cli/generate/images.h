// `tarn generate` for image models: images drawn pixel by pixel, from nothing
// or from the beginnings of given ones.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cli.h"
#include "cli/console/image_file.h"

namespace tarn::cli {

struct ImageFlags {
  int64_t count = 1;
  ImageChoice given;
  int64_t pixels = 0;  // 0: the upper half
  int64_t samples = 1;
  int64_t first = 0;
  int64_t batch = 0;
  std::string out;
};

/// The options of image models.
void DeclareImageFlags(CLI::App& app, ImageFlags& flags);

/// Draws, and writes flags.out by rename ("-": standard output). Returns the
/// exit code; a signal leaves no file.
int GenerateImages(const CLI::App& app, const OpenedModel& opened,
                   const ImageFlags& flags, double temperature, uint64_t seed,
                   bool json);

}  // namespace tarn::cli
