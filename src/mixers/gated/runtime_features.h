// The features of form_features.h in the runtime: those of some heads of a row.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "mixers/gated/form_features.h"
#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

/// phi of queries, or of keys. Immutable once made; allocates nothing later.
class RuntimeFeatures {
 public:
  RuntimeFeatures() = default;
  /// side: "query" or "key", as its tensors begin.
  RuntimeFeatures(const QkFeatures& phi, const char* side, bool unit,
                  MixerTensors& tensors);

  int64_t bytes() const { return map_.bytes() + factor_.bytes(); }
  /// from [heads, K] and to [heads, C], the heads of a row next to each other;
  /// scratch: heads * K floats where phi.has_factor(). An entry's bits do not
  /// depend on how many heads a call has.
  void Run(const float* from, int64_t heads, float* scratch, float* to) const;

 private:
  void Map(const float* from, int64_t heads, float* scratch, float* to) const;
  void Product(const WeightMatrix& w, const float* from, int64_t heads,
               float* to, int64_t stride) const;

  QkFeatures phi_;
  bool unit_ = false;
  WeightMatrix map_, factor_;
};

}  // namespace tarn::mixers
