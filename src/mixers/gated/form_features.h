// The features phi that a mixer with `mapped` makes of its queries and keys,
// head by head, before the recurrence reads them: x [K] -> phi(x) [C].
//
//   elu1       elu(x) + 1 (Katharopoulos et al. 2020, eq. (7))        C = K
//   identity   x                                                       C = K
//   relu       max(x, 0)                                               C = K
//   hadamard   (A x + a) * (B x + b), entry by entry                   C = K
//   t2r        max(A x, 0) (Kasai et al. 2021, arXiv 2103.13076)       C = K
//   hedgehog   softmax([2 y, -2 y]), y = A x + a                       C = 2 K
//              (Zhang et al. 2024, arXiv 2402.04347, section 4)
//   dpfp       r_i r_{i-j} for j = 1..4, r = [max(x, 0), max(-x, 0)],
//              indices modulo 2 K (Schlag et al. 2021, arXiv           C = 8 K
//              2102.11174, eq. (37))
//
// A, B [K, K], a, b [K] are weights of the layer that all heads share; queries
// and keys have different ones.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// In the order of the words of `qk_map`.
enum class QkMap { kElu1, kIdentity, kRelu, kHadamard, kT2r, kHedgehog, kDpfp };

struct QkFeatures {
  QkMap map = QkMap::kIdentity;
  int64_t d_key = 0;          // K
  bool unit_queries = false;  // phi(q) / (sum phi(q) + kUnitSumEps)
  bool unit_keys = false;     // the same of keys
  /// Sums are divided by those of the keys, as in linear attention:
  /// o_i = sum_j (phi(q_i) . phi(k_j)) v_j scale
  ///       / (sum_j phi(q_i) . phi(k_j) scale + kDivisorEps)
  bool divided = false;

  int64_t width() const {  // C
    return map == QkMap::kDpfp       ? 8 * d_key
           : map == QkMap::kHedgehog ? 2 * d_key
                                     : d_key;
  }
  /// Whether the map has A; a; B and b.
  bool has_matrix() const {
    return map == QkMap::kHadamard || map == QkMap::kT2r ||
           map == QkMap::kHedgehog;
  }
  bool has_bias() const { return has_matrix() && map != QkMap::kT2r; }
  bool has_factor() const { return map == QkMap::kHadamard; }
};

/// Those of a layer; the identity, undivided, for mixers without `mapped`.
QkFeatures FeaturesOf(bool mapped, const ModelConfig& layer);

/// Rolls of dpfp.
inline constexpr int64_t kDpfpRolls = 4;
inline constexpr float kUnitSumEps = 1e-4f;
inline constexpr float kDivisorEps = 1e-10f;

}  // namespace tarn
