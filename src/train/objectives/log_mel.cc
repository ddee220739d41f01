#include "train/objectives/log_mel.h"

#include <torch/fft.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace tarn::train {
namespace {

// Far below any recording's own noise: keeps the logarithm of silence finite.
constexpr double kFloor = 1e-6;
// Natural-log units squared; speech moves a band by about 2 to 4 of them.
constexpr double kLeastVariance = 0.25;
// Above this share of the highest frequency a warp bends back to it.
constexpr double kWarpBelow = 0.8;

double MelOf(double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); }
double HertzOf(double mel) {
  return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0);
}

double Warped(double hertz, double highest, double warp) {
  const double knee = kWarpBelow * std::min(warp, 1.0) / warp * highest;
  if (hertz <= knee) return warp * hertz;
  return highest -
         (highest - warp * knee) / (highest - knee) * (highest - hertz);
}

}  // namespace

torch::Tensor MelFilters(const LogMelOptions& options) {
  CheckMelOptions(options);
  const int64_t bins = options.transform() / 2 + 1;
  const double highest = static_cast<double>(options.sample_rate) / 2;
  const double step = highest / static_cast<double>(bins - 1);
  std::vector<double> points(options.bands + 2);  // Hz
  for (size_t i = 0; i < points.size(); ++i) {
    const double mel = MelOf(highest) * static_cast<double>(i) /
                       static_cast<double>(points.size() - 1);
    points[i] = Warped(HertzOf(mel), highest, options.warp);
  }
  torch::Tensor filters = torch::zeros({options.bands, bins}, torch::kFloat64);
  auto values = filters.accessor<double, 2>();
  for (int64_t band = 0; band < options.bands; ++band) {
    const double left = points[band], top = points[band + 1],
                 right = points[band + 2];
    for (int64_t bin = 0; bin < bins; ++bin) {
      const double hertz = step * static_cast<double>(bin);
      values[band][bin] =
          std::max(0.0, std::min((hertz - left) / (top - left),
                                 (right - hertz) / (right - top)));
    }
  }
  return filters;
}

torch::Tensor LogMel(const torch::Tensor& samples,
                     const LogMelOptions& options) {
  CheckMelOptions(options);
  if (samples.dim() != 1) {
    throw ShapeError("LogMel: samples", "[N]",
                     ShapeText(samples.sizes().vec()));
  }
  if (samples.scalar_type() != torch::kFloat32) {
    throw DTypeError("LogMel: samples", "float32",
                     torch::toString(samples.scalar_type()));
  }
  const int64_t frames = options.Frames(samples.size(0));
  if (frames == 0) return torch::empty({0, options.bands});
  const int64_t window = options.window();
  torch::Tensor sound = samples;
  if (sound.size(0) < window) {
    sound = torch::constant_pad_nd(sound, {0, window - sound.size(0)});
  }
  // [frames, window] -> [frames, transform / 2 + 1]
  const torch::Tensor spectrum =
      torch::fft::rfft(sound.unfold(0, window, options.hop()) *
                           torch::hann_window(window, /*periodic=*/true),
                       options.transform());
  const torch::Tensor power = torch::view_as_real(spectrum).square().sum(-1);
  const torch::Tensor filters = MelFilters(options).to(torch::kFloat32);
  return (power.matmul(filters.t()) + kFloor).log();
}

torch::Tensor NormaliseUtterance(const torch::Tensor& features) {
  if (features.size(0) == 0) return features;
  const torch::Tensor centred = features - features.mean(0, /*keepdim=*/true);
  const torch::Tensor variance = centred.square().mean(0, /*keepdim=*/true);
  return centred / (variance + kLeastVariance).sqrt();
}

}  // namespace tarn::train
