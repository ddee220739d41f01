// Gates of tokens as launches take them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tarn::cuda {

/// Gates [B, T, HV] of any type, or one for each head.
struct GateRows {
  const void* data = nullptr;
  int64_t stride[3] = {0, 0, 0};
  DType dtype = DType::kF32;
  const float* per_head = nullptr;
  constexpr bool Any() const { return data != nullptr || per_head != nullptr; }
};

}  // namespace tarn::cuda
