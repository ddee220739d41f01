// Lengths of the sequences of a batch, as masks.
#pragma once

#include <cstdint>

#include "torch_nn/torch.h"

namespace tarn::nn {

/// Throws ShapeError, DTypeError or ArgumentError ("where: lengths") unless
/// lengths, where defined, is [B] int64 in [0, T] for rows [B, T, ...]. Reads
/// lengths, so it waits for them where they are on a device other than the CPU.
void CheckLengths(const char* where, const torch::Tensor& lengths,
                  const torch::Tensor& rows);

/// [B, T] bool on the device of rows [B, T, ...], true for the first lengths[b]
/// entries of row b; undefined for undefined lengths. Checks them.
torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         const torch::Tensor& rows);

/// x [B, T, ...] with zeros where `kept` [B, T] bool is false, NaN included; x
/// itself without a mask.
torch::Tensor Kept(const torch::Tensor& x, const torch::Tensor& kept);

}  // namespace tarn::nn
