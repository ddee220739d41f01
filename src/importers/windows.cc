// Softmax decoders whose layers differ: SmolLM3, of which some layers do not
// rotate, OLMo 3 and Gemma 3, of which most read the last tokens alone and
// rotate by frequencies of their own. Gemma 3 may also read pictures; here it
// is its text model.
#include <cmath>

#include "config/own_key.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// The type of each layer; empty where the file does not say.
std::vector<std::string> TypesOf(PublishedConfig& from,
                                 const ModelConfig& config) {
  const std::vector<std::string> types =
      from.Words("layer_types", config.n_layers);
  for (const std::string& type : types) {
    if (type == kSliding || type == kFull) continue;
    from.Refuse("layer_types", StrCat(Quoted(kSliding), " or ", Quoted(kFull)),
                Quoted(type));
  }
  return types;
}

// Layers of a window, each `period`-th of full attention where the file has no
// types. base: of the rotary frequencies of layers with a window; 0: the
// model's.
void ReadWindows(PublishedConfig& from, int64_t period, double base,
                 ModelConfig& config) {
  const int64_t window = from.Integer("sliding_window", 1, kMostSize, 4096);
  std::vector<std::string> types = TypesOf(from, config);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    LayerConfig layer = {config.attention, {}};
    const bool full = types.empty() ? (i + 1) % period == 0
                                    : types[static_cast<size_t>(i)] == kFull;
    if (!full) {
      layer.options.push_back({"window", StrCat(window)});
      if (base > 0) {
        layer.options.push_back({"own_rotary_base", RealText(base)});
      }
    }
    config.layers.push_back(std::move(layer));
  }
}

// 1 for each layer that rotates.
std::vector<int64_t> RotatedLayers(PublishedConfig& from,
                                   const ModelConfig& config) {
  const int64_t interval =
      from.Integer("no_rope_layer_interval", 1, kMostSize, 4);
  std::vector<int64_t> rotated = from.Integers("no_rope_layers", 0, 1);
  const int64_t given = static_cast<int64_t>(rotated.size());
  if (given > 0 && given < config.n_layers) {
    from.Refuse("no_rope_layers",
                StrCat("a list of at least ", config.n_layers, " numbers"),
                StrCat(given));
  }
  for (int64_t i = given; i < config.n_layers; ++i) {
    rotated.push_back((i + 1) % interval != 0 ? 1 : 0);
  }
  rotated.resize(static_cast<size_t>(config.n_layers));
  return rotated;
}

ModelConfig ReadSmolLm3(PublishedConfig& from) {
  ModelConfig config = ReadSoftmaxStack(from, {.tied = true});
  from.Want("hidden_act", "silu");
  ReadBiases(from, config);
  ReadRotary(from, config, {.positions = 32768, .base = 2e6});
  from.Ignore({"max_window_layers"});
  const bool windows = from.Flag("use_sliding_window", false);
  const int64_t window = from.Integer("sliding_window", 1, kMostSize, 0);
  const std::vector<std::string> types = TypesOf(from, config);
  const std::vector<int64_t> rotated = RotatedLayers(from, config);
  bool rotates = false;
  for (size_t i = 0; i < rotated.size(); ++i) {
    LayerConfig layer = {config.attention, {}};
    const bool rotate = rotated[i] == 1;
    const bool slides =
        types.empty() ? windows && !rotate : types[i] == kSliding;
    if (slides && !types.empty() && (!windows || window == 0)) {
      from.Refuse("layer_types",
                  "'full_attention' without use_sliding_window and "
                  "sliding_window",
                  Quoted(kSliding));
    }
    if (slides && window > 0) {
      layer.options.push_back({"window", StrCat(window)});
    }
    if (!rotate) layer.options.push_back({"rotate", "false"});
    rotates |= rotate;
    config.layers.push_back(std::move(layer));
  }
  if (!rotates) config.positions = Positions::kNone;
  return config;
}

void PublishSmolLm3(const ModelConfig& config, PublishedKeys& to) {
  PublishSoftmaxStack(config, to);
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
  PublishRotary(config, to);
  PublishWindows(config, to);
  to["use_sliding_window"] = to.contains("sliding_window");
  const bool rotates = config.positions == Positions::kRotary;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const bool rotated = KeyOf<bool>(LayerView(config, i), "rotate");
    to["no_rope_layers"].push_back(rotates && rotated ? 1 : 0);
  }
}

void SmolLm3Tensors(const ModelConfig& config, PublishedTensors& from,
                    ImportedTensors& to) {
  AddSoftmaxStack(config, {}, from, to);
}

ModelConfig ReadOlmo3(PublishedConfig& from) {
  ModelConfig config = ReadSoftmaxStack(from, {.norm_eps = 1e-5});
  from.Want("hidden_act", "silu");
  ReadBiases(from, config);
  config.own.insert_or_assign("head_norm", int64_t{2});  // of all heads
  config.norm = Norm::kAfter;
  // transformers 5 gives layers with a window its default base where a file of
  // transformers 4 has another; here all layers have the file's.
  ReadWindows(from, 4,
              ReadRotaryByType(from, config, {.positions = 2048, .base = 5e5},
                               nullptr, 0.0),
              config);
  return config;
}

void PublishOlmo3(const ModelConfig& config, PublishedKeys& to) {
  PublishSoftmaxStack(config, to);
  PublishRotaryByType(config, to);
  PublishWindows(config, to);
}

void Olmo3Tensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddSoftmaxStack(config,
                  {.norms = {{"norm1", "post_attention_layernorm"},
                             {"norm2", "post_feedforward_layernorm"}}},
                  from, to);
}

ModelConfig ReadGemma3Text(PublishedConfig& from) {
  ModelConfig config = ReadSoftmaxStack(from, {.vocab_size = 262208,
                                               .heads = 8,
                                               .key_heads = 4,
                                               .head_dim = 256,
                                               .tied = true});
  ReadBiases(from, config);
  from.Want("hidden_activation", "gelu_pytorch_tanh");
  from.Want("use_bidirectional_attention", false);
  // transformers reads a cap of the scores and does not apply it.
  from.WantNull("attn_logit_softcapping");
  from.Ignore({"hidden_act", "cache_implementation"});
  config.feed_forward = FeedForwardOf("geglu-tanh");
  config.norm = Norm::kBoth;
  config.norm_offset = 1.0;
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  config.embedding_factor = std::sqrt(static_cast<double>(config.d_model));
  config.logit_softcap = from.Real("final_logit_softcapping", 0.0);
  const double scale = from.Real("query_pre_attn_scalar", 256.0);
  if (!(scale > 0)) {
    from.Refuse("query_pre_attn_scalar", "a number above 0", StrCat(scale));
  }
  SetKey(config, "score_scale", 1.0 / std::sqrt(scale));
  const double base =
      ReadRotaryByType(from, config, {.positions = 131072, .base = 1e6},
                       "rope_local_base_freq", 1e4);
  const char* const old = "sliding_window_pattern";
  const int64_t period = from.Integer("_sliding_window_pattern", 1, kMostSize,
                                      from.Integer(old, 1, kMostSize, 6));
  ReadWindows(from, period, base, config);
  return config;
}

void PublishGemma3Text(const ModelConfig& config, PublishedKeys& to) {
  PublishSoftmaxStack(config, to);
  to.erase("hidden_act");
  to["hidden_activation"] = "gelu_pytorch_tanh";
  PublishRotaryByType(config, to);
  PublishWindows(config, to);
  // The class reads an integer where it is one.
  const double scale = KeyOf<double>(config, "score_scale");
  const double width = 1.0 / (scale * scale), rounded = std::nearbyint(width);
  constexpr double kSameWidth = 1e-9, kMostWidth = 1e15;
  if (width < kMostWidth && std::abs(width - rounded) <= kSameWidth * rounded) {
    to["query_pre_attn_scalar"] = static_cast<int64_t>(rounded);
  } else {
    to["query_pre_attn_scalar"] = width;
  }
  to["final_logit_softcapping"] = config.logit_softcap > 0
                                      ? nlohmann::json(config.logit_softcap)
                                      : nlohmann::json(nullptr);
}

ModelConfig ReadGemma3(PublishedConfig& from) {
  PublishedConfig text = from.TextSection();
  const ModelConfig config = ReadGemma3Text(text);
  text.RequireAllRead();
  from.Ignore({"vision_config", "mm_tokens_per_image", "boi_token_index",
               "eoi_token_index", "image_token_index", "boi_token_id",
               "eoi_token_id", "image_token_id"});
  return config;
}

void Gemma3Tensors(const ModelConfig& config, PublishedTensors& from,
                   ImportedTensors& to) {
  std::string root = "model.", head = "lm_head.weight";
  for (const char* wrapped :
       {"language_model.model.", "model.language_model."}) {
    if (from.Has(StrCat(wrapped, "embed_tokens.weight"))) root = wrapped;
  }
  const std::string wrapped_head = "language_model.lm_head.weight";
  if (from.Has(wrapped_head)) head = wrapped_head;
  for (const char* prefix : {"", "model."}) {
    from.Skip(StrCat(prefix, "vision_tower."));
    from.Skip(StrCat(prefix, "multi_modal_projector."));
  }
  AddSoftmaxStack(config,
                  {.root = root,
                   .head = head,
                   .norms = {{"norm1", "input_layernorm"},
                             {"norm1_after", "post_attention_layernorm"},
                             {"norm2", "pre_feedforward_layernorm"},
                             {"norm2_after", "post_feedforward_layernorm"}}},
                  from, to);
}

}  // namespace

std::vector<Importer> WindowImporters() {
  return {{"smollm3", ReadSmolLm3, SmolLm3Tensors, "SmolLM3ForCausalLM",
           PublishSmolLm3},
          {"olmo3", ReadOlmo3, Olmo3Tensors, "Olmo3ForCausalLM", PublishOlmo3},
          {"gemma3_text", ReadGemma3Text, Gemma3Tensors, "Gemma3ForCausalLM",
           PublishGemma3Text},
          {"gemma3", ReadGemma3, Gemma3Tensors}};
}

}  // namespace tarn
