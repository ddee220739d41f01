// Layers of mixers/gated/form.h under the names of flash-linear-attention.
#include <cmath>

#include "core/text.h"
#include "importers/flash_linear.h"
#include "mixers/gated/form.h"

namespace tarn {
namespace {

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
  if (form.bounded()) {
    to.AddLinear(from, own + "decay_projection", theirs + "f_proj");
    to.AddLinear(from, own + "value_projection", theirs + "i_proj");
  } else if (form.grouped) {
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
  if (form.bounded() && !s.learns_bounds) {
    to.Add(own + "lower_bound", WeightPart::Filled({s.gates}, 0.0f));
  } else if (form.bounded() && !s.reads_bounds) {
    to.Add(own + "bound_logits", from("model.lower_bounds"));
  }
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

}  // namespace

ModelConfig ReadFlashGated(PublishedConfig& from, const char* mixer,
                           double ratio) {
  ModelConfig config = ReadFlashStack(from, NormKind::kRms, 1e-6);
  config.attention = MixerKind(mixer);
  ReadFlashUnit(from, ratio, config);
  return config;
}

void SetFlashGate(ModelConfig& config, const char* activation) {
  SetConfigField(config, "gate_activation", activation);
}

void FlashGatedTensors(const ModelConfig& config, PublishedTensors& from,
                       ImportedTensors& to) {
  AddFlashStack(config, AddFlashGated, from, to);
}

}  // namespace tarn
