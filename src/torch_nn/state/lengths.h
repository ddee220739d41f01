// Lengths of the sequences of a batch, as masks.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace tarn::nn {

/// [B, size] bool, true for the first lengths[b] entries of row b; undefined
/// for undefined lengths. Throws ShapeError, DTypeError or ArgumentError
/// ("where: lengths") unless lengths is [B] int64 in [0, size].
torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         int64_t batch, int64_t size);

}  // namespace tarn::nn
