// Mixers whose state is the keys and values of earlier tokens.
#pragma once

#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// The state is a cache, "keys" [B, t, H, K] and "values" [B, t, H, V], aligned
/// at the end: of t rows the last min(t, lengths[b]) are tokens of sequence b.
/// Costs O(T (T + t)).
class CachedMixer : public ProjectedMixer {
 public:
  using ProjectedMixer::ProjectedMixer;

 protected:
  /// Takes T new tokens that follow t in the cache. heads: those of the new
  /// tokens, turned; all: the same queries, and the keys and values of the
  /// cache followed by the new ones. Returns [B, T, H, V].
  virtual torch::Tensor AttendCache(const Heads& heads, const Heads& all,
                                    const torch::Tensor& added,
                                    const MixerState& state) = 0;

  torch::Tensor ContinueHeads(const Heads& heads, const RotaryTable& rotary,
                              const NewTokens& taken, MixerState& state) final;
  /// Keys and values of all earlier tokens, or of the window: every rank sends
  /// its own to all.
  void StateBefore(const Heads& heads, const RotaryTable& rotary,
                   const SequenceCut& cut, MixerState& state) final;
};

/// Which of t + T keys a row may read at all, [B, t + T] bool; undefined where
/// it may read every one. added [B] and state.lengths [B] as in
/// Mixer::NewTokens.
torch::Tensor CacheMask(const Heads& heads, const torch::Tensor& added,
                        const MixerState& state);

/// The same from `before` = t, rows [B, T, ...] and lengths.
torch::Tensor CacheMask(int64_t before, const torch::Tensor& rows,
                        const torch::Tensor& added,
                        const torch::Tensor& lengths);

/// The last `kept` tokens of each row, aligned at the end: row b of rows
/// [B, t + T, ...], T = `taken`, holds its tokens in [t - before[b], t +
/// added[b]).
torch::Tensor AlignAtEnd(const torch::Tensor& rows, const torch::Tensor& added,
                         int64_t taken, int64_t kept);

}  // namespace tarn::nn
