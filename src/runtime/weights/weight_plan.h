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
  /// scheme, those in other blocks are widened to bf16, and others to float32.
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

}  // namespace tarn
