// Which weight format each matrix of a model is held in.
#pragma once

#include <map>
#include <string>

#include "config/model_config.h"
#include "kernels/matmul/weight_format.h"
#include "weights/weight_source.h"

namespace tarn {

/// The formats of a model's tensors, where it holds them in matrices. A format
/// of groups holds most matrices, with smaller groups where that takes fewer
/// bytes (FittingScheme of group_encodings.h); what needs more
/// (WeightPrecisions of model_config.h) is held in int8 or float32. A tensor
/// that is stored in groups of as many bits as asked for keeps its own scheme:
/// no number changes.
class WeightPlan {
 public:
  /// wanted: null for what the source suggests: tensors in groups keep their
  /// scheme and those of bf16 numbers their numbers, those in other blocks are
  /// widened to bf16, and others to float32.
  /// exact: products in float32 also where a format has others.
  WeightPlan(const ModelConfig& config, const WeightFormat* wanted, bool exact);

  const WeightFormat& FormatOf(const WeightTensor& tensor) const;
  /// Of tensors of single numbers that need nothing else.
  const WeightFormat& base() const;

 private:
  const WeightFormat& Held(const WeightTensor& tensor) const;

  const WeightFormat* const wanted_;
  const bool exact_;
  const std::map<std::string, Precision> precise_;
};

/// The format that tells what a model computes with a tensor held in `held`:
/// float32 where bf16 holds the numbers of a bf16 tensor, as products widen
/// them exactly and add in the same order, and otherwise `held`.
const WeightFormat& EquivalentFormat(const WeightTensor& tensor,
                                     const WeightFormat& held);

}  // namespace tarn
