#include "mixers/rwkv/form.h"

#include <algorithm>
#include <cmath>

namespace tarn {

bool IsRwkv(std::string_view name) {
  return name == "rwkv6" || name == "rwkv7";
}

// Ranks grow with the root of the width, in steps of 8, as in the authors'
// models.
RwkvSizes RwkvSizesOf(const ModelConfig& layer) {
  RwkvSizes s;
  s.seven = std::string_view(Name(layer.attention)) == "rwkv7";
  s.d_model = layer.d_model;
  s.heads = layer.n_heads;
  s.d_key = layer.d_key;
  s.width = s.heads * s.d_key;
  s.inputs = s.seven ? 6 : 5;
  const int64_t root =
      static_cast<int64_t>(
          std::lround(2.5 * std::sqrt(static_cast<double>(s.d_model)) / 8)) *
      8;
  const int64_t given = KeyOf<int64_t>(layer, "gate_rank");
  s.rank = given > 0 ? given : std::max<int64_t>(8, root);
  const auto rank = [&](const char* key, int64_t own) {
    const int64_t set = KeyOf<int64_t>(layer, key);
    return set > 0 ? set : own;
  };
  s.rate_rank = rank("rate_rank", s.rank);
  s.gate_rank = rank("output_gate_rank", 2 * s.rank);
  s.shift_rank = rank("shift_rank", s.rank);
  const int64_t value_root =
      static_cast<int64_t>(
          std::lround(1.7 * std::sqrt(static_cast<double>(s.d_model)) / 8)) *
      8;
  s.value_rank =
      rank("value_rank",
           given > 0 ? (given + 1) / 2 : std::max<int64_t>(8, value_root));
  s.passes_values = s.seven && KeyOf<bool>(layer, "value_residual");
  s.reads_values = s.passes_values && layer.reads_passed;
  s.norm_eps = KeyOf<double>(layer, "output_norm_eps");
  if (s.norm_eps == 0.0) {
    s.norm_eps = layer.norm_eps * static_cast<double>(s.d_key);
  }
  s.unit_eps = static_cast<float>(KeyOf<double>(layer, "unit_eps"));
  return s;
}

}  // namespace tarn
