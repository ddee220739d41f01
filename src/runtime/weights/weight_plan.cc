#include "runtime/weights/weight_plan.h"

#include "core/error.h"

namespace tarn {
namespace {

constexpr int kByteBits = 8;
// Of matrices that need 8 bits where the others have fewer.
constexpr GroupScheme kByteScheme = {kByteBits, 64, false};

// That holds the blocks of a scheme, one of which there is for every scheme of
// an encoding.
const WeightFormat& Holding(const GroupScheme& scheme) {
  const WeightFormat* format = FormatOf(scheme);
  if (format == nullptr) {
    throw ArgumentError("WeightPlan: scheme", "one of GroupFormats()",
                        StrCat(scheme.bits, " bits in groups of ",
                               scheme.group));
  }
  return *format;
}

}  // namespace

WeightPlan::WeightPlan(const ModelConfig& config, const WeightFormat* wanted,
                       bool exact)
    : wanted_(wanted), exact_(exact), precise_(WeightPrecisions(config)) {}

const WeightFormat& WeightPlan::base() const {
  if (wanted_ == nullptr) return kF32Weights;
  return exact_ ? ExactFormat(*wanted_) : *wanted_;
}

const WeightFormat& WeightPlan::FormatOf(const WeightTensor& tensor) const {
  const WeightFormat& held = Held(tensor);
  return exact_ ? ExactFormat(held) : held;
}

const WeightFormat& WeightPlan::Held(const WeightTensor& tensor) const {
  const GroupScheme* stored = tensor.encoding->scheme;
  if (wanted_ == nullptr) {
    if (stored != nullptr) return Holding(*stored);
    return tensor.encoding->numbers > 1 ? kBF16Weights : kF32Weights;
  }
  const GroupScheme* scheme = wanted_->scheme;
  if (scheme == nullptr) return *wanted_;
  if (stored != nullptr && stored->bits == scheme->bits) {
    return Holding(*stored);
  }
  const auto precise = precise_.find(tensor.name);
  if (precise == precise_.end()) return *wanted_;
  switch (precise->second) {
    case Precision::kFloat:
      return kF32Weights;
    case Precision::kByte:
      if (stored != nullptr && stored->bits == kByteBits) {
        return Holding(*stored);
      }
      if (scheme->bits < kByteBits) return Holding(kByteScheme);
      break;
    case Precision::kGroups:
      break;
  }
  return *wanted_;
}

}  // namespace tarn
