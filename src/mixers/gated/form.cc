#include "mixers/gated/form.h"

#include <cmath>

#include "mixers/common/form_output_norm.h"

namespace tarn {
namespace {

// The words of `gate_activation`: the mixer's own gate, or those of OutputGate.
enum class GateActivation { kOwn, kNone, kSilu, kSigmoid };

constexpr int64_t kGlaRank = 16;  // Yang et al. 2023, section 5

constexpr GatedForm kForms[] = {
    // Sun et al. 2023, arXiv 2307.08621.
    {.name = "retnet",
     .gate = DecayGate::kConstant,
     .output_gate = OutputGate::kSilu,
     .rotary = true},
    // Qin et al. 2024, arXiv 2401.04658, as MiniMax-01 has it.
    {.name = "lightning",
     .gate = DecayGate::kConstant,
     .silu_queries = true,
     .silu_keys_values = true,
     .scaled = false,
     .output_gate = OutputGate::kSigmoid,
     .span = NormSpan::kAll},
    // Dao and Gu 2024, arXiv 2405.21060: queries are C, keys B.
    {.name = "mamba2",
     .gate = DecayGate::kHead,
     .convolution = true,
     .convolution_bias = true,
     .grouped = true,
     .scaled = false,
     .output_gate = OutputGate::kSilu,
     .gate_first = true,
     .span = NormSpan::kGroup,
     .skip = true},
    // Yang et al. 2023, arXiv 2312.06635.
    {.name = "gla",
     .gate = DecayGate::kLogSigmoid,
     .output_gate = OutputGate::kSilu},
    // Qin et al. 2024, arXiv 2404.07904.
    {.name = "hgrn2",
     .gate = DecayGate::kBounded,
     .silu_queries = true,
     .span = NormSpan::kAll},
    // Yang et al. 2024, arXiv 2406.06484.
    {.name = "deltanet",
     .delta = true,
     .convolution = true,
     .unit = true,
     .grouped = true},
    // Yang et al. 2024, arXiv 2412.06464, as Qwen3-Next has it.
    {.name = "gdn",
     .gate = DecayGate::kHead,
     .delta = true,
     .convolution = true,
     .unit = true,
     .grouped = true,
     .output_gate = OutputGate::kSilu},
    // Kimi Team 2025, arXiv 2510.26692.
    {.name = "kda",
     .gate = DecayGate::kChannel,
     .delta = true,
     .convolution = true,
     .unit = true,
     .grouped = true,
     .output_gate = OutputGate::kSigmoid,
     .low_rank_output_gate = true},
    // Qin et al. 2022, arXiv 2210.10340, section 4.2 ("NormAttention"), with
    // the maps and options of flash-linear-attention's linear_attn.
    {.name = "norm-linear", .mapped = true},
};

int64_t Rank(const GatedForm& form, const ModelConfig& layer) {
  const int64_t given = KeyOf<int64_t>(layer, "gate_rank");
  if (given > 0) return given;
  return form.gate == DecayGate::kLogSigmoid ? kGlaRank : layer.d_value;
}

}  // namespace

QkFeatures FeaturesOf(bool mapped, const ModelConfig& layer) {
  QkFeatures phi = {.d_key = layer.d_key};
  if (!mapped) return phi;
  phi.map = KeyOf<QkMap>(layer, "qk_map");
  phi.unit_queries = KeyOf<bool>(layer, "unit_queries");
  phi.unit_keys = KeyOf<bool>(layer, "unit_keys");
  phi.divided = KeyOf<bool>(layer, "divided_sums");
  return phi;
}

std::span<const GatedForm> GatedForms() { return kForms; }

const GatedForm* FindGatedForm(std::string_view name) {
  for (const GatedForm& form : kForms) {
    if (name == form.name) return &form;
  }
  return nullptr;
}

GatedForm FormOf(const GatedForm& row, const ModelConfig& layer) {
  GatedForm form = row;
  if (form.skip) {
    form.norm = KeyOf<bool>(layer, "mamba2_norm");
    form.gate_first = !KeyOf<bool>(layer, "mamba2_norm_first");
  }
  const auto gate = KeyOf<GateActivation>(layer, "gate_activation");
  if (gate != GateActivation::kOwn && !form.skip) {
    form.output_gate = static_cast<OutputGate>(static_cast<int>(gate) - 1);
  }
  if (form.output_gate == OutputGate::kNone) form.low_rank_output_gate = false;
  form.output_gate_bias =
      form.low_rank_output_gate && KeyOf<bool>(layer, "gate_bias");
  return form;
}

GatedSizes SizesOf(const GatedForm& form, const ModelConfig& layer) {
  GatedSizes s;
  s.d_model = layer.d_model;
  s.heads = layer.n_heads;
  const int64_t key_heads =
      form.grouped ? KeyOf<int64_t>(layer, "key_heads") : 0;
  s.key_heads = key_heads > 0 ? key_heads : layer.n_heads;
  s.d_key = layer.d_key;
  s.d_value = layer.d_value;
  s.keys = s.key_heads * s.d_key;
  s.values = s.heads * s.d_value;
  s.phi = FeaturesOf(form.mapped, layer);
  s.d_feature = s.phi.width();
  s.d_sum = s.d_value + (s.phi.divided ? 1 : 0);
  s.gates = !form.projected() ? 0
            : form.channels() ? s.heads * s.d_key
                              : s.heads;
  s.rank = form.low_rank() ? Rank(form, layer) : 0;
  s.width = form.convolution ? KeyOf<int64_t>(layer, "conv_width") : 0;
  s.channels = 2 * s.keys + s.values;
  s.norm_groups = form.span == NormSpan::kHead  ? s.heads
                  : form.span == NormSpan::kAll ? 1
                                                : s.key_heads;
  s.norm_width = s.values / s.norm_groups;
  s.shared_norm = form.span == NormSpan::kHead;
  s.norm_eps = OutputNormEps(layer);
  s.least_step = s.most_step = 0.0;
  if (form.skip) {
    s.least_step = KeyOf<double>(layer, "least_step");
    s.most_step = KeyOf<double>(layer, "most_step");
  }
  s.scale = form.scaled ? static_cast<float>(
                              1.0 / std::sqrt(static_cast<double>(s.d_feature)))
                        : 1.0f;
  s.in_bias = KeyOf<bool>(layer, "recurrent_in_bias");
  s.out_bias = KeyOf<bool>(layer, "recurrent_out_bias");
  s.learns_bounds = form.bounded() && KeyOf<bool>(layer, "learned_bounds");
  s.reads_bounds = s.learns_bounds && layer.reads_passed;
  s.depth =
      layer.arch == Arch::kSeq2seq ? layer.n_decoder_layers : layer.n_layers;
  return s;
}

}  // namespace tarn
