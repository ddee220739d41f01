// The values of lengths and of the bounds of packed sequences, checked where
// they can be read: kernels check their own, composed forms have nothing else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <optional>

namespace tarn::ops {

/// x as dense int64 on the CPU.
at::Tensor HostLongs(const at::Tensor& x);

/// Throws ArgumentError naming op and argument unless lengths [B] are 0 to
/// seq_len and cu_seqlens [N + 1] rises from 0 to seq_len. Lengths on other
/// devices than the CPU, and what a compiler follows, pass unread.
void CheckSequences(const char* op, const std::optional<at::Tensor>& lengths,
                    const std::optional<at::Tensor>& cu_seqlens,
                    const c10::SymInt& seq_len);

/// Where the sequences of a call are in the list of its B T tokens, as tensors:
/// no bound is read on the host, so that compilers can follow.
struct TokenSequences {
  c10::SymInt count;
  at::Tensor first, end;  // [count]: of the tokens in use
  at::Tensor of_token;    // [B T]: the sequence of each
};

/// tokens [B, T, ...]: any tensor of the call.
TokenSequences SequencesOf(const at::Tensor& tokens,
                           const std::optional<at::Tensor>& lengths,
                           const std::optional<at::Tensor>& cu_seqlens);

}  // namespace tarn::ops
