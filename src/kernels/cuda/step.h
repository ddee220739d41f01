// Recurrent form of linear and decaying attention: tokens one after the other
// on states in memory, each read and written once.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/feature_map.h"
#include "kernels/cuda/chunk_gates.h"
#include "kernels/cuda/sequences.h"
#include "kernels/cuda/stream.h"

namespace tarn::cuda {

struct Step {
  int64_t batch = 0, seq_len = 0;
  int value_heads = 0;
  DeviceRows queries, keys, values, out;
  FeatureMap map = FeatureMap::kIdentity;
  GateRows gates;
  const int64_t *lengths = nullptr;  // [B]: tokens in use, or all
  // States [slots, HV, K, V]; z [slots, HV, K], or null: no denominators.
  const float *S = nullptr, *z = nullptr;
  float *next_S = nullptr, *next_z = nullptr;
  const int64_t *read_slots = nullptr, *write_slots = nullptr;  // [B]
  Denominator denominator = Denominator::kNone;
  float scale = 1.0f, eps = 0.0f;
};

void Run(const Step &step, DType dtype, CudaStream stream);

}  // namespace tarn::cuda
