#include "mixers/mamba/form.h"

namespace tarn {
namespace {

constexpr int64_t kWidthOverRank = 16;  // the default of the authors' code

}  // namespace

MambaSizes MambaSizesOf(const ModelConfig& layer) {
  const int64_t rank = KeyOf<int64_t>(layer, "gate_rank");
  const double eps = KeyOf<double>(layer, "selection_norm_eps");
  return {.d_model = layer.d_model,
          .channels = layer.n_heads * layer.d_value,
          .states = layer.d_key,
          .rank = rank > 0
                      ? rank
                      : (layer.d_model + kWidthOverRank - 1) / kWidthOverRank,
          .width = KeyOf<int64_t>(layer, "conv_width"),
          .in_bias = KeyOf<bool>(layer, "recurrent_in_bias"),
          .out_bias = KeyOf<bool>(layer, "recurrent_out_bias"),
          .selection_norm = KeyOf<bool>(layer, "selection_norm"),
          .selection_eps = eps > 0.0 ? eps : layer.norm_eps};
}

}  // namespace tarn
