// OLMo Hybrid: Gated DeltaNet with norms before its layers' parts, and softmax
// attention with norms after them.
#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostDelta = int64_t{1} << 24;
constexpr double kDeltaNormEps = 1e-5;  // not the file's

void ReadOlmoMixers(PublishedConfig& from, ModelConfig& config) {
  ReadHybridLayers(from, config, "gdn", [&config](int64_t i) {
    return i % 4 == 3 || (config.n_layers < 4 && i == config.n_layers - 1);
  });
  const int64_t key_heads =
      from.Integer("linear_num_key_heads", 1, kMostDelta, config.n_heads);
  const int64_t heads =
      from.Integer("linear_num_value_heads", 1, kMostDelta, config.n_heads);
  const int64_t d_key = from.Integer("linear_key_head_dim", 1, kMostDelta,
                                     3 * config.d_model / (4 * key_heads));
  const int64_t d_value =
      from.Integer("linear_value_head_dim", 1, kMostDelta, 2 * d_key);
  const int64_t shared =
      from.Integer("num_key_value_heads", 1, kMostDelta, config.n_heads);
  for (LayerConfig& layer : config.layers) {
    if (layer.attention == MixerKind("full")) {
      layer.options = {{"key_heads", StrCat(shared)}, {"norm", "after"}};
    } else {
      layer.options = {{"n_heads", StrCat(heads)},
                       {"key_heads", StrCat(key_heads)},
                       {"d_key", StrCat(d_key)},
                       {"d_value", StrCat(d_value)}};
    }
  }
  SetKey(config, "conv_width", from.Integer("linear_conv_kernel_dim", 2, 8, 4));
  SetKey(config, "negative_eigenvalues",
         from.Flag("linear_allow_neg_eigval", true));
  SetKey(config, "output_norm_eps", kDeltaNormEps);
}

ModelConfig ReadOlmoHybrid(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostDelta);
  config.d_model = from.Integer("hidden_size", 1, kMostDelta);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostDelta);
  config.d_key = config.d_value =
      from.Integer("head_dim", 1, kMostDelta, config.d_model / config.n_heads);
  config.d_ff = from.Integer("intermediate_size", 1, kMostDelta);
  config.feed_forward = FeedForwardOf("swiglu");
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-6);
  config.final_norm = true;
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  config.own.insert_or_assign("head_norm", int64_t{2});  // of all heads
  // The published models rotate nothing, and say so by a null; where the file
  // does not say, the class rotates.
  const PublishedConfig rope = from.Section("rope_parameters");
  config.positions = Positions::kNone;
  if (rope.Has("rope_theta") || !rope.Holds("rope_theta")) {
    ReadRotary(from, config, {.positions = 65536});
  } else {
    from.Ignore({"rope_theta"});
  }
  from.Ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min",
               "linear_dt_max", "linear_dt_init_floor"});
  ReadOlmoMixers(from, config);
  return config;
}

void PublishOlmoHybrid(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig delta = FirstView(config, "gdn");
  PublishSoftmaxStack(config, to);
  PublishLayerWords(config, "layer_types",
                    {{"gdn", "linear_attention"}, {"full", "full_attention"}},
                    to);
  to["linear_num_value_heads"] = delta.n_heads;
  to["linear_num_key_heads"] = KeyHeadsOf(delta);
  to["linear_key_head_dim"] = delta.d_key;
  to["linear_value_head_dim"] = delta.d_value;
  to["linear_conv_kernel_dim"] = KeyOf<int64_t>(delta, "conv_width");
  to["linear_allow_neg_eigval"] = KeyOf<bool>(delta, "negative_eigenvalues");
  to["rope_parameters"] = nullptr;
  if (config.positions == Positions::kRotary) PublishRotary(config, to);
}

void AddOlmoDelta(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  to.AddLinear(from, own + "query_projection", theirs + "q_proj");
  to.AddLinear(from, own + "key_projection", theirs + "k_proj");
  to.AddLinear(from, own + "value_projection", theirs + "v_proj");
  to.AddLinear(from, own + "gate_projection", theirs + "g_proj");
  to.AddLinear(from, own + "decay_projection", theirs + "a_proj");
  to.AddLinear(from, own + "beta_projection", theirs + "b_proj");
  to.Add(own + "convolution.weight", KernelsOf(view, theirs, from));
  to.Add(own + "A_log", from(theirs + "A_log"));
  to.Add(own + "dt_bias", from(theirs + "dt_bias"));
  to.AddLinear(from, own + "norm", theirs + "o_norm");
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
}

// Norms have a name in the published files and another one in transformers,
// which gives those of softmax layers both names in turn.
void AddOlmoNorm(const std::string& own, const std::string& theirs,
                 const std::string& other, PublishedTensors& from,
                 ImportedTensors& to) {
  to.AddLinear(from, own, from.Has(other + ".weight") ? other : theirs);
}

// Mixers, and the norms of their layers.
void AddOlmoMixer(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  if (view.attention == MixerKind("full")) {
    AddSoftmax(view, own + "attention.", theirs + "self_attn.", from, to);
    AddOlmoNorm(own + "norm1", theirs + "post_attention_layernorm",
                theirs + "feedforward_layer_norm", from, to);
    to.AddLinear(from, own + "norm2", theirs + "post_feedforward_layernorm");
    return;
  }
  AddOlmoDelta(view, own + "attention.", theirs + "linear_attn.", from, to);
  AddOlmoNorm(own + "norm1", theirs + "attention_layer_norm",
              theirs + "input_layernorm", from, to);
  AddOlmoNorm(own + "norm2", theirs + "feedforward_layer_norm",
              theirs + "post_attention_layernorm", from, to);
}

void OlmoHybridTensors(const ModelConfig& config, PublishedTensors& from,
                       ImportedTensors& to) {
  from.Skip("mtp.");
  AddSoftmaxStack(config, {.norms = {}, .mixer = AddOlmoMixer}, from, to);
}

}  // namespace

WeightPart KernelsOf(const ModelConfig& view, const std::string& theirs,
                     PublishedTensors& from) {
  const int64_t groups = KeyOf<int64_t>(view, "key_heads");
  const int64_t keys = (groups > 0 ? groups : view.n_heads) * view.d_key;
  const int64_t values = view.n_heads * view.d_value;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  const int64_t all = 2 * keys + values;
  if (from.Has(theirs + "conv1d.weight")) {
    return from(theirs + "conv1d.weight", {all, 1, width})
        .Reshaped({all, width});
  }
  std::vector<WeightPart> parts;
  int64_t rows = 0;
  for (const auto& [name, wanted] : {std::pair{"q_conv1d", keys},
                                     {"k_conv1d", keys},
                                     {"v_conv1d", values}}) {
    const std::string whole = StrCat(theirs, name, ".weight");
    const WeightPart part = from.Named(whole, {wanted, 1, width});
    const int64_t own = part.shape().empty() ? 0 : part.shape()[0];
    parts.push_back(from(whole, {own, 1, width}));
    rows += own;
  }
  if (rows != all) {
    throw FormatError(from.Where(theirs + "q_conv1d.weight"),
                      StrCat(all, " rows of it, k_conv1d and v_conv1d"),
                      StrCat(rows));
  }
  return WeightPart::Stacked(parts).Reshaped({all, width});
}

std::vector<Importer> DeltaImporters() {
  return {{"olmo_hybrid", ReadOlmoHybrid, OlmoHybridTensors,
           "OlmoHybridForCausalLM", PublishOlmoHybrid}};
}

}  // namespace tarn
