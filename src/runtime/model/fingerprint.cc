#include "runtime/model/fingerprint.h"

#include <algorithm>
#include <string>

#include "config/identity.h"
#include "core/hash.h"

namespace tarn {

uint64_t ModelFingerprint(const SafetensorsFile& file,
                          const ModelConfig& config, DType held) {
  constexpr uint64_t kBlock = 64, kSteps = 16;
  uint64_t hash = Mix(HashBytes(ConfigIdentity(config)));
  hash = Mix(hash ^ static_cast<uint64_t>(held));
  // Uses the model's order: the order in the file does not change a model.
  for (const auto& [name, shape] : WeightShapes(config)) {
    const TensorEntry* entry = file.Find(name);
    if (entry == nullptr) continue;  // CheckWeights refuses such a file
    const std::string text =
        StrCat(name, DTypeName(entry->dtype), ShapeText(shape));
    hash = ExtendHash(hash, text);
    const uint64_t bytes = entry->end - entry->begin;
    const uint64_t block = std::min(bytes, kBlock), last = bytes - block;
    for (uint64_t i = 0; i <= kSteps; ++i) {
      // Quotient and remainder are taken apart: last * i might wrap.
      const uint64_t at = last / kSteps * i + last % kSteps * i / kSteps;
      const auto* from = reinterpret_cast<const char*>(file.Data(*entry) + at);
      hash = ExtendHash(hash, {from, static_cast<size_t>(block)});
    }
  }
  return hash;
}

}  // namespace tarn
