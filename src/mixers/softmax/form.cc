#include "mixers/softmax/form.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tarn {

SoftmaxForm::SoftmaxForm(const ModelConfig& layer)
    : d_model(layer.d_model),
      heads(layer.n_heads),
      key_heads(KeyOf<int64_t>(layer, "key_heads")),
      d_key(layer.d_key),
      d_value(layer.d_value),
      sinks(KeyOf<bool>(layer, "sinks")),
      scale(KeyOf<double>(layer, "score_scale")),
      softcap(KeyOf<double>(layer, "softcap")) {
  if (key_heads == 0) key_heads = heads;
  norm_eps = KeyOf<double>(layer, "head_norm_eps");
  if (norm_eps == 0) norm_eps = layer.norm_eps;
  if (scale == 0) scale = 1.0 / std::sqrt(static_cast<double>(d_key));
  const std::string_view name = Name(layer.attention);
  if (name == kGatedSoftmax) {
    qkv_bias = out_bias = false;
    gated = KeyOf<bool>(layer, "output_gate");
    norm = KeyOf<bool>(layer, "query_key_norm") ? HeadNorm::kHead
                                                : HeadNorm::kNone;
  } else {
    qkv_bias = KeyOf<bool>(layer, "qkv_bias");
    out_bias = KeyOf<bool>(layer, "out_bias");
    gated = KeyOf<bool>(layer, "head_gate");
    norm = KeyOf<HeadNorm>(layer, "head_norm");
  }
  if (name == "local") {
    context = KeyOf<int64_t>(layer, "local_context");
    window = context / 2 + 1;
  } else {
    window = KeyOf<int64_t>(layer, "window");
  }
  if (name == "full") {
    latent = KeyOf<int64_t>(layer, "latent_width");
    query_latent = KeyOf<int64_t>(layer, "query_latent_width");
    shared = KeyOf<int64_t>(layer, "shared_key_width");
  }
  if (layer.positions != Positions::kRotary) return;
  rotates = KeyOf<bool>(layer, kRotateKey);
  if (!rotates) return;
  rotary = KeyOf<int64_t>(layer, "rotary_width");
  if (rotary == 0) rotary = d_key;
  const double base = KeyOf<double>(layer, kRotaryBaseKey);
  if (base == 0) return;
  const auto& bases = layer.rotary_bases;
  table = 1 + (std::find(bases.begin(), bases.end(), base) - bases.begin());
}

bool SoftmaxForm::plain() const {
  return key_heads == heads && qkv_bias && out_bias && !gated && !sinks &&
         norm == HeadNorm::kNone && (rotary == 0 || rotary == d_key) &&
         rotates && table == 0 && softcap == 0 && latent == 0 &&
         scale == 1.0 / std::sqrt(static_cast<double>(d_key));
}

}  // namespace tarn
