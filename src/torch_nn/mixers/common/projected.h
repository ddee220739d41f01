// What the attention mixers have in common: four projections around the heads.
#pragma once

#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"
#include "torch_ops/softmax/attention.h"

namespace tarn::nn {

/// x, or norm(x) where there is one, times some weights side by side.
torch::Tensor ProjectRows(const torch::Tensor& x, const NormLayer* norm,
                          std::vector<torch::Tensor> weights,
                          std::vector<torch::Tensor> biases = {});

/// Rows of every head, after projection.
struct Heads {
  torch::Tensor queries, keys, values;  // [B, T, H, K], [B, S, H, K or V]
};

/// Owns query_projection and key_projection [H K, D], value_projection [H V,
/// D] and out_projection [D, H V], each with a bias; head h is the h-th block
/// of K (or V) rows. Mixers with tensors of their own hold them under
/// `inner_attention` (docs/models.md).
class ProjectedMixer : public Mixer {
 public:
  ProjectedMixer(const ModelConfig& layer, MixerPlace place);
  torch::Tensor OutputBias() const override { return out_projection->bias; }
  torch::Tensor OutputWeight() const override { return out_projection->weight; }

  torch::nn::Linear query_projection{nullptr}, key_projection{nullptr},
      value_projection{nullptr}, out_projection{nullptr};

 protected:
  /// A whole sequence: heads -> [B, T, H, V].
  virtual torch::Tensor AttendHeads(const Heads& heads,
                                    const RotaryTable& rotary,
                                    const torch::Tensor& key_mask) = 0;
  /// The same from queries, keys and values as one product writes them,
  /// packed [B, T, H (2 K + V)] -> [B, T, H V].
  virtual torch::Tensor AttendPacked(const torch::Tensor& packed,
                                     const RotaryTable& rotary,
                                     const torch::Tensor& key_mask);
  /// Takes tokens that follow a state and advances it: [B, T, H, V].
  virtual torch::Tensor ContinueHeads(const Heads& heads,
                                      const RotaryTable& rotary,
                                      const NewTokens& taken,
                                      MixerState& state);
  /// Puts the keys and values of a memory into its state.
  virtual void FillHeads(const torch::Tensor& keys, const torch::Tensor& values,
                         const torch::Tensor& key_mask,
                         MixerState& state) const;
  /// queries [B, T, H, K] -> [B, T, H, V].
  virtual torch::Tensor ReadHeads(const torch::Tensor& queries,
                                  const MixerState& memory);

  /// Fills `state`, that of no tokens, with what the earlier pieces of the
  /// sequence leave; its lengths are set by the caller. heads: of the piece
  /// here. Refuses by default.
  virtual void StateBefore(const Heads& heads, const RotaryTable& rotary,
                           const SequenceCut& cut, MixerState& state);

  /// Draws by the key attention_dropout, in training mode only.
  ops::Dropout DrawAttentionDropout() const;

  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) final;
  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext& context,
                          const torch::Tensor& key_mask) final;
  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) final;
  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) final;
  void FillMemory(const torch::Tensor& memory, const torch::Tensor& key_mask,
                  MixerState& state) const final;
  torch::Tensor ReadMemory(const torch::Tensor& x,
                           const MixerState& memory) final;

 private:
  torch::Tensor ProjectPacked(const torch::Tensor& x,
                              const NormLayer* norm = nullptr) const;
  Heads Split(const torch::Tensor& packed) const;

  const double attention_dropout_;
};

/// Queries and keys rotated by the table; unchanged without one.
Heads Turned(const Heads& heads, const RotaryTable& rotary);

ops::AttentionMasks Masks(const torch::Tensor& key_mask, bool causal,
                          int64_t offset);

}  // namespace tarn::nn
