// Softmax decoders: `llama` (Llama, Mistral without a window, and kin),
// `qwen2`, `qwen3`, and `gemma3`, whose layers differ by their windows.
// llama.cpp: conversion/llama.py, qwen.py, gemma.py.
#include <cmath>

#include "core/text.h"
#include "importers/gguf/stack.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

bool HasBias(const GgufKeys& from, const char* name) {
  return from.HasTensor(StrCat("blk.0.", name, ".bias"));
}

void LlamaFileConfig(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "llama";
  ReadGgufStack(from, to);
  ReadGgufRotary(from, to);
  to["attention_bias"] = HasBias(from, "attn_q");
  to["mlp_bias"] = HasBias(from, "ffn_up");
}

void LlamaFileTensors(const ModelConfig& config, GgufTensors& tensors) {
  AddGgufStack(config, {.permuted = true}, tensors);
}

void LlamaFileKeys(const GgufExport& from, GgufKeyList& to) {
  AddGgufStackKeys(from, "llama", to);
  AddGgufRotaryKeys(from, "llama", from.config.d_key, to, /*factors=*/true);
}

void Qwen2FileConfig(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen2";
  ReadGgufStack(from, to);
  ReadGgufRotary(from, to);
}

void Qwen2FileTensors(const ModelConfig& config, GgufTensors& tensors) {
  AddGgufStack(config, {}, tensors);
}

void Qwen2FileKeys(const GgufExport& from, GgufKeyList& to) {
  AddGgufStackKeys(from, "qwen2", to);
  AddGgufRotaryKeys(from, "qwen2", from.config.d_key, to);
}

void Qwen3FileConfig(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3";
  ReadGgufStack(from, to);
  ReadGgufRotary(from, to);
  to["attention_bias"] = HasBias(from, "attn_q");
}

void Qwen3FileTensors(const ModelConfig& config, GgufTensors& tensors) {
  AddGgufStack(config, {.head_norms = true}, tensors);
}

void Qwen3FileKeys(const GgufExport& from, GgufKeyList& to) {
  AddGgufStackKeys(from, "qwen3", to);
  AddGgufRotaryKeys(from, "qwen3", from.config.d_key, to);
}

// Without a key for it, llama.cpp takes the width of a head for
// query_pre_attn_scalar but in the model with 62 layers.
int64_t ScoreWidth(int64_t layers, int64_t d_model, int64_t heads,
                   int64_t width) {
  constexpr int64_t kLayersOf27B = 62;
  return layers == kLayersOf27B ? d_model / heads : width;
}

// Whether each layer has a window: llama.cpp's set_swa_pattern, in which a
// number says how many layers have one of full attention, or a list.
std::vector<bool> WindowedLayers(GgufKeys& from, int64_t layers) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const auto count = static_cast<size_t>(layers);
  if (from.Has(kPattern) &&
      from.file().TypeOf(StrCat(from.architecture(), ".", kPattern)) ==
          GgufType::kArray) {
    const std::vector<bool> given = from.Flags(kPattern, count);
    if (given.size() != count) {
      from.Refuse(kPattern, StrCat("an array of ", layers, " bools"),
                  StrCat(given.size()));
    }
    return given;
  }
  const int64_t period = from.Integer(kPattern, 0, kMostSize, 6);
  std::vector<bool> windowed;
  for (int64_t i = 0; i < layers; ++i) {
    windowed.push_back(period == 0 || i % period < period - 1);
  }
  return windowed;
}

void Gemma3FileConfig(GgufKeys& from, PublishedKeys& to) {
  constexpr const char* kWindow = "attention.sliding_window";
  to["model_type"] = "gemma3_text";
  const int64_t layers = ReadGgufStack(from, to);
  const int64_t width = to["head_dim"];
  to["hidden_activation"] = "gelu_pytorch_tanh";
  to["query_pre_attn_scalar"] =
      ScoreWidth(layers, to["hidden_size"], to["num_attention_heads"], width);
  const double cap = from.Real("final_logit_softcapping", 0.0);
  if (cap != 0) to["final_logit_softcapping"] = cap;
  const int64_t window = from.Integer(kWindow, 0, kMostSize, 0);
  const std::vector<bool> windowed = WindowedLayers(from, layers);
  for (const bool slides : windowed) {
    to["layer_types"].push_back(slides && window > 0 ? "sliding_attention"
                                                     : "full_attention");
  }
  if (window > 0) to["sliding_window"] = window;
  ReadGgufRotary(from, to);
  const PublishedKeys full = to["rope_parameters"];
  to["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", from.Real("rope.freq_base_swa", 10000.0)}}}};
}

void Gemma3FileTensors(const ModelConfig& config, GgufTensors& tensors) {
  AddGgufStack(config,
               {.head_norms = true, .norms_after = true, .norm_shift = 1},
               tensors);
}

void Gemma3FileKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "gemma3.";
  const ModelConfig& config = from.config;
  AddGgufStackKeys(from, "gemma3", to);
  AddGgufRotaryKeys(from, "gemma3", config.d_key, to);
  const double scalar = from.published.at("query_pre_attn_scalar");
  const int64_t usual =
      ScoreWidth(config.n_layers, config.d_model, config.n_heads, config.d_key);
  if (scalar != static_cast<double>(usual)) {
    throw FormatError("config.json: score_scale",
                      StrCat("1 / sqrt(", usual, "), which llama.cpp has"),
                      StrCat("1 / sqrt(", scalar, ")"));
  }
  if (config.logit_softcap > 0) {
    to.F32(own + "final_logit_softcapping", config.logit_softcap);
  }
  std::vector<bool> windowed;
  int64_t window = 0;
  double base = config.rotary_base;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    windowed.push_back(KeyOf<int64_t>(view, "window") > 0);
    if (!windowed.back()) continue;
    window = KeyOf<int64_t>(view, "window");
    const double given = KeyOf<double>(view, "own_rotary_base");
    if (given > 0) base = given;
  }
  if (window == 0) return;
  to.U32(own + "attention.sliding_window", window);
  to.Bools(own + "attention.sliding_window_pattern", windowed);
  to.F32(own + "rope.freq_base_swa", base);
}

}  // namespace

std::vector<GgufArchitecture> GgufLlamaRows() {
  return {
      {"llama", LlamaFileConfig, LlamaFileTensors, {"llama"}, LlamaFileKeys},
      {"qwen2", Qwen2FileConfig, Qwen2FileTensors, {"qwen2"}, Qwen2FileKeys},
      {"qwen3", Qwen3FileConfig, Qwen3FileTensors, {"qwen3"}, Qwen3FileKeys},
      {"gemma3",
       Gemma3FileConfig,
       Gemma3FileTensors,
       {"gemma3_text"},
       Gemma3FileKeys}};
}

}  // namespace tarn
