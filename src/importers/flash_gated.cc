// Gated DeltaNet, DeltaNet, GLA, RetNet and KDA as flash-linear-attention has
// them: layers of mixers/gated/form.h under other names.
#include <cmath>

#include "core/text.h"
#include "importers/flash_linear.h"
#include "mixers/gated/form.h"

namespace tarn {
namespace {

ModelConfig ReadFlashGated(PublishedConfig& from, const char* mixer,
                           double hidden_ratio) {
  ModelConfig config = ReadFlashStack(from, NormKind::kRms, 1e-6);
  config.attention = MixerKind(mixer);
  ReadFlashUnit(from, hidden_ratio, config);
  return config;
}

// Heads by their own width, values in more heads than keys.
void ReadWidths(PublishedConfig& from, int64_t heads, int64_t width,
                double expand, ModelConfig& config) {
  const int64_t key_heads = from.Integer("num_heads", 1, kMostFlash, heads);
  config.n_heads = from.Integer("num_v_heads", 1, kMostFlash, key_heads);
  SetKey(config, "key_heads", key_heads == config.n_heads ? 0 : key_heads);
  config.d_key = from.Integer("head_dim", 1, kMostFlash, width);
  const double factor = from.Real("expand_v", expand);
  const double values = static_cast<double>(config.d_key) * factor;
  const double rounded = std::floor(values);
  if (!(rounded >= 1 && rounded <= static_cast<double>(kMostFlash)) ||
      values - rounded > 1e-5 * values) {
    from.Refuse("expand_v", "a factor that makes head_dim an integer",
                StrCat(factor));
  }
  config.d_value = static_cast<int64_t>(rounded);
}

// Without it silu alone follows the projections.
void ReadConvolution(PublishedConfig& from, ModelConfig& config) {
  const bool convolved = from.Flag("use_short_conv", true);
  const int64_t width = from.Integer("conv_size", convolved ? 2 : 1, 8, 4);
  SetKey(config, "conv_width", convolved ? width : 0);
}

void SetGate(ModelConfig& config, const char* activation) {
  SetConfigField(config, "gate_activation", activation);
}

ModelConfig ReadGatedDeltaNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "gdn", 4);
  ReadWidths(from, 6, 256, 2.0, config);
  ReadConvolution(from, config);
  SetKey(config, "negative_eigenvalues", from.Flag("allow_neg_eigval", false));
  const std::string gate = from.Word("output_gate_activation", "swish");
  if (gate != "swish" && gate != "silu" && gate != "sigmoid") {
    from.Refuse("output_gate_activation", "'swish', 'silu' or 'sigmoid'",
                Quoted(gate));
  }
  if (gate == "sigmoid") SetGate(config, "sigmoid");
  if (!from.Flag("use_gate", true)) SetGate(config, "none");
  ReadFlashSoftmax(from, config);
  return config;
}

ModelConfig ReadKda(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "kda", 4);
  ReadWidths(from, 16, 128, 1.0, config);
  ReadConvolution(from, config);
  SetKey(config, "negative_eigenvalues", from.Flag("allow_neg_eigval", false));
  SetKey(config, "gate_bias", true);
  // Decays of another form.
  from.Want("safe_gate", false);
  from.WantNull("lower_bound");
  ReadFlashSoftmax(from, config);
  return config;
}

ModelConfig ReadDeltaNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "deltanet", 4);
  config.n_heads = from.Integer("num_heads", 1, kMostFlash, 16);
  config.d_key = FlashHeadWidth(from, "expand_k", 1.0, config);
  config.d_value = FlashHeadWidth(from, "expand_v", 1.0, config);
  ReadConvolution(from, config);
  from.Want("qk_norm", "l2");
  from.Want("qk_activation", "silu");
  if (from.Flag("use_gate", false)) SetGate(config, "silu");
  // Betas that are not projected are 1: 2 sigma of products that are 0.
  const bool projected = from.Flag("use_beta", true);
  const bool doubled = from.Flag("allow_neg_eigval", false);
  if (!projected && doubled) {
    from.Refuse("allow_neg_eigval", "false where use_beta is false", "true");
  }
  SetKey(config, "negative_eigenvalues", doubled || !projected);
  from.Ignore({"use_output_norm"});  // the layer does not read it
  ReadFlashSoftmax(from, config);
  return config;
}

// Of GLA and RetNet: heads of queries that share keys and values.
void ReadSharedHeads(PublishedConfig& from, int64_t heads, double expand_k,
                     double expand_v, ModelConfig& config) {
  config.n_heads = from.Integer("num_heads", 1, kMostFlash, heads);
  const int64_t shared =
      from.Integer("num_kv_heads", 1, kMostFlash, config.n_heads);
  if (config.n_heads % shared != 0) {
    from.Refuse("num_kv_heads", StrCat("a divisor of ", config.n_heads),
                StrCat(shared));
  }
  config.d_key = FlashHeadWidth(from, "expand_k", expand_k, config);
  config.d_value = FlashHeadWidth(from, "expand_v", expand_v, config);
  from.WantNull("feature_map");
  if (!from.Flag("use_output_gate", true)) SetGate(config, "none");
  from.Flag("elementwise_affine", true);
}

ModelConfig ReadGla(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "gla", 4);
  ReadSharedHeads(from, 4, 0.5, 1.0, config);
  from.Want("use_short_conv", false);
  from.WantNull("clamp_min");
  // Of a convolution that is not there; the layer does not read the others.
  from.Ignore({"conv_size", "use_gk", "use_gv"});
  ReadFlashSoftmax(from, config);
  return config;
}

ModelConfig ReadRetNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "retnet", 2);
  ReadSharedHeads(from, 8, 1.0, 2.0, config);
  config.positions = Positions::kRotary;
  config.rotary_base = 10000.0;
  from.Ignore({"use_short_conv", "conv_size"});  // the model does not read them
  ReadFlashSoftmax(from, config);
  return config;
}

// The rows of all heads, of which the file has each once for as many heads of
// queries as share it. width: rows of a head.
class SharedRows {
 public:
  SharedRows(PublishedTensors& from, int64_t heads)
      : from_(from),
        shared_(from.config().Integer("num_kv_heads", 1, heads, heads)),
        times_(heads / shared_) {}

  WeightPart operator()(const std::string& name, int64_t width) const {
    const WeightPart part = from_(name);
    if (part.shape().empty() || part.shape()[0] != shared_ * width) {
      throw FormatError(from_.Where(name), StrCat(shared_ * width, " rows"),
                        StrCat("shape ", ShapeText(part.shape())));
    }
    if (times_ == 1) return part;
    std::vector<WeightPart> heads;
    for (int64_t h = 0; h < shared_; ++h) {
      heads.insert(heads.end(), static_cast<size_t>(times_),
                   part.Rows({h * width, (h + 1) * width}));
    }
    return WeightPart::Stacked(heads);
  }

 private:
  PublishedTensors& from_;
  const int64_t shared_, times_;
};

// One number a head: log(1 - 2^(-5 - h)).
WeightPart RetentionDecays(int64_t heads) {
  std::vector<WeightPart> decays;
  for (int64_t h = 0; h < heads; ++h) {
    const double decay = std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
    decays.push_back(WeightPart::Filled({1}, static_cast<float>(decay)));
  }
  return WeightPart::Stacked(decays);
}

void AddOutputNorm(const GatedSizes& s, const std::string& own,
                   const std::string& theirs, PublishedTensors& from,
                   ImportedTensors& to) {
  if (!from.config().Flag("elementwise_affine", true)) {
    to.Add(own + "norm.weight", WeightPart::Filled({s.norm_width}, 1.0f));
    return;
  }
  // GLA and RetNet name the norm after the kernel that computes it.
  std::string name = theirs + "o_norm";
  for (const char* other : {"g_norm_swish_gate", "g_norm"}) {
    if (from.Has(theirs + other + ".weight")) name = theirs + other;
  }
  to.AddLinear(from, own + "norm", name);
}

void AddProjections(const GatedForm& form, const GatedSizes& s,
                    const std::string& own, const std::string& theirs,
                    PublishedTensors& from, ImportedTensors& to) {
  to.AddLinear(from, own + "query_projection", theirs + "q_proj");
  if (form.grouped) {
    to.AddLinear(from, own + "key_projection", theirs + "k_proj");
    to.AddLinear(from, own + "value_projection", theirs + "v_proj");
  } else {
    const SharedRows shared(from, s.heads);
    to.Add(own + "key_projection.weight",
           shared(theirs + "k_proj.weight", s.d_key));
    to.Add(own + "value_projection.weight",
           shared(theirs + "v_proj.weight", s.d_value));
  }
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
  if (form.low_rank_output_gate) {
    to.AddLinear(from, own + "gate_down_projection", theirs + "g_proj.0");
    to.AddLinear(from, own + "gate_up_projection", theirs + "g_proj.1",
                 form.output_gate_bias);
  } else if (form.output_gate != OutputGate::kNone) {
    to.AddLinear(from, own + "gate_projection", theirs + "g_proj");
  }
  if (form.gate == DecayGate::kHead) {
    to.AddLinear(from, own + "decay_projection", theirs + "a_proj");
  } else if (form.gate == DecayGate::kChannel) {
    to.AddLinear(from, own + "decay_down_projection", theirs + "f_proj.0");
    to.AddLinear(from, own + "decay_up_projection", theirs + "f_proj.1");
  } else if (form.gate == DecayGate::kLogSigmoid) {
    to.AddLinear(from, own + "decay_down_projection", theirs + "gk_proj.0");
    const SharedRows shared(from, s.heads);
    for (const char* part : {".weight", ".bias"}) {
      to.Add(StrCat(own, "decay_up_projection", part),
             shared(StrCat(theirs, "gk_proj.1", part), s.d_key));
    }
  }
}

void AddFlashGated(const ModelConfig& view, const std::string& own,
                   const std::string& theirs, PublishedTensors& from,
                   ImportedTensors& to) {
  const GatedForm form = FormOf(*FindGatedForm(Name(view.attention)), view);
  const GatedSizes s = SizesOf(form, view);
  AddProjections(form, s, own, theirs, from, to);
  AddOutputNorm(s, own, theirs, from, to);
  if (form.constant()) to.Add(own + "log_decay", RetentionDecays(s.heads));
  if (form.softplus()) {
    for (const char* name : {"A_log", "dt_bias"}) {
      to.Add(own + name, from(theirs + name));
    }
  }
  if (form.delta && from.config().Flag("use_beta", true)) {
    to.AddLinear(from, own + "beta_projection", theirs + "b_proj");
  } else if (form.delta) {
    to.Add(own + "beta_projection.weight",
           WeightPart::Filled({s.heads, s.d_model}, 0.0f));
  }
  if (s.width == 0) return;
  const auto filters = [&](const char* name, int64_t channels) {
    return from.Reshaped(theirs + name, {channels, s.width});
  };
  to.Add(own + "convolution.weight",
         WeightPart::Stacked({filters("q_conv1d.weight", s.keys),
                              filters("k_conv1d.weight", s.keys),
                              filters("v_conv1d.weight", s.values)}));
}

void FlashGatedTensors(const ModelConfig& config, PublishedTensors& from,
                       ImportedTensors& to) {
  AddFlashStack(config, AddFlashGated, from, to);
}

}  // namespace

std::vector<Importer> FlashGatedImporters() {
  return {{"gated_deltanet", ReadGatedDeltaNet, FlashGatedTensors},
          {"delta_net", ReadDeltaNet, FlashGatedTensors},
          {"gla", ReadGla, FlashGatedTensors},
          {"retnet", ReadRetNet, FlashGatedTensors},
          {"kda", ReadKda, FlashGatedTensors}};
}

}  // namespace tarn
