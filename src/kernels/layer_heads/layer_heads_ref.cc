#include "kernels/layer_heads/layer_heads_ref.h"

#include <cmath>
#include <cstddef>

namespace tarn {

std::vector<double> LayerHeadsRef(const LayerHeadsNumbers& in, size_t width,
                                  NormKind kind, double eps) {
  std::vector<double> y;
  for (size_t at = 0; at < in.x.size(); at += width) {
    const auto row = in.x.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<double> n(row, row + static_cast<std::ptrdiff_t>(width));
    if (!in.gamma.empty()) {
      double mean = 0, square = 0;
      const double count = static_cast<double>(width);
      if (kind == NormKind::kLayer) {
        for (const double v : n) mean += v / count;
      }
      for (const double v : n) square += (v - mean) * (v - mean) / count;
      for (size_t i = 0; i < width; ++i) {
        n[i] = (n[i] - mean) / std::sqrt(square + eps) * in.gamma[i] +
               (in.beta.empty() ? 0.0 : in.beta[i]);
      }
    }
    for (size_t map = 0; map < in.weights.size(); ++map) {
      const std::vector<double>& w = in.weights[map];
      for (size_t o = 0; o < w.size() / width; ++o) {
        double sum = in.biases[map].empty() ? 0.0 : in.biases[map][o];
        for (size_t k = 0; k < width; ++k) sum += n[k] * w[o * width + k];
        y.push_back(sum);
      }
    }
  }
  return y;
}

}  // namespace tarn
