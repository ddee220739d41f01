#include "runtime/weights/weight_plan.h"

#include "core/error.h"
#include "weights/quantised/group_encodings.h"

namespace tarn {
namespace {

constexpr int kByteBits = 8;
// Of matrices that need 8 bits where the others have fewer.
constexpr GroupScheme kByteScheme = {kByteBits, 64, false};

// That holds the blocks of a scheme: there is one for every scheme of an
// encoding.
const WeightFormat& Holding(const GroupScheme& scheme) {
  const WeightFormat* format = FormatOf(scheme);
  if (format == nullptr) {
    throw ArgumentError(
        "WeightPlan: scheme", "one of GroupFormats()",
        StrCat(scheme.bits, " bits in groups of ", scheme.group));
  }
  return *format;
}

// Whether a format is the exact one of another.
bool IsExact(const WeightFormat* format) {
  if (format == nullptr || format->scheme == nullptr) return false;
  const WeightFormat* other = FormatOf(*format->scheme);
  return other != nullptr && other->exact == format;
}

bool IsBF16(const WeightTensor& tensor) {
  return tensor.encoding == &kBF16Encoding;
}

// The format of a tensor of numbers; float32 where it does not fit groups.
const WeightFormat& Rounding(const GroupScheme& scheme,
                             const WeightTensor& tensor) {
  const auto fitting = FittingScheme(scheme, tensor.shape);
  return fitting ? Holding(*fitting) : kF32Weights;
}

}  // namespace

WeightPlan::WeightPlan(const ModelConfig& config, const WeightFormat* wanted,
                       bool exact)
    : wanted_(wanted),
      exact_(exact || IsExact(wanted)),
      precise_(WeightPrecisions(config)) {}

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
    return tensor.encoding->numbers > 1 || IsBF16(tensor) ? kBF16Weights
                                                          : kF32Weights;
  }
  const GroupScheme* scheme = wanted_->scheme;
  if (scheme == nullptr) return *wanted_;
  if (stored != nullptr && stored->bits == scheme->bits) {
    return Holding(*stored);
  }
  const auto precise = precise_.find(tensor.name);
  switch (precise == precise_.end() ? Precision::kGroups : precise->second) {
    case Precision::kFloat:
      return kF32Weights;
    case Precision::kByte:
      if (stored != nullptr && stored->bits == kByteBits) {
        return Holding(*stored);
      }
      if (scheme->bits < kByteBits) return Rounding(kByteScheme, tensor);
      break;
    case Precision::kGroups:
      break;
  }
  return Rounding(*scheme, tensor);
}

const WeightFormat& EquivalentFormat(const WeightTensor& tensor,
                                     const WeightFormat& held) {
  return &held == &kBF16Weights && IsBF16(tensor) ? kF32Weights : held;
}

}  // namespace tarn
