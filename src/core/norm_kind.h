// Kinds of normalisation: the words that kernels, configuration and operators
// share.
#pragma once

namespace tarn {

enum class NormKind {
  kLayer,  // "layer": mean and variance, gamma and beta (Ba et al. 2016)
  kRms     // "rms": root mean square, gamma alone (Zhang and Sennrich 2019)
};

constexpr const char* Name(NormKind kind) {
  switch (kind) {
    case NormKind::kLayer:
      return "layer";
    case NormKind::kRms:
      return "rms";
  }
  return "";
}

}  // namespace tarn
