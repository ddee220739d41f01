// Softmax decoders in the form of Llama: root mean square norms, grouped heads,
// rotary positions, SwiGLU. Mistral adds a window, Qwen2 biases, Qwen3 norms of
// queries and keys, OLMo 2 norms after the parts instead of before them.
#include <cmath>

#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

ModelConfig ReadCommon(PublishedConfig& from) {
  ModelConfig config;
  config.attention = MixerKind("full");
  config.vocab_size = from.Integer("vocab_size", 1, kMost);
  config.d_model = from.Integer("hidden_size", 1, kMost);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMost);
  config.n_heads = from.Integer("num_attention_heads", 1, kMost);
  config.d_ff = from.Integer("intermediate_size", 1, kMost);
  const int64_t width = config.d_model / config.n_heads;
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMost, width);
  const int64_t shared =
      from.Integer("num_key_value_heads", 1, kMost, config.n_heads);
  SetKey(config, "key_heads", shared == config.n_heads ? 0 : shared);
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-6);
  config.final_norm = true;
  from.Want("hidden_act", "silu");
  config.feed_forward = FeedForwardOf("swiglu");
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  ReadRotary(from, config);
  return config;
}

// Biases of all four products, and of the feed-forward part.
void ReadBiases(PublishedConfig& from, ModelConfig& config) {
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  if (from.Flag("mlp_bias", false)) {
    config.feed_forward_bias = FeedForwardBias::kAll;
  }
}

ModelConfig ReadLlama(PublishedConfig& from) {
  ModelConfig config = ReadCommon(from);
  ReadBiases(from, config);
  return config;
}

ModelConfig ReadMistral(PublishedConfig& from) {
  ModelConfig config = ReadCommon(from);
  SetKey(config, "window", from.Integer("sliding_window", 0, kMost, 0));
  return config;
}

// Windows of the later layers, which published Qwen models do not use.
void WantFullAttention(PublishedConfig& from, const ModelConfig& config) {
  from.Want("use_sliding_window", false);
  from.Ignore({"sliding_window", "max_window_layers"});
  for (const std::string& type : from.Words("layer_types", config.n_layers)) {
    if (type == "full_attention") continue;
    from.Refuse("layer_types", "'full_attention' in all layers", Quoted(type));
  }
}

ModelConfig ReadQwen2(PublishedConfig& from) {
  ModelConfig config = ReadCommon(from);
  SetKey(config, "qkv_bias", true);
  WantFullAttention(from, config);
  return config;
}

ModelConfig ReadQwen3(PublishedConfig& from) {
  ModelConfig config = ReadCommon(from);
  ReadBiases(from, config);
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  WantFullAttention(from, config);
  return config;
}

ModelConfig ReadOlmo2(PublishedConfig& from) {
  ModelConfig config = ReadCommon(from);
  ReadBiases(from, config);
  config.own.insert_or_assign("head_norm", int64_t{2});  // of all heads
  config.norm = Norm::kAfter;
  return config;
}

void PublishCommon(const ModelConfig& config, PublishedKeys& to) {
  to["vocab_size"] = config.vocab_size;
  to["hidden_size"] = config.d_model;
  to["num_hidden_layers"] = config.n_layers;
  to["num_attention_heads"] = config.n_heads;
  to["intermediate_size"] = config.d_ff;
  to["head_dim"] = config.d_key;
  const int64_t shared = KeyOf<int64_t>(config, "key_heads");
  to["num_key_value_heads"] = shared == 0 ? config.n_heads : shared;
  to["hidden_act"] = "silu";
  to["rms_norm_eps"] = config.norm_eps;
  to["tie_word_embeddings"] = config.tied_head;
  PublishRotary(config, to);
}

void PublishLlama(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to["attention_bias"] = KeyOf<bool>(config, "qkv_bias");
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
}

void PublishMistral(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  const int64_t window = KeyOf<int64_t>(config, "window");
  to["sliding_window"] =
      window == 0 ? nlohmann::json(nullptr) : nlohmann::json(window);
}

// The class of Qwen 2 takes the width of a head from the other sizes where the
// key is absent, and these types have no biases of the feed-forward part.
void PublishQwen2(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to["use_sliding_window"] = false;
}

void PublishQwen3(const ModelConfig& config, PublishedKeys& to) {
  PublishQwen2(config, to);
  to["attention_bias"] = KeyOf<bool>(config, "qkv_bias");
}

void PublishOlmo2(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to["attention_bias"] = KeyOf<bool>(config, "qkv_bias");
}

// norms: the names of the two norms of a layer.
void AddLayers(const ModelConfig& config, const char* const (&norms)[2],
               PublishedTensors& from, ImportedTensors& to) {
  to.Add("value_embedding.weight", from("model.embed_tokens.weight"));
  const bool ff_bias = config.feed_forward_bias == FeedForwardBias::kAll;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    AddSoftmax(config, own + "attention.", theirs + "self_attn.", from, to);
    to.AddLinear(from, own + "linear1", theirs + "mlp.gate_proj", ff_bias);
    to.AddLinear(from, own + "linear2", theirs + "mlp.down_proj", ff_bias);
    to.AddLinear(from, own + "linear3", theirs + "mlp.up_proj", ff_bias);
    to.AddLinear(from, own + "norm1", theirs + norms[0]);
    to.AddLinear(from, own + "norm2", theirs + norms[1]);
  }
  to.AddLinear(from, "norm", "model.norm");
  to.AddHead(from, "lm_head.weight", "model.embed_tokens.weight");
}

void LlamaTensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddLayers(config, {"input_layernorm", "post_attention_layernorm"}, from, to);
}

void Olmo2Tensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddLayers(config, {"post_attention_layernorm", "post_feedforward_layernorm"},
            from, to);
}

// transformers rounds the number of channels down.
void ReadRotatedPart(PublishedConfig& from, PublishedConfig& rope, double part,
                     ModelConfig& config) {
  constexpr const char* kKey = "partial_rotary_factor";
  part = from.Real(kKey, part);
  PublishedConfig& giver = rope.Has(kKey) ? rope : from;
  part = rope.Real(kKey, part);
  const double width = std::floor(static_cast<double>(config.d_key) * part);
  if (!(part > 0 && part <= 1) || width < 2 || std::fmod(width, 2) != 0) {
    giver.Refuse(kKey,
                 StrCat("a number up to 1 that makes an even number of the ",
                        config.d_key, " channels rotate"),
                 StrCat(part));
  }
  if (part < 1) SetKey(config, "rotary_width", static_cast<int64_t>(width));
}

}  // namespace

void ReadRotary(PublishedConfig& from, ModelConfig& config,
                std::optional<double> part) {
  config.positions = Positions::kRotary;
  PublishedConfig rope = from.Section("rope_parameters");
  if (part) ReadRotatedPart(from, rope, *part, config);
  PublishedConfig scaling = from.Section("rope_scaling");
  PublishedConfig& kind = rope.Has("rope_type") ? rope : scaling;
  config.rotary_base =
      rope.Real("rope_theta", from.Real("rope_theta", 10000.0));
  const std::string old = kind.Word("type", "default");
  const std::string type = kind.Word("rope_type", old);
  if (type == "linear") {
    config.rotary_scaling = RotaryScalingKind::kLinear;
    config.rotary_factor = kind.Real("factor");
  } else if (type == "llama3") {
    config.rotary_scaling = RotaryScalingKind::kLlama3;
    config.rotary_factor = kind.Real("factor");
    config.rotary_low = kind.Real("low_freq_factor");
    config.rotary_high = kind.Real("high_freq_factor");
    config.rotary_original_positions =
        kind.Integer("original_max_position_embeddings", 1, kMost);
  } else if (type != "default") {
    kind.Refuse("rope_type", "'default', 'linear' or 'llama3'", Quoted(type));
  }
  // Which channels count rows and columns of a picture: texts count one thing.
  rope.Ignore({"mrope_section", "mrope_interleaved"});
  rope.RequireAllRead();
  scaling.RequireAllRead();
}

void PublishRotary(const ModelConfig& config, PublishedKeys& to) {
  PublishedKeys rope = {{"rope_type",
                         kRotaryScalingWords[static_cast<int>(
                             config.rotary_scaling)]},
                        {"rope_theta", config.rotary_base}};
  if (config.rotary_scaling == RotaryScalingKind::kNone) {
    rope["rope_type"] = "default";
  } else {
    rope["factor"] = config.rotary_factor;
  }
  if (config.rotary_scaling == RotaryScalingKind::kLlama3) {
    rope["low_freq_factor"] = config.rotary_low;
    rope["high_freq_factor"] = config.rotary_high;
    rope["original_max_position_embeddings"] = config.rotary_original_positions;
  }
  to["rope_parameters"] = std::move(rope);
}

void AddSoftmax(const ModelConfig& config, const std::string& own,
                const std::string& theirs, PublishedTensors& from,
                ImportedTensors& to) {
  const bool qkv_bias = KeyOf<bool>(config, "qkv_bias");
  to.AddLinear(from, own + "query_projection", theirs + "q_proj", qkv_bias);
  to.AddLinear(from, own + "key_projection", theirs + "k_proj", qkv_bias);
  to.AddLinear(from, own + "value_projection", theirs + "v_proj", qkv_bias);
  if (KeyOf<int64_t>(config, "head_norm") != 0) {
    to.AddLinear(from, own + "query_norm", theirs + "q_norm");
    to.AddLinear(from, own + "key_norm", theirs + "k_norm");
  }
  to.AddLinear(from, own + "out_projection", theirs + "o_proj",
               KeyOf<bool>(config, "out_bias"));
}

std::vector<Importer> SoftmaxImporters() {
  return {{"llama", ReadLlama, LlamaTensors, "LlamaForCausalLM", PublishLlama},
          {"mistral", ReadMistral, LlamaTensors, "MistralForCausalLM",
           PublishMistral},
          {"qwen2", ReadQwen2, LlamaTensors, "Qwen2ForCausalLM", PublishQwen2},
          {"qwen3", ReadQwen3, LlamaTensors, "Qwen3ForCausalLM", PublishQwen3},
          {"olmo2", ReadOlmo2, Olmo2Tensors, "Olmo2ForCausalLM", PublishOlmo2}};
}

}  // namespace tarn
