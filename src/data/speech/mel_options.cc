#include "data/speech/mel_options.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace tarn::train {
namespace {

int64_t Samples(double seconds, int64_t rate) {
  return std::max<int64_t>(1,
                           std::llround(seconds * static_cast<double>(rate)));
}

}  // namespace

int64_t LogMelOptions::window() const { return Samples(window_s, sample_rate); }

int64_t LogMelOptions::hop() const {
  return Samples(hop_s * speed, sample_rate);
}

int64_t LogMelOptions::transform() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(window())));
}

int64_t LogMelOptions::Frames(int64_t samples) const {
  if (samples == 0) return 0;
  return 1 + std::max<int64_t>(0, samples - window()) / hop();
}

void CheckMelOptions(const LogMelOptions& options) {
  const auto refuse = [](const char* name, const char* wanted, double given) {
    throw ArgumentError(StrCat("LogMel: ", name), wanted, StrCat(given));
  };
  if (options.sample_rate < 1000) {
    refuse("sample_rate", "1000 Hz or more",
           static_cast<double>(options.sample_rate));
  }
  if (options.bands < 1 || options.bands > options.transform() / 2) {
    refuse("bands", "1 to half the transform",
           static_cast<double>(options.bands));
  }
  if (!(options.warp >= 0.5 && options.warp <= 2.0)) {
    refuse("warp", "0.5 to 2", options.warp);
  }
  if (!(options.speed >= 0.5 && options.speed <= 2.0)) {
    refuse("speed", "0.5 to 2", options.speed);
  }
}

}  // namespace tarn::train
