// Layers of Gated DeltaNet and its relatives under the names of
// flash-linear-attention: which tensors a layer has follows from its mixer.
#include <cmath>

#include "config/fields.h"
#include "config/mixer_spec.h"
#include "core/text.h"
#include "importers/flash/flash_linear.h"
#include "mixers/gated/form_features.h"

namespace tarn {
namespace {

struct FlashName {
  const char* own;
  // The first that the file has. The norm is named after the kernel that
  // computes it.
  std::vector<const char*> theirs;
};

// The names that a type gives instead of the first of the list.
struct FlashTypeName {
  const char *type, *own, *theirs;
};
constexpr FlashTypeName kTypeNames[] = {
    {"gla", "decay_down_projection.weight", "gk_proj.0.weight"},
    {"gla", "decay_up_projection.weight", "gk_proj.1.weight"},
    {"gla", "norm.weight", "g_norm_swish_gate.weight"},
    {"retnet", "norm.weight", "g_norm_swish_gate.weight"},
    {"hgrn2", "value_projection.weight", "i_proj.weight"},
    {"hgrn2", "decay_projection.weight", "f_proj.weight"},
    {"hgrn2", "norm.weight", "g_norm.weight"},
    {"linear_attn", "norm.weight", "norm.weight"}};

const std::vector<FlashName>& FlashNames() {
  static const std::vector<FlashName> names = {
      {"query_projection.weight", {"q_proj.weight"}},
      {"key_projection.weight", {"k_proj.weight"}},
      {"value_projection.weight", {"v_proj.weight", "i_proj.weight"}},
      {"gate_projection.weight", {"g_proj.weight"}},
      {"gate_down_projection.weight", {"g_proj.0.weight"}},
      {"gate_up_projection.weight", {"g_proj.1.weight"}},
      {"gate_up_projection.bias", {"g_proj.1.bias"}},
      {"decay_projection.weight", {"a_proj.weight", "f_proj.weight"}},
      {"decay_down_projection.weight", {"f_proj.0.weight", "gk_proj.0.weight"}},
      {"decay_up_projection.weight", {"f_proj.1.weight", "gk_proj.1.weight"}},
      {"decay_up_projection.bias", {"gk_proj.1.bias"}},
      {"beta_projection.weight", {"b_proj.weight"}},
      {"A_log", {"A_log"}},
      {"dt_bias", {"dt_bias"}},
      {"norm.weight",
       {"o_norm.weight", "g_norm_swish_gate.weight", "g_norm.weight"}},
      {"out_projection.weight", {"o_proj.weight"}}};
  return names;
}

std::string NameIn(PublishedTensors& from, const std::string& theirs,
                   const std::string& own) {
  for (const FlashName& name : FlashNames()) {
    if (own != name.own) continue;
    for (const char* one : name.theirs) {
      if (from.Has(theirs + one)) return theirs + one;
    }
    PublishedConfig& config = from.config();
    for (const FlashTypeName& other : kTypeNames) {
      if (own != other.own || !config.HasWord("model_type", other.type)) {
        continue;
      }
      const bool plain =
          own == "norm.weight" && !config.Flag("use_output_gate", true);
      return theirs + (plain ? "g_norm.weight" : other.theirs);
    }
    return theirs + name.theirs.front();
  }
  throw ArgumentError(own, "a tensor that the package has", "none");
}

// The rows of all heads, of which the file has each once for as many heads of
// queries as share it. rows: of all heads.
WeightPart SharedRows(PublishedTensors& from, const std::string& name,
                      int64_t heads, int64_t rows) {
  const int64_t shared = from.config().Integer("num_kv_heads", 1, heads, heads);
  const WeightPart part = from(name);
  if (shared == heads) return part;
  const int64_t width = rows / heads;
  if (part.shape().empty() || part.shape()[0] != shared * width) {
    throw FormatError(from.Where(name), StrCat(shared * width, " rows"),
                      StrCat("shape ", ShapeText(part.shape())));
  }
  std::vector<WeightPart> all;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t first = h / (heads / shared) * width;
    all.push_back(part.Rows({first, first + width}));
  }
  return WeightPart::Stacked(all);
}

// One number a head: log(1 - 2^(-5 - h)).
WeightPart RetentionDecays(int64_t heads) {
  std::vector<WeightPart> decays;
  for (int64_t h = 0; h < heads; ++h) {
    const double decay = std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
    decays.push_back(WeightPart::Filled({1}, static_cast<float>(decay)));
  }
  return WeightPart::Stacked(decays);
}

// Filters of queries, keys and values below one another.
WeightPart Filters(PublishedTensors& from, const std::string& theirs,
                   int64_t values, const std::vector<int64_t>& shape) {
  const int64_t width = shape[1], keys = (shape[0] - values) / 2;
  const auto filter = [&](const char* name, int64_t rows) {
    return from.Reshaped(theirs + name, {rows, width}, {rows, 1, width});
  };
  return WeightPart::Stacked({filter("q_conv1d.weight", keys),
                              filter("k_conv1d.weight", keys),
                              filter("v_conv1d.weight", values)});
}

// A map of the features of queries or keys; empty: another tensor. Those of
// keys may be in the file under the name of the queries', which share them.
std::string FeatureName(const ModelConfig& view, const std::string& own,
                        const std::string& theirs, PublishedTensors& from) {
  const bool factor = own.find("_factor_projection.") != own.npos;
  if (!factor && own.find("_map_projection.") == own.npos) return "";
  const char* number = factor                                ? "2"
                       : FeaturesOf(true, view).has_factor() ? "1"
                                                             : "";
  const auto name = [&](const char* side) {
    return StrCat(theirs, "feature_map_", side, ".layer", number,
                  own.substr(own.rfind('.')));
  };
  const bool shared = from.config().Flag("tie_feature_map_qk", false);
  const bool keys = own.starts_with("key_");
  return keys && !(shared && !from.Has(name("k"))) ? name("k") : name("q");
}

WeightPart FlashPart(const ModelConfig& view, const NamedShape& wanted,
                     const std::string& theirs, PublishedTensors& from) {
  const auto& [own, shape] = wanted;
  const int64_t heads = view.n_heads;
  PublishedConfig& config = from.config();
  if (own == "convolution.weight") {
    return Filters(from, theirs, heads * view.d_value, shape);
  }
  if (own == "log_decay") return RetentionDecays(heads);
  if (own == "lower_bound") return WeightPart::Filled(shape, 0.0f);
  if (own == "bound_logits") return from("model.lower_bounds");
  if (own == "norm.weight" && !config.Flag("elementwise_affine", true)) {
    return WeightPart::Filled(shape, 1.0f);
  }
  if (own == "beta_projection.weight" && !config.Flag("use_beta", true)) {
    return WeightPart::Filled(shape, 0.0f);
  }
  const std::string feature = FeatureName(view, own, theirs, from);
  if (!feature.empty()) return from(feature);
  const std::string name = NameIn(from, theirs, own);
  if (own == "key_projection.weight" || own == "value_projection.weight" ||
      own.starts_with("decay_up_projection")) {
    return SharedRows(from, name, heads, shape[0]);
  }
  return from(name);
}

void AddFlashGated(const ModelConfig& view, const std::string& own,
                   const std::string& theirs, PublishedTensors& from,
                   ImportedTensors& to) {
  for (const NamedShape& wanted : Spec(view.attention).weights(view)) {
    to.Add(own + wanted.first, FlashPart(view, wanted, theirs, from));
  }
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

std::string FlashGateOf(const ModelConfig& view) {
  const std::string text = ValueText(*FindField("gate_activation"), view);
  return text.substr(1, text.size() - 2);  // without its quotes
}

void PublishFlashHeads(const ModelConfig& view, PublishedKeys& to) {
  const auto factor = [&](int64_t width) {
    return static_cast<double>(view.n_heads * width) /
           static_cast<double>(view.d_model);
  };
  to["num_heads"] = view.n_heads;
  to["expand_k"] = factor(view.d_key);
  to["expand_v"] = factor(view.d_value);
}

void FlashGatedTensors(const ModelConfig& config, PublishedTensors& from,
                       ImportedTensors& to) {
  AddFlashStack(config, AddFlashGated, from, to);
}

}  // namespace tarn
