// Linear attention to a whole sequence at once: sums over its keys that are
// built once and read by any number of queries (an encoder's own, or a
// decoder's).
#pragma once

#include <cstdint>

#include "mixers/linear/runtime_form.h"
#include "runtime/mixer/mixer_block.h"

namespace tarn::mixers {

/// S = sum phi(k) v^T [C, V], z = sum phi(k) [C], sum ||phi(k)||.
struct LinearMemory {
  const float* S = nullptr;
  const float* z = nullptr;
  float norm_sum = 0.0f;
};

/// Floats of scratch, 64-byte aligned, that BuildLinearMemory needs. Reading
/// needs RowStride(d_feature) where features are made outside the kernel.
int64_t BuildLinearMemoryFloats(const LinearForm& form, int64_t d_key,
                                int64_t d_value);

/// Fills S [C, V], z [C] and norm_sum (only for forms that carry it) from keys
/// [count, d_key] and values [count, d_value]. The bits depend on these alone.
void BuildLinearMemory(const LinearForm& form, HeadRows keys, HeadRows values,
                       int64_t d_key, int64_t d_value, float* S, float* z,
                       float* norm_sum, float* scratch);

/// out[i] [d_value] for queries[i] [d_key]: phi(q)^T S over its denominator.
/// Each row's bits depend on that row and the memory alone.
void ReadLinearMemory(const LinearForm& form, const LinearMemory& memory,
                      HeadRows queries, HeadRows out, int64_t d_value,
                      float* scratch);

}  // namespace tarn::mixers
