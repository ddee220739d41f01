#include "mixers/gated/spec.h"

#include <algorithm>
#include <string_view>

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
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
  std::vector<NamedShape> shapes = {{"query_projection.weight", {s.keys, d}}};
  const auto add = [&](bool has, const char* name, std::vector<int64_t> shape) {
    if (has) shapes.push_back({name, std::move(shape)});
  };
  const bool gated = form.output_gate != OutputGate::kNone;
  add(!form.bounded(), "key_projection.weight", {s.keys, d});
  add(true, "value_projection.weight", {s.values, d});
  add(gated && !form.low_rank_output_gate, "gate_projection.weight",
      {s.values, d});
  add(form.low_rank_output_gate, "gate_down_projection.weight", {s.rank, d});
  add(form.low_rank_output_gate, "gate_up_projection.weight",
      {s.values, s.rank});
  add(form.output_gate_bias, "gate_up_projection.bias", {s.values});
  add(form.projected() && !form.low_rank(), "decay_projection.weight",
      {s.gates, d});
  add(form.low_rank(), "decay_down_projection.weight", {s.rank, d});
  add(form.low_rank(), "decay_up_projection.weight", {s.gates, s.rank});
  add(form.gate == DecayGate::kLogSigmoid, "decay_up_projection.bias",
      {s.gates});
  add(form.delta, "beta_projection.weight", {s.heads, d});
  add(form.constant(), "log_decay", {s.heads});
  add(form.bounded() && !s.learns_bounds, "lower_bound", {s.gates});
  add(s.learns_bounds && !s.reads_bounds, "bound_logits", {s.depth, s.gates});
  add(form.softplus(), "A_log", {s.heads});
  add(form.softplus(), "dt_bias", {s.gates});
  add(form.skip, "D", {s.heads});
  add(s.width > 0, "convolution.weight", {s.channels, s.width});
  add(s.width > 0 && form.convolution_bias, "convolution.bias", {s.channels});
  add(form.norm, "norm.weight", {s.shared_norm ? s.norm_width : s.values});
  add(true, "out_projection.weight", {d, s.values});
  return shapes;
}

// S, and the inputs of the convolution that the next token still meets.
StateSpec State(const GatedForm& form, const ModelConfig& layer) {
  const GatedSizes s = SizesOf(form, layer);
  StateSpec state = {{.name = "S", .shape = {s.heads, s.d_key, s.d_value}}};
  if (s.width > 0) {
    state.push_back({.name = "window", .shape = {s.width - 1, s.channels}});
  }
  return state;
}

// A token decays S, reads it and adds to it; the delta rule reads it twice.
MixerCost Cost(const GatedForm& form, const ModelConfig& layer, int64_t n) {
  const int64_t entries = layer.d_key * layer.d_value;
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
  if (!KeyOf<bool>(layer, "mamba2_norm") &&
      KeyOf<bool>(layer, "mamba2_norm_first")) {
    throw ArgumentError("mamba2_norm_first", "false without mamba2_norm",
                        "true");
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
          {.name = "learned_bounds",
           .help = "the layers of 'hgrn2' learn the lower bounds of their "
                   "decay factors",
           .type = FlagKey{},
           .section = "hgrn2"},
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
          {.name = "output_norm_eps",
           .help = "eps of the output norm of recurrent mixers; 0: norm_eps",
           .type = RealKey{0.0, 1.0, 0.0},
           .key = "eps",
           .section = "output_norm"}};
}

MixerSpec Row(const GatedForm& form) {
  MixerSpec row;
  row.name = form.name;
  row.family = "gated";
  if (form.grouped) row.sections.push_back("grouping");
  if (form.convolution) row.sections.push_back("short_convolution");
  if (form.low_rank()) row.sections.push_back("gates");
  if (form.delta) row.sections.push_back("delta");
  row.optional_sections = {"output_norm"};
  row.optional_sections.push_back(form.skip ? "mamba2" : "gated");
  if (form.low_rank_output_gate) row.optional_sections.push_back("kda");
  row.can = {.bidirectional = false,
             .recurrent = true,
             .rotary = form.rotary,
             .without_rotary = !form.rotary};
  row.check = [&form](const ModelConfig& layer) { Check(form, layer); };
  row.weights = [&form](const ModelConfig& layer) {
    return Weights(form, layer);
  };
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
