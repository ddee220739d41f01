#include "runtime/state/cross_memory.h"

#include "runtime/state/float_runs.h"
#include "runtime/model/supported.h"

namespace tarn {
namespace {

int64_t Features(const ModelConfig& config) {
  return FeatureWidth(config.feature_map, config.d_key, config.n_dims);
}

}  // namespace

CrossMemory::CrossMemory(const ModelConfig& config, int64_t source_len)
    : source_len_(source_len),
      heads_(config.n_heads),
      d_key_(config.d_key),
      d_value_(config.d_value),
      d_feature_(Features(config)),
      head_floats_(HeadFloats(config, source_len)),
      block_(DecoderLayers(config) * config.n_heads * head_floats_) {}

int64_t CrossMemory::HeadFloats(const ModelConfig& config, int64_t source_len) {
  if (config.cross_attention == CrossAttention::kFull) {
    return source_len * (config.d_key + config.d_value);
  }
  const int64_t norm_sum = config.denominator == Denominator::kSigned ? 1 : 0;
  return Features(config) * (config.d_value + 1) + norm_sum;
}

int64_t CrossMemory::FixedBytes(const ModelConfig& config) {
  return DecoderLayers(config) * config.n_heads * HeadFloats(config, 0) * 4;
}

int64_t CrossMemory::BytesPerToken(const ModelConfig& config) {
  return DecoderLayers(config) * config.n_heads *
         (HeadFloats(config, 1) - HeadFloats(config, 0)) * 4;
}

uint64_t CrossMemory::Hash() const {
  return MixFloats(MixHash(0, static_cast<uint64_t>(source_len_)),
                   block_.data(), block_.size());
}

bool CrossMemory::SameBits(const CrossMemory* a, const CrossMemory* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return a->source_len_ == b->source_len_ &&
         a->block_.size() == b->block_.size() &&
         SameFloats(a->block_.data(), b->block_.data(), a->block_.size());
}

}  // namespace tarn
