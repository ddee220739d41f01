// Qwen3-Next, Qwen3.5 and their mixtures of experts: three layers of Gated
// DeltaNet to one of softmax attention with an output gate, and norms whose
// weights are stored less 1. Qwen3.5 also reads pictures; here it is its text
// model.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostQwen = int64_t{1} << 24;

std::vector<std::pair<std::string, std::string>> DeltaOptions(
    PublishedConfig& from) {
  const auto size = [&](const char* key, int64_t value) {
    return StrCat(from.Integer(key, 1, kMostQwen, value));
  };
  return {{"n_heads", size("linear_num_value_heads", 32)},
          {"key_heads", size("linear_num_key_heads", 16)},
          {"d_key", size("linear_key_head_dim", 128)},
          {"d_value", size("linear_value_head_dim", 128)}};
}

// The mixer of each layer: the list of types, or full attention in each
// `full_attention_interval`-th.
void ReadQwenMixers(PublishedConfig& from, ModelConfig& config) {
  const int64_t interval =
      from.Integer("full_attention_interval", 1, kMostQwen, 4);
  ReadHybridLayers(from, config, "gdn",
                   [interval](int64_t i) { return (i + 1) % interval == 0; });
  const auto delta = DeltaOptions(from);
  const std::string key_heads =
      StrCat(from.Integer("num_key_value_heads", 1, kMostQwen, config.n_heads));
  for (LayerConfig& layer : config.layers) {
    if (layer.attention == MixerKind("gdn")) {
      layer.options = delta;
    } else {
      layer.options = {{"key_heads", key_heads}};
    }
  }
  SetKey(config, "conv_width", from.Integer("linear_conv_kernel_dim", 2, 8, 4));
}

ModelConfig ReadQwenStack(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostQwen);
  config.d_model = from.Integer("hidden_size", 1, kMostQwen);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostQwen);
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMostQwen, 256);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-6);
  config.norm_offset = 1.0;
  config.final_norm = true;
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  ReadMtpKeys(from);
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  SetKey(config, "head_gate", true);
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  ReadRotary(from, config, {.positions = 32768, .part = 0.25});
  ReadQwenMixers(from, config);
  return config;
}

// Experts in all layers but those that `dense` tells apart.
template <typename F>
void ReadQwenExperts(PublishedConfig& from, ModelConfig& config,
                     const F& dense) {
  config.feed_forward = FeedForwardOf("moe");
  SetKey(config, "experts_per_token",
         from.Integer("num_experts_per_tok", 1, 256, 8));
  SetKey(config, "d_expert",
         from.Integer("moe_intermediate_size", 1, kMostQwen, 512));
  SetKey(config, "d_shared",
         from.Integer("shared_expert_intermediate_size", 1, kMostQwen, 512));
  SetKey(config, "shared_gate", true);
  from.Ignore({"output_router_logits", "router_aux_loss_coef"});
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (!dense(i)) continue;
    config.layers[static_cast<size_t>(i)].options.push_back(
        {"feed_forward", "swiglu"});
  }
}

ModelConfig ReadQwenNext(PublishedConfig& from) {
  ModelConfig config = ReadQwenStack(from);
  config.d_ff = from.Integer("intermediate_size", 1, kMostQwen, 5632);
  const int64_t experts = from.Integer("num_experts", 0, 4096, 512);
  if (experts == 0) {
    config.feed_forward = FeedForwardOf("swiglu");
    from.Ignore({"decoder_sparse_step", "mlp_only_layers", "norm_topk_prob",
                 "num_experts_per_tok", "moe_intermediate_size",
                 "shared_expert_intermediate_size", "output_router_logits",
                 "router_aux_loss_coef"});
    return config;
  }
  const int64_t step = from.Integer("decoder_sparse_step", 1, kMostQwen, 1);
  const std::vector<int64_t> plain =
      from.Integers("mlp_only_layers", 0, config.n_layers - 1);
  SetKey(config, "experts", experts);
  SetKey(config, "router_normalize", from.Flag("norm_topk_prob", true));
  ReadQwenExperts(from, config, [&](int64_t i) {
    return (i + 1) % step != 0 ||
           std::find(plain.begin(), plain.end(), i) != plain.end();
  });
  return config;
}

// The keys of Qwen3-Next that this type ignores are not read.
ModelConfig ReadQwen35Stack(PublishedConfig& from) {
  from.Want("attn_output_gate", true);
  from.Ignore({"mamba_ssm_dtype", "mlp_only_layers"});
  return ReadQwenStack(from);
}

ModelConfig ReadQwen35Text(PublishedConfig& from) {
  ModelConfig config = ReadQwen35Stack(from);
  config.d_ff = from.Integer("intermediate_size", 1, kMostQwen, 12288);
  config.feed_forward = FeedForwardOf("swiglu");
  return config;
}

ModelConfig ReadQwen35MoeText(PublishedConfig& from) {
  ModelConfig config = ReadQwen35Stack(from);
  SetKey(config, "experts", from.Integer("num_experts", 1, 4096, 256));
  from.Ignore({"intermediate_size"});  // of no layer
  ReadQwenExperts(from, config, [](int64_t) { return false; });
  return config;
}

void PublishQwenStack(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig delta = FirstView(config, "gdn");
  PublishSoftmaxStack(config, to);
  PublishPartialRotary(FirstView(config, "full"), to);
  PublishLayerWords(config, "layer_types",
                    {{"gdn", "linear_attention"}, {"full", "full_attention"}},
                    to);
  to["linear_num_value_heads"] = delta.n_heads;
  to["linear_num_key_heads"] = KeyHeadsOf(delta);
  to["linear_key_head_dim"] = delta.d_key;
  to["linear_value_head_dim"] = delta.d_value;
  to["linear_conv_kernel_dim"] = KeyOf<int64_t>(delta, "conv_width");
}

void PublishQwenExperts(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  PublishChoice(mixed, to);
  to["num_experts"] = KeyOf<int64_t>(mixed, "experts");
  to["shared_expert_intermediate_size"] = KeyOf<int64_t>(mixed, "d_shared");
}

void PublishQwenNext(const ModelConfig& config, PublishedKeys& to) {
  PublishQwenStack(config, to);
  to["decoder_sparse_step"] = 1;
  to["mlp_only_layers"] = PublishedKeys::array();
  PublishedKeys& plain = to["mlp_only_layers"];
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (!HasPart(config, i, "moe")) plain.push_back(i);
  }
  if (static_cast<int64_t>(plain.size()) < config.n_layers) {
    PublishQwenExperts(config, to);
  } else {
    to["num_experts"] = to["num_experts_per_tok"] = 0;
  }
}

void PublishQwen35Text(const ModelConfig& config, PublishedKeys& to) {
  PublishQwenStack(config, to);
  to["attn_output_gate"] = true;
}

void PublishQwen35MoeText(const ModelConfig& config, PublishedKeys& to) {
  PublishQwen35Text(config, to);
  to.erase("intermediate_size");
  PublishQwenExperts(config, to);
  to.erase("norm_topk_prob");  // always, in this type
}

// The text model of one that also reads pictures.
template <ModelConfig (*Read)(PublishedConfig&)>
ModelConfig ReadTextOf(PublishedConfig& from) {
  PublishedConfig text = from.TextSection();
  const ModelConfig config = Read(text);
  text.RequireAllRead();
  from.Ignore({"vision_config", "image_token_id", "video_token_id",
               "vision_start_token_id", "vision_end_token_id"});
  return config;
}

// The gates of softmax attention follow each head's queries.
void AddQwenSoftmax(const ModelConfig& view, const std::string& own,
                    const std::string& theirs, PublishedTensors& from,
                    ImportedTensors& to) {
  const bool biases = KeyOf<bool>(view, "qkv_bias");
  const int64_t width = view.d_key;
  for (const char* kind : {".weight", ".bias"}) {
    if (kind[1] == 'b' && !biases) break;
    const GroupedRows both(from, StrCat(theirs, "q_proj", kind), view.n_heads,
                           {width, width}, kind[1] == 'b' ? 0 : view.d_model);
    to.Add(StrCat(own, "query_projection", kind), both[0]);
    to.Add(StrCat(own, "gate_projection", kind), both[1]);
  }
  to.AddLinear(from, own + "key_projection", theirs + "k_proj", biases);
  to.AddLinear(from, own + "value_projection", theirs + "v_proj", biases);
  to.AddLinear(from, own + "out_projection", theirs + "o_proj",
               KeyOf<bool>(view, "out_bias"));
  to.Add(own + "query_norm.weight", from(theirs + "q_norm.weight").Shifted(1));
  to.Add(own + "key_norm.weight", from(theirs + "k_norm.weight").Shifted(1));
}

// Qwen3-Next stores the rows of its products by heads of keys, Qwen3.5 one part
// below the other.
void AddQwenDelta(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  const int64_t groups = KeyOf<int64_t>(view, "key_heads");
  const int64_t key_heads = groups > 0 ? groups : view.n_heads;
  const int64_t each = view.n_heads / key_heads;
  const int64_t keys = key_heads * view.d_key;
  const int64_t values = view.n_heads * view.d_value;
  const bool packed = from.config().HasWord("model_type", "qwen3_next");
  const int64_t parts = packed ? key_heads : 1;
  std::vector<int64_t> heights = {keys / parts, keys / parts, values / parts};
  if (packed) heights.push_back(values / parts);
  const GroupedRows first(
      from, theirs + (packed ? "in_proj_qkvz.weight" : "in_proj_qkv.weight"),
      parts, heights, view.d_model);
  to.Add(own + "query_projection.weight", first[0]);
  to.Add(own + "key_projection.weight", first[1]);
  to.Add(own + "value_projection.weight", first[2]);
  if (packed) {
    to.Add(own + "gate_projection.weight", first[3]);
    const GroupedRows gates(from, theirs + "in_proj_ba.weight", key_heads,
                            {each, each}, view.d_model);
    to.Add(own + "beta_projection.weight", gates[0]);
    to.Add(own + "decay_projection.weight", gates[1]);
  } else {
    to.AddLinear(from, own + "gate_projection", theirs + "in_proj_z");
    to.AddLinear(from, own + "beta_projection", theirs + "in_proj_b");
    to.AddLinear(from, own + "decay_projection", theirs + "in_proj_a");
  }
  const int64_t channels = 2 * keys + values;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  to.Add(own + "convolution.weight",
         from(theirs + "conv1d.weight", {channels, 1, width})
             .Reshaped({channels, width}));
  to.Add(own + "A_log", from(theirs + "A_log"));
  to.Add(own + "dt_bias", from(theirs + "dt_bias"));
  to.AddLinear(from, own + "norm", theirs + "norm");
  to.AddLinear(from, own + "out_projection", theirs + "out_proj");
}

void AddQwenParts(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  if (view.feed_forward != FeedForwardOf("moe")) {
    AddGatedUnit(own, theirs + "mlp.", kProjNames, from, to);
    return;
  }
  to.AddLinear(from, own + "router", theirs + "mlp.gate");
  AddExperts(view, own, theirs + "mlp.experts.", kProjNames, from, to);
  AddGatedUnit(own + "shared.", theirs + "mlp.shared_expert.", kProjNames, from,
               to);
  to.AddLinear(from, own + "shared_gate", theirs + "mlp.shared_expert_gate");
}

void AddQwenMixer(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  if (view.attention == MixerKind("gdn")) {
    AddQwenDelta(view, own + "attention.", theirs + "linear_attn.", from, to);
  } else {
    AddQwenSoftmax(view, own + "attention.", theirs + "self_attn.", from, to);
  }
}

// The text model is under "model.language_model." where one for pictures is
// next to it.
void QwenTensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  const std::string inner = "model.language_model.";
  const std::string root =
      from.Has(inner + "embed_tokens.weight") ? inner : "model.";
  from.Skip("model.visual.");
  const SoftmaxNames names = {
      .root = root, .mixer = AddQwenMixer, .unit = AddQwenParts};
  AddSoftmaxStack(config, names, from, to);
  // Qwen3-Next does not count the layers of its head, which is one.
  const bool next = from.config().HasWord("model_type", "qwen3_next");
  AddMtp(config, names, next ? 1 : 0, from, to);
}

}  // namespace

std::vector<Importer> QwenImporters() {
  return {
      {"qwen3_next", ReadQwenNext, QwenTensors, "Qwen3NextForCausalLM",
       PublishQwenNext, "num_nextn_predict_layers"},
      {"qwen3_5", ReadTextOf<ReadQwen35Text>, QwenTensors},
      {"qwen3_5_text", ReadQwen35Text, QwenTensors, "Qwen3_5ForCausalLM",
       PublishQwen35Text, "mtp_num_hidden_layers"},
      {"qwen3_5_moe", ReadTextOf<ReadQwen35MoeText>, QwenTensors},
      {"qwen3_5_moe_text", ReadQwen35MoeText, QwenTensors,
       "Qwen3_5MoeForCausalLM", PublishQwen35MoeText, "mtp_num_hidden_layers"}};
}

}  // namespace tarn
