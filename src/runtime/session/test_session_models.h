// Small random models whose sessions are tested: every mixer that has a state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "reference/test_model.h"
#include "runtime/mixer/mixer.h"
#include "runtime/session/loaded_model.h"

namespace tarn::testing {

struct SessionVariant {
  std::string name, layers;
  const char* weights = "f32";
  CacheType cache = CacheType::kF32;
  int64_t every_token = 0;
  bool mtp = false;  // with an extra prediction head
};

inline void PrintTo(const SessionVariant& variant, std::ostream* out) {
  *out << variant.name;
}

inline ModelConfig SessionConfig(const std::string& layers) {
  ModelConfig config = SmallConfig();
  config.vocab_size = 61;
  config.d_model = 32;
  config.n_heads = 2;
  config.d_key = 8;
  config.d_value = 8;
  config.d_ff = 40;
  config.positions = Positions::kRotary;
  config.tokenizer = TokenizerKind::kIds;
  SetLayers(config, layers);
  if (layers.starts_with("aft-simple")) config.positions = Positions::kLearned;
  config.max_positions = 4096;
  config.n_layers =
      std::max<int64_t>(2, static_cast<int64_t>(config.layers.size()));
  SetRmsSwiglu(config);
  FinishConfig(config);
  return config;
}

inline LoadedModel OpenSessionModel(const std::string& dir,
                                    const ModelConfig& config,
                                    const SessionVariant& variant) {
  Tensors tensors = RandomTensors(config, 1);
  if (variant.mtp) tensors.merge(RandomTensors(MtpShapes(config), 2));
  WriteModel(dir, config, tensors);
  WriteFileAtomically(dir + "/tokenizer.json",
                      Tokenizer::Ids(config.vocab_size).ToJson());
  return LoadedModel::Open(ModelPath(dir),
                           {.weights = ParseWeightType("test", variant.weights),
                            .threads = 2,
                            .cache = variant.cache})
      .Take();
}

// Every mixer of the registry that a decoder may have, each with layers whose
// states have another form; and hybrids, quantised weights, rounded caches.
inline std::vector<SessionVariant> SessionVariants() {
  std::vector<SessionVariant> variants;
  for (const char* name : MixerNames()) {
    if (FindRuntimeMixer(name) == nullptr) continue;
    std::string word;
    for (const char* c = name; *c != '\0'; ++c) {
      if (*c != '-') word += *c;
    }
    const bool local = std::string(name) == "local";
    variants.push_back(
        {word, StrCat(name, local ? ":local_context=20" : "", ",linear")});
  }
  variants.push_back({"Hybrid", "gdn,full,mamba2", "f32", CacheType::kF32, 5});
  variants.push_back({"HybridInt8", "gdn,full:key_heads=1,rwkv7", "int8",
                      CacheType::kInt8, 3});
  variants.push_back({"Int8", "mamba2,linear", "int8", CacheType::kF32, 1});
  variants.push_back({"Parallel", "mamba2+full,linear", "bf16"});
  return variants;
}

}  // namespace tarn::testing
