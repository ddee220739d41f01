// LFM3: LFM2's gated short convolutions, with softmax attention over all tokens
// in some layers and over a window in others, each with rotary frequencies of
// its own; norms before and after the parts, and a gate for each head.
#include <algorithm>

#include "config/bounds.h"
#include "config/own_key.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostLfm3 = int64_t{1} << 24;
constexpr const char* kLfm3Full = "full_attention";
constexpr const char* kLfm3Window = "sliding_attention";

// The base of layers with a window; 0: the model's.
double ReadLfm3Rotary(PublishedConfig& from, ModelConfig& config) {
  if (from.Has("rope_parameters") || from.Has("rope_scaling")) {
    return ReadRotaryByType(from, config, {.positions = 128000, .base = 1e6},
                            nullptr, 0.0);
  }
  from.Ignore({"rope_theta"});  // the class takes its own frequencies whole
  config.positions = Positions::kRotary;
  config.rotary_base = 1e6;
  config.rotary_scaling = RotaryScalingKind::kProportional;
  config.rotary_low = 0.5;
  return 1e4;
}

void ReadLfm3Layers(PublishedConfig& from, double window_base,
                    ModelConfig& config) {
  const int64_t shared = from.Integer("num_key_value_heads", 1, kMostLfm3, 4);
  const int64_t usual = from.Holds("sliding_window") ? 0 : 256;
  const int64_t window = from.Integer("sliding_window", 1, kMostLfm3, usual);
  const std::vector<std::string> types =
      from.Words("layer_types", config.n_layers);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string type = !types.empty() ? types[static_cast<size_t>(i)]
                             : i % 4 == 2   ? kLfm3Full
                             : i % 4 == 0 && i > 0 ? kLfm3Window
                                                   : "conv";
    if (type == "conv") {  // as wide as the model
      config.layers.push_back(
          {MixerKind("short-conv"),
           {{"n_heads", "1"}, {"d_value", StrCat(config.d_model)}}});
      continue;
    }
    LayerConfig layer = {MixerKind("full"), {{"key_heads", StrCat(shared)}}};
    if (type == kLfm3Window) {
      if (window == 0) from.Refuse("sliding_window", "a number", "null");
      layer.options.push_back({"window", StrCat(window)});
      if (window_base > 0) {
        layer.options.push_back({"own_rotary_base", RealText(window_base)});
      }
    } else if (type != kLfm3Full) {
      from.Refuse("layer_types",
                  "'conv', 'full_attention' or 'sliding_attention'",
                  Quoted(type));
    }
    config.layers.push_back(std::move(layer));
  }
}

ModelConfig ReadLfm3(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostLfm3, 128000);
  config.d_model = from.Integer("hidden_size", 1, kMostLfm3, 2048);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers, 24);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostLfm3, 16);
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMostLfm3, 128);
  config.d_ff = from.Integer("intermediate_size", 1, kMostLfm3, 7680);
  config.feed_forward = FeedForwardOf("swiglu");
  config.norm = from.Flag("use_sandwich_norm", true) ? Norm::kBoth : Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("norm_eps", 1e-5);
  config.final_norm = true;
  config.tied_head = from.Flag("tie_word_embeddings", true);
  config.tokenizer = TokenizerKind::kBpe;
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  SetKey(config, "head_gate", from.Flag("use_attention_gate", true));
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  SetKey(config, "conv_width", from.Integer("conv_L_cache", 2, 8, 7));
  SetKey(config, "conv_bias", from.Flag("conv_bias", false));
  ReadLfm3Layers(from, ReadLfm3Rotary(from, config), config);
  return config;
}

void PublishLfm3(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  const ModelConfig conv = FirstView(config, "short-conv");
  PublishSoftmaxStack(config, to);
  to.erase("hidden_act");
  to.erase("rms_norm_eps");
  to["norm_eps"] = config.norm_eps;
  to["use_sandwich_norm"] = config.norm == Norm::kBoth;
  to["use_attention_gate"] = KeyOf<bool>(softmax, "head_gate");
  PublishRotaryByType(config, to);
  PublishWindows(config, to);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    if (view.attention != MixerKind("short-conv")) continue;
    to["layer_types"][static_cast<size_t>(i)] = "conv";
  }
  to["conv_L_cache"] = KeyOf<int64_t>(conv, "conv_width");
  to["conv_bias"] = KeyOf<bool>(conv, "conv_bias");
}

// The gate of a head, once for each of its channels.
WeightPart GateOfChannels(const ModelConfig& view, const WeightPart& gates) {
  std::vector<WeightPart> rows;
  for (int64_t head = 0; head < view.n_heads; ++head) {
    const WeightPart row = gates.Rows({head, head + 1});
    rows.insert(rows.end(), static_cast<size_t>(view.d_value), row);
  }
  return WeightPart::Stacked(rows);
}

void AddLfm3Softmax(const ModelConfig& view, const std::string& own,
                    const std::string& theirs, PublishedTensors& from,
                    ImportedTensors& to) {
  const bool bias = KeyOf<bool>(view, "qkv_bias");
  to.AddLinear(from, own + "query_projection", theirs + "q_proj", bias);
  to.AddLinear(from, own + "key_projection", theirs + "k_proj", bias);
  to.AddLinear(from, own + "value_projection", theirs + "v_proj", bias);
  if (KeyOf<bool>(view, "head_gate")) {
    to.Add(own + "gate_projection.weight",
           GateOfChannels(view, from(theirs + "gate_proj.weight",
                                     {view.n_heads, view.d_model})));
  }
  to.AddLinear(from, own + "query_norm", theirs + "q_norm");
  to.AddLinear(from, own + "key_norm", theirs + "k_norm");
  to.AddLinear(from, own + "out_projection", theirs + "o_proj", bias);
}

void Lfm3Tensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  constexpr GatedUnitNames kNames = {"w1", "w3", "w2"};
  to.Add("value_embedding.weight", from("model.embed_tokens.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    if (view.attention == MixerKind("short-conv")) {
      AddShortConv(view, own + "attention.", theirs + "conv.", from, to);
    } else {
      AddLfm3Softmax(view, own + "attention.", theirs + "self_attn.", from, to);
    }
    AddGatedUnit(own, theirs + "feed_forward.", kNames, from, to);
    to.AddLinear(from, own + "norm1", theirs + "operator_norm");
    to.AddLinear(from, own + "norm2", theirs + "ffn_norm");
    if (config.norm != Norm::kBoth) continue;
    to.AddLinear(from, own + "norm1_after", theirs + "post_operator_norm");
    to.AddLinear(from, own + "norm2_after", theirs + "post_ffn_norm");
  }
  to.AddLinear(from, "norm", "model.embedding_norm");
  to.AddHead(from, "lm_head.weight", "model.embed_tokens.weight");
}

}  // namespace

std::vector<Importer> Lfm3Importers() {
  return {{"lfm3", ReadLfm3, Lfm3Tensors, "Lfm3ForCausalLM", PublishLfm3}};
}

}  // namespace tarn
