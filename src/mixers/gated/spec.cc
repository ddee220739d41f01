#include "mixers/gated/spec.h"

#include <algorithm>
#include <string_view>

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/common/form_output_norm.h"
#include "mixers/gated/form.h"

namespace tarn::mixers::gated {
namespace {

constexpr int64_t kMaxShortWidth = 8;
constexpr double kMostStep = 1e6;

std::vector<NamedShape> Weights(const GatedForm& row,
                                const ModelConfig& layer) {
  const GatedForm form = FormOf(row, layer);
  const GatedSizes s = SizesOf(form, layer);
  const int64_t d = s.d_model;
  std::vector<NamedShape> shapes;
  const auto add = [&](bool has, const char* name, std::vector<int64_t> shape) {
    if (has) shapes.push_back({name, std::move(shape)});
  };
  const auto map = [&](bool has, const std::string& name, int64_t rows,
                       int64_t columns, bool bias) {
    if (has) shapes.push_back({name + "_projection.weight", {rows, columns}});
    if (has && bias) shapes.push_back({name + "_projection.bias", {rows}});
  };
  const bool gated = form.output_gate != OutputGate::kNone;
  map(true, "query", s.keys, d, s.in_bias);
  map(!form.bounded(), "key", s.keys, d, s.in_bias);
  map(true, "value", s.values, d, s.in_bias);
  for (const char* side : {"query", "key"}) {
    map(s.phi.has_matrix(), StrCat(side, "_map"), s.d_key, s.d_key,
        s.phi.has_bias());
    map(s.phi.has_factor(), StrCat(side, "_factor"), s.d_key, s.d_key,
        s.phi.has_bias());
  }
  map(gated && !form.low_rank_output_gate, "gate", s.values, d, s.in_bias);
  map(form.low_rank_output_gate, "gate_down", s.rank, d, s.in_bias);
  map(form.low_rank_output_gate, "gate_up", s.values, s.rank,
      form.output_gate_bias);
  map(form.projected() && !form.low_rank(), "decay", s.gates, d, s.in_bias);
  map(form.low_rank(), "decay_down", s.rank, d, s.in_bias);
  map(form.low_rank(), "decay_up", s.gates, s.rank,
      form.gate == DecayGate::kLogSigmoid);
  map(form.delta, "beta", s.heads, d, s.in_bias);
  add(form.constant(), "log_decay", {s.heads});
  add(form.bounded() && !s.learns_bounds, "lower_bound", {s.gates});
  add(s.learns_bounds && !s.reads_bounds, "bound_logits", {s.depth, s.gates});
  add(form.softplus(), "A_log", {s.heads});
  add(form.softplus(), "dt_bias", {s.gates});
  add(form.skip, "D", {s.heads});
  add(s.width > 0, "convolution.weight", {s.channels, s.width});
  add(s.width > 0 && form.convolution_bias, "convolution.bias", {s.channels});
  add(form.norm, "norm.weight", {s.shared_norm ? s.norm_width : s.values});
  map(true, "out", d, s.values, s.out_bias);
  return shapes;
}

std::vector<NamedPrecision> Precise(const GatedForm& form) {
  std::vector<NamedPrecision> all;
  // A bounded decay is also the key, and as wide as one.
  if (form.bounded()) {
    all.emplace_back("decay_projection.weight", Precision::kByte);
  } else if (form.low_rank()) {
    all.emplace_back("decay_down_projection.weight", Precision::kFloat);
    all.emplace_back("decay_up_projection.weight", Precision::kFloat);
  } else if (form.projected()) {
    all.emplace_back("decay_projection.weight", Precision::kFloat);
  }
  if (form.delta) all.emplace_back("beta_projection.weight", Precision::kFloat);
  return all;
}

// S, and the inputs of the convolution that the next token still meets.
StateSpec State(const GatedForm& form, const ModelConfig& layer) {
  const GatedSizes s = SizesOf(form, layer);
  StateSpec state = {{.name = "S", .shape = {s.heads, s.d_feature, s.d_sum}}};
  if (s.width > 0) {
    state.push_back({.name = "window", .shape = {s.width - 1, s.channels}});
  }
  return state;
}

// A token decays S, reads it and adds to it; the delta rule reads it twice.
MixerCost Cost(const GatedForm& form, const ModelConfig& layer, int64_t n) {
  const GatedSizes s = SizesOf(FormOf(form, layer), layer);
  const int64_t entries = s.d_feature * s.d_sum;
  const int64_t decays = form.gate == DecayGate::kNone ? 0 : 1;
  const int64_t step = entries * (4 + decays + (form.delta ? 2 : 0));
  return {
      .sequence_flop = n * step, .step_flop = step, .step_bytes = 4 * entries};
}

void Check(const GatedForm& form, const ModelConfig& layer) {
  const std::string named = StrCat(" for attention '", form.name, "'");
  const int64_t key_heads = KeyOf<int64_t>(layer, "key_heads");
  if (form.grouped && key_heads > 0 && layer.n_heads % key_heads != 0) {
    throw ArgumentError(
        "key_heads",
        StrCat("0 or a divisor of n_heads = ", layer.n_heads, named),
        StrCat(key_heads));
  }
  if (form.convolution && KeyOf<int64_t>(layer, "conv_width") == 1) {
    throw ArgumentError("conv_width", "0, or from 2 to 8" + named, "1");
  }
  if (!form.skip) return;
  const double most = KeyOf<double>(layer, "most_step");
  if (most > 0.0 && most < KeyOf<double>(layer, "least_step")) {
    throw ArgumentError("most_step", "0 or at least least_step" + named,
                        StrCat(most));
  }
  if (KeyOf<bool>(layer, "mamba2_norm")) return;
  if (KeyOf<bool>(layer, "mamba2_norm_first")) {
    throw ArgumentError("mamba2_norm_first", "false without mamba2_norm",
                        "true");
  }
  if (FormOf(form, layer).output_gate != OutputGate::kSilu) {
    throw ArgumentError("gate_activation", "own or silu without mamba2_norm",
                        "another");
  }
}

// Keys that rows of this family share, each in a section that mixers of other
// families read as well.
std::vector<OwnKey> SharedKeys() {
  return {{.name = "key_heads",
           .help = "heads of keys, shared by value heads; 0: n_heads",
           .type = IntegerKey{0, kMaxHeads, 0},
           .section = "grouping"},
          {.name = "conv_width",
           .help = "tokens that a short convolution sees; 0: none",
           .type = IntegerKey{0, kMaxShortWidth, 4},
           .key = "width",
           .section = "short_convolution"},
          {.name = "gate_rank",
           .help = "rank of low-rank gates; 0: see docs/attention.md",
           .type = IntegerKey{0, kMaxWidth, 0},
           .key = "rank",
           .section = "gates"},
          {.name = "negative_eigenvalues",
           .help = "the delta rule writes with betas up to 2 instead of 1",
           .type = FlagKey{},
           .section = "delta"},
          {.name = "recurrent_in_bias",
           .help = "biases of the maps that read a row in mixers with a "
                   "decaying state and in 'mamba1'",
           .type = FlagKey{},
           .key = "in",
           .section = "recurrent_bias"},
          {.name = "recurrent_out_bias",
           .help = "bias of the output projection of these mixers",
           .type = FlagKey{},
           .key = "out",
           .section = "recurrent_bias"},
          {.name = "mamba2_norm",
           .help = "whether 'mamba2' normalises its output",
           .type = FlagKey{true},
           .key = "norm",
           .section = "mamba2"},
          {.name = "mamba2_norm_first",
           .help = "the output gate of 'mamba2' multiplies what the norm "
                   "gives, not what it reads",
           .type = FlagKey{},
           .key = "norm_first",
           .section = "mamba2"},
          {.name = "least_step",
           .help = "least step of a token in 'mamba2'",
           .type = RealKey{0.0, kMostStep, 0.0},
           .section = "mamba2"},
          {.name = "most_step",
           .help = "largest step of a token in 'mamba2'; 0: any",
           .type = RealKey{0.0, kMostStep, 0.0},
           .section = "mamba2"},
          {.name = "learned_bounds",
           .help = "the layers of 'hgrn2' learn the lower bounds of their "
                   "decay factors",
           .type = FlagKey{},
           .section = "hgrn2"},
          {.name = "gate_activation",
           .help = "what multiplies the normalised output of 'gla' and its "
                   "like; own: as docs/attention.md lists it",
           .type = WordKey{{"own", "none", "silu", "sigmoid"}},
           .section = "gated"},
          {.name = "gate_bias",
           .help = "whether the second map of the output gate of 'kda' has a "
                   "bias",
           .type = FlagKey{},
           .section = "kda"},
          {.name = "qk_map",
           .help = "feature map of queries and keys in 'norm-linear': "
                   "docs/attention.md",
           .type = WordKey{{"elu1", "identity", "relu", "hadamard", "t2r",
                            "hedgehog", "dpfp"}},
           .section = "norm_linear"},
          {.name = "unit_queries",
           .help = "'norm-linear' divides the features of a query by their sum",
           .type = FlagKey{},
           .section = "norm_linear"},
          {.name = "unit_keys",
           .help = "'norm-linear' divides the features of a key by their sum",
           .type = FlagKey{},
           .section = "norm_linear"},
          {.name = "divided_sums",
           .help = "'norm-linear' divides its sums by those of the keys before "
                   "the output norm",
           .type = FlagKey{},
           .section = "norm_linear"},
          OutputNormKey()};
}

MixerSpec Row(const GatedForm& form) {
  MixerSpec row;
  row.name = form.name;
  row.family = "gated";
  row.optional_sections = {"recurrent_bias"};
  if (form.grouped) row.sections.push_back("grouping");
  if (form.convolution) row.sections.push_back("short_convolution");
  if (form.low_rank()) row.sections.push_back("gates");
  if (form.delta) row.sections.push_back("delta");
  row.optional_sections.push_back(kOutputNormSection);
  row.optional_sections.push_back(form.skip ? "mamba2" : "gated");
  if (form.low_rank_output_gate) row.optional_sections.push_back("kda");
  if (form.mapped) row.optional_sections.push_back("norm_linear");
  row.can = {.bidirectional = false,
             .recurrent = true,
             .rotary = form.rotary,
             .without_rotary = !form.rotary};
  row.check = [&form](const ModelConfig& layer) { Check(form, layer); };
  row.weights = [&form](const ModelConfig& layer) {
    return Weights(form, layer);
  };
  row.precise = Precise(form);
  row.state = [&form](const ModelConfig& layer) { return State(form, layer); };
  row.cost = [&form](const ModelConfig& layer, int64_t n, bool) {
    return Cost(form, layer, n);
  };
  if (form.bounded()) {
    row.optional_sections.push_back("hgrn2");
    row.passed = [&form](const ModelConfig& layer) {
      const GatedSizes s = SizesOf(form, layer);
      return s.learns_bounds ? s.gates : 0;
    };
  }
  row.form = FormText(form);
  row.place = 4;
  return row;
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  std::vector<MixerSpec> rows;
  for (const GatedForm& form : GatedForms()) rows.push_back(Row(form));
  // The keys come with the first row.
  rows.front().keys = SharedKeys();
  return rows;
}

}  // namespace tarn::mixers::gated
