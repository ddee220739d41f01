// The attention layer: four projections around one attention operator, for a
// whole sequence, for a memory, and piece by piece with a state.
#pragma once

#include <torch/torch.h>

#include <utility>

#include "config/model_config.h"
#include "torch_nn/state/attention_state.h"
#include "torch_nn/layers/positions.h"
#include "torch_ops/softmax/attention.h"

namespace tarn::nn {

/// Where in the model an attention layer stands.
struct AttentionPlace {
  bool causal = true;  // self-attention of a decoder stack
  bool cross = false;  // keys and values come from a memory
  int64_t index = 0;   // its number in the model: what it draws depends on it
};

/// Owns query_projection and key_projection [H K, D], value_projection [H V,
/// D] and out_projection [D, H V], each with a bias; head h is the h-th block
/// of K (or V) rows. The kind is config.attention. Kinds with tensors of their own hold them under
/// `inner_attention` (docs/models.md). Clustered and reformer kinds hash by
/// place.index in eval mode, by torch's default generator in training: results
/// in eval mode are a function of the input. Not thread-safe while training;
/// calls in eval mode change nothing.
class AttentionLayerImpl : public torch::nn::Module {
 public:
  /// config: finished, as the layer sees it (LayerView or, in cross attention,
  /// CrossView); throws ArgumentError otherwise.
  explicit AttentionLayerImpl(const ModelConfig& config,
                              AttentionPlace place = {});

  /// Self-attention: x [B, T, d_model] -> [B, T, d_model], dtype and device of
  /// x. `rotary`: MakeRotaryTable(config, T, x). `key_mask` [B, T] bool, true =
  /// keep, undefined: all; what is not kept has no influence, NaN included.
  /// Attention dropout acts in training mode on the softmax kinds only.
  torch::Tensor forward(const torch::Tensor& x, const RotaryTable& rotary = {},
                        const torch::Tensor& key_mask = {});

  /// forward without the bias of out_projection, for a caller that adds it in
  /// a later pass (ops::ResidualNorm).
  torch::Tensor Unbiased(const torch::Tensor& x, const RotaryTable& rotary = {},
                         const torch::Tensor& key_mask = {});

  /// Cross attention. The state of memory [B, S, d_model] under key_mask [B, S]
  /// is made once; reading never changes it. Throws ArgumentError for kinds
  /// other than linear and full.
  AttentionState MemoryState(const torch::Tensor& memory,
                             const torch::Tensor& key_mask = {}) const;
  /// x [B, T, d_model] -> [B, T, d_model], as Unbiased. Each query depends on
  /// itself and the memory alone.
  torch::Tensor Read(const torch::Tensor& x, const AttentionState& memory);

  /// The recurrent form of causal self-attention. Throws ArgumentError with the
  /// reason for a kind that has none.
  AttentionState InitialState(int64_t batch) const;
  /// Takes in T more tokens, x [B, T, d_model] of which the first lengths[b]
  /// count (undefined: all); rows past them are unspecified. Equals Unbiased on
  /// everything taken in so far. `rotary`: the table of these tokens' places.
  /// T = 1 is a step, T = 0 changes nothing. Linear: O(T) time; kinds that
  /// keep keys: O(T (T + t)).
  std::pair<torch::Tensor, AttentionState> Prefill(
      const torch::Tensor& x, const AttentionState& state,
      const RotaryTable& rotary = {}, const torch::Tensor& lengths = {});

  /// Draws the random features of an update anew where config.redraw says so
  /// (config.feature_seed, place and step decide); nothing for maps without.
  /// See ModelImpl.
  void Redraw(int64_t step);

  AttentionKind kind() const { return kind_; }

  torch::nn::Linear query_projection{nullptr}, key_projection{nullptr},
      value_projection{nullptr}, out_projection{nullptr};

 private:
  struct Heads {
    torch::Tensor queries, keys, values;  // [B, T, H, K], [B, T, H, V]
  };
  // One product for all three: [B, T, H (2 K + V)].
  torch::Tensor ProjectPacked(const torch::Tensor& x) const;
  Heads Split(const torch::Tensor& packed) const;
  void CheckInput(const char* name, const torch::Tensor& x) const;
  // The whole sequence, [B, T, H V].
  torch::Tensor Attend(const torch::Tensor& packed, const RotaryTable& rotary,
                       const torch::Tensor& key_mask) const;
  torch::Tensor AttendLinear(const Heads& heads, const RotaryTable& rotary,
                             const torch::Tensor& key_mask) const;
  // The other kinds, on turned heads; query i may read keys up to i + offset
  // where causal.
  torch::Tensor AttendKind(const Heads& heads, const torch::Tensor& key_mask,
                           bool causal, int64_t offset) const;
  torch::Tensor AttendClustered(const Heads& heads,
                                const torch::Tensor& key_mask) const;
  torch::Tensor AttendReformer(const Heads& heads,
                               const torch::Tensor& key_mask,
                               bool causal) const;
  // w_ij of aft-full for i in [first, first + rows), j < columns.
  torch::Tensor PositionBias(int64_t first, int64_t rows,
                             int64_t columns) const;
  ops::SoftmaxOptions Softmax() const;
  int64_t HashSeed() const;
  void RegisterInner();
  void Draw(int64_t step);
  // As Attend for tokens that follow a state, which they advance; `lengths`
  // holds how many count.
  torch::Tensor PrefillLinear(const Heads& heads, const RotaryTable& rotary,
                              const torch::Tensor& lengths,
                              AttentionState& state) const;
  torch::Tensor PrefillKept(const Heads& heads, const torch::Tensor& added,
                            AttentionState& state) const;
  torch::Tensor PrefillLocal(const Heads& all, const torch::Tensor& key_mask,
                             int64_t before) const;
  torch::Tensor PrefillAftFull(const Heads& heads, const torch::Tensor& added,
                               const AttentionState& state) const;
  torch::Tensor PrefillAftSimple(const Heads& heads, const torch::Tensor& added,
                                 AttentionState& state) const;

  ModelConfig config_;
  AttentionPlace place_;
  AttentionKind kind_;
  torch::Tensor omega_;  // buffer, random feature maps only
  torch::Tensor u_, v_;  // parameters, aft-full only
};
TORCH_MODULE(AttentionLayer);

}  // namespace tarn::nn
