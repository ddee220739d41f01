// Model directories for tests: small configurations, random weights, files.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "core/test_util.h"
#include "mixers/rwkv/form.h"
#include "reference/reference_model.h"

namespace tarn::testing {

/// Small enough to read, odd enough to have tails everywhere.
inline ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 29;
  config.d_model = 22;
  config.n_layers = 2;
  config.n_heads = 3;
  config.d_key = 6;
  config.d_value = 5;
  config.d_ff = 37;
  config.max_positions = 64;
  FinishConfig(config);
  return config;
}

/// The same for the other architectures.
inline ModelConfig SmallConfigOf(Arch arch) {
  ModelConfig config = SmallConfig();
  config.arch = arch;
  config.task = Task::kDerived;
  config.max_positions = 4096;
  if (arch == Arch::kEncoder) config.n_classes = 5;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
  FinishConfig(config);
  return config;
}

/// RMS norms and gated feed-forward layers.
inline void SetRmsSwiglu(ModelConfig& config) {
  config.norm_kind = NormKind::kRms;
  config.feed_forward = FeedForwardOf("swiglu");
}

/// Feed-forward layers that read the row before each.
inline void SetChannelMix(ModelConfig& config) {
  config.feed_forward = FeedForwardOf("channel-mix");
}

/// aft-simple, whose keys and values have one width.
inline void SetAftSimple(ModelConfig& config) {
  config.attention = MixerKind("aft-simple");
  config.d_value = config.d_key;
}

/// A stack of mixed layers: SetLayers(config, "linear,full").
inline void SetLayers(ModelConfig& config, const std::string& layers) {
  config.layers = LayersFromText(layers);
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention == MixerKind("aft-simple")) SetAftSimple(config);
    if (IsRwkv(Name(layer.attention))) config.d_value = config.d_key;
  }
}

/// Wide enough that products and row loops are cut into parallel pieces.
inline ModelConfig WideConfig() {
  ModelConfig config;
  config.vocab_size = 301;
  config.d_model = 192;
  config.n_layers = 2;
  config.n_heads = 4;
  config.d_key = 34;
  config.d_value = 50;
  config.d_ff = 310;
  FinishConfig(config);
  return config;
}

/// Matrices N(0, 1/inputs), embeddings N(0, 1), norms near 1, small biases.
inline Tensors RandomTensors(const std::vector<NamedShape>& shapes,
                             uint64_t seed) {
  Rng rng(seed);
  Tensors tensors;
  for (const auto& [name, shape] : shapes) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const bool embedding = name.find("embedding") != std::string::npos;
    const bool norm_weight = shape.size() == 1 &&
                             name.find("norm") != std::string::npos &&
                             name.find("weight") != std::string::npos;
    const double size =
        embedding ? 1.0
                  : (shape.size() == 2
                         ? 1.0 / std::sqrt(static_cast<double>(shape[1]))
                         : 0.2);
    std::vector<float>& values = tensors[name];
    for (int64_t i = 0; i < count; ++i) {
      const double x = (norm_weight ? 1.0 : 0.0) + size * rng.Normal();
      // Factors of decay stay below 1, and their bounds between 0 and 1.
      const double value = name.ends_with("log_decay") ? -std::fabs(x)
                           : name.ends_with("lower_bound")
                               ? std::fabs(std::tanh(x))
                               : x;
      values.push_back(static_cast<float>(value));
    }
  }
  return tensors;
}

inline Tensors RandomTensors(const ModelConfig& config, uint64_t seed) {
  return RandomTensors(WeightShapes(config), seed);
}

/// Shapes come from the config unless `shapes` names others.
inline void WriteTensors(
    const std::string& dir, const ModelConfig& config, const Tensors& tensors,
    const std::map<std::string, std::vector<int64_t>>& shapes = {}) {
  std::vector<TensorToWrite> list;
  std::map<std::string, std::vector<int64_t>> known;
  for (const auto& [name, shape] : WeightShapes(config)) known[name] = shape;
  for (const auto& [name, shape] : MtpShapes(config)) known[name] = shape;
  for (const auto& [name, shape] : shapes) known[name] = shape;
  for (const auto& [name, values] : tensors) {
    list.push_back({name, DType::kF32, known.at(name), values.data()});
  }
  WriteSafetensors(dir + "/model.safetensors", list, {});
}

/// ["class 0", "class 1", ...]
inline std::string LabelsJson(int64_t n_classes) {
  std::string json;
  for (int64_t i = 0; i < n_classes; ++i) {
    json += (i == 0 ? "[\"class " : ",\"class ") + std::to_string(i) + "\"";
  }
  return json + "]";
}

inline void WriteModel(const std::string& dir, const ModelConfig& config,
                       const Tensors& tensors) {
  WriteFileAtomically(dir + "/config.json", ConfigToJson(config));
  if (config.task == Task::kClassify) {
    WriteFileAtomically(dir + "/labels.json", LabelsJson(config.n_classes));
  }
  WriteTensors(dir, config, tensors);
}

inline std::vector<int32_t> RandomTokens(const ModelConfig& config,
                                         int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(
        rng.Below(static_cast<uint64_t>(config.vocab_size))));
  }
  return tokens;
}

/// One configuration of a parametrised test: its name, and what it changes.
struct ConfigVariant {
  const char* name;
  std::function<void(ModelConfig&)> change;
};

inline void PrintTo(const ConfigVariant& variant, std::ostream* out) {
  *out << variant.name;
}

}  // namespace tarn::testing
