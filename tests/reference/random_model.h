// A model directory with random weights, for tests only.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "text/tokenizer.h"

namespace tarn {

/// A small model: 2 layers, 16 wide, byte tokens.
inline ModelConfig TinyConfig(AttentionKind attention) {
  ModelConfig config;
  config.d_model = 16;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_ff = 24;
  config.max_positions = 512;
  config.attention = attention;
  FinishConfig(config);
  return config;
}

/// The same for another architecture; three classes where it has classes.
inline ModelConfig TinyConfig(Arch arch) {
  ModelConfig config = TinyConfig(MixerKind("linear"));
  config.arch = arch;
  config.task = Task::kDerived;
  if (arch == Arch::kEncoder) config.n_classes = 3;
  FinishConfig(config);
  return config;
}

/// A model that labels frames of 5 numbers: the blank and two symbols.
inline ModelConfig TinyFramesConfig() {
  ModelConfig config = TinyConfig(MixerKind("linear"));
  config.arch = Arch::kEncoder;
  config.task = Task::kCtc;
  config.n_classes = 3;
  config.input_dim = 5;
  FinishConfig(config);
  return config;
}

/// An image model for images of 6 x 4 grey pixels.
inline ModelConfig TinyImageConfig(AttentionKind attention) {
  ModelConfig config = TinyConfig(attention);
  config.task = Task::kImage;
  config.image_height = 6;
  config.image_width = 4;
  config.image_channels = 1;
  FinishConfig(config);
  return config;
}

/// Writes config.json, tokenizer.json, model.safetensors and, for classify and
/// ctc, labels.json ("label 0", ...; ctc's first is "") into `dir`, which is
/// created if necessary. Weights are uniform in [-0.5, 0.5). mtp: with an extra
/// prediction head.
inline void WriteRandomModel(const std::string& dir, const ModelConfig& config,
                             const Tokenizer& tokenizer, uint64_t seed,
                             bool mtp = false) {
  std::filesystem::create_directories(dir);
  Rng rng(seed);
  std::vector<std::vector<float>> data;
  std::vector<TensorToWrite> tensors;
  std::vector<NamedShape> shapes = WeightShapes(config);
  if (mtp) {
    const std::vector<NamedShape> head = MtpShapes(config);
    shapes.insert(shapes.end(), head.begin(), head.end());
  }
  for (const auto& [name, shape] : shapes) {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    std::vector<float> values(elements);
    for (float& x : values) x = static_cast<float>(rng.Uniform() - 0.5);
    data.push_back(std::move(values));
    // The buffer stays where it is when `data` grows: vectors move.
    tensors.push_back({name, DType::kF32, shape, data.back().data()});
  }
  WriteSafetensors(dir + "/model.safetensors", tensors, {{"format", "pt"}});
  WriteFileAtomically(dir + "/config.json", ConfigToJson(config));
  WriteFileAtomically(dir + "/tokenizer.json", tokenizer.ToJson());
  const bool blank = config.task == Task::kCtc;
  if (config.task != Task::kClassify && !blank) return;
  std::string labels;
  for (int64_t i = 0; i < config.n_classes; ++i) {
    const std::string label = blank && i == 0 ? "" : StrCat("label ", i);
    labels += StrCat(i == 0 ? "[" : ",", "\"", label, "\"");
  }
  WriteFileAtomically(dir + "/labels.json", labels + "]\n");
}

}  // namespace tarn
