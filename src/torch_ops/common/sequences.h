// The values of lengths and of the bounds of packed sequences, checked where they
// can be read: kernels check their own, composed forms have nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tarn::ops {

/// Throws ArgumentError naming op and argument unless lengths [B] are 0 to seq_len
/// and cu_seqlens [N + 1] rises from 0 to seq_len. While a compiler traces, and for
/// tensors without data, nothing is read and nothing thrown. Waits for a device.
void CheckSequences(const char* op, const std::optional<at::Tensor>& lengths,
                    const std::optional<at::Tensor>& cu_seqlens,
                    int64_t seq_len);

}  // namespace tarn::ops
