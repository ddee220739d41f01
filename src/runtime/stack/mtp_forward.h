// The forward pass of the extra prediction head (MtpConfig) over rows of one
// sequence.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/stack/forward.h"
#include "runtime/weights/mtp_weights.h"

namespace tarn {

/// Keeps its scratch from call to call. One thread at a time; the arguments
/// must outlive it.
class MtpForward {
 public:
  /// head: MtpConfig of the model's.
  MtpForward(const ModelConfig& head, const MtpWeights& weights,
             Executor& executor);

  /// Reads rows: hidden [tokens.size(), d_model], each the model's (or the
  /// head's own) at a token, and the token after it. state: of the head, which
  /// has room for them. logits: null, or [vocab_size] for the token after the
  /// last one; out: null, or the row [d_model] that they come from, after the
  /// norm. Tokens must be in [0, vocab_size). A row has the same bits in any
  /// call.
  void Run(SequenceState& state, std::span<const int32_t> tokens,
           const float* hidden, float* logits, float* out);

 private:
  const ModelConfig& config_;
  const MtpWeights& weights_;
  Executor& executor_;
  Forward forward_;
  AlignedBuffer<float> rows_;  // of a block: [d_model], then [2 d_model]
};

}  // namespace tarn
