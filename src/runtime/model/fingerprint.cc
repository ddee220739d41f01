#include "runtime/model/fingerprint.h"

#include <algorithm>
#include <string>

#include "config/identity.h"
#include "core/hash.h"

namespace tarn {

uint64_t ModelFingerprint(const WeightSource& source, const ModelConfig& config,
                          const WeightFormat& held) {
  constexpr int64_t kBlock = 64, kSteps = 16;
  uint64_t hash = Mix(HashBytes(ConfigIdentity(config)));
  hash = Mix(hash ^ static_cast<uint64_t>(held.id));
  // Uses the model's order: the order in the file does not change a model.
  for (const auto& [name, shape] : WeightShapes(config)) {
    const WeightTensor* tensor = source.Find(name);
    if (tensor == nullptr) continue;  // CheckWeights refuses such a source
    const std::string text =
        StrCat(name, tensor->encoding->name, ShapeText(shape));
    hash = ExtendHash(hash, text);
    const int64_t bytes = tensor->bytes();
    const int64_t block = std::min(bytes, kBlock), last = bytes - block;
    for (int64_t i = 0; i <= kSteps; ++i) {
      // Quotient and remainder are taken apart: last * i might wrap.
      const int64_t at = last / kSteps * i + last % kSteps * i / kSteps;
      uint8_t part[kBlock];
      source.ReadBytes(*tensor, at, block, part);
      hash = ExtendHash(hash, {reinterpret_cast<const char*>(part),
                               static_cast<size_t>(block)});
    }
  }
  return hash;
}

uint64_t HeldFingerprint(uint64_t fingerprint, const WeightFormat& held,
                         const std::vector<HeldTensor>& tensors) {
  for (const HeldTensor& tensor : tensors) {
    const int id = tensor.equivalent->id;
    if (id == held.id) continue;
    fingerprint = ExtendHash(fingerprint, StrCat(tensor.name, " ", id));
  }
  return fingerprint;
}

}  // namespace tarn
