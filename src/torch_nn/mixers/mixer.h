// A mixer as a module: it maps rows of a layer to rows, for a whole sequence,
// for a memory, and piece by piece with a state. Each mixer is one class and
// each family one folder; what configurations say of it is in src/mixers
// under the same name.
#pragma once

#include <memory>
#include <utility>

#include "config/model_config.h"
#include "torch_nn/layers/norms.h"
#include "torch_nn/layers/positions.h"
#include "torch_nn/state/mixer_state.h"
#include "torch_nn/state/sequence_cut.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// Where in the model a mixer is.
struct MixerPlace {
  bool causal = true;  // a decoder stack: no row depends on later ones
  bool cross = false;  // keys and values come from a memory
  int64_t index = 0;   // its number in the model
  int64_t branch = 0;  // and among the parallel mixers of its layer

  /// What random draws depend on: another number for each mixer of a model.
  int64_t draw() const { return index + branch * kMostMixers; }
  /// More than a model can have without parallel ones.
  static constexpr int64_t kMostMixers = int64_t{1} << 14;
};

/// Rows that the first layer of a stack with such a mixer makes for the later
/// ones (MixerSpec::passed), during one call of the stack.
struct PassedRows {
  torch::Tensor rows;   // [B, T, W]; undefined before they are made
  torch::Tensor table;  // [layers, W], a row for each layer; the same

  /// The rows for x [B, T, d_model], `width` numbers each. Throws ArgumentError
  /// for null or rows that no layer has made, ShapeError for rows of others.
  static torch::Tensor Read(const PassedRows* passed, const torch::Tensor& x,
                            int64_t width);
  /// The table of so many layers and numbers each; throws the same.
  static torch::Tensor ReadTable(const PassedRows* passed, int64_t layers,
                                 int64_t width);
};

/// What a stack gives its mixers besides their rows.
struct MixerContext {
  MixerContext() = default;
  MixerContext(RotaryTable table, PassedRows* rows = nullptr)
      : rotary(std::move(table)), passed(rows) {}

  RotaryTable rotary;            // of the rows' places
  PassedRows* passed = nullptr;  // null: a layer that is called by itself
};

/// Which of how many layers of its stack a mixer is in: first values may
/// depend on it.
struct Depth {
  int64_t layer = 0, layers = 1;
};
Depth DepthOf(const ModelConfig& layer, const MixerPlace& place);

/// The base of every mixer. It checks what callers give and leaves the
/// arithmetic to four functions, which see x itself: a mixer owns its
/// projections and gates. Not thread-safe while training; calls in eval mode
/// change nothing, and their results are a function of the input.
class Mixer : public torch::nn::Module {
 public:
  /// layer: the finished config (FinishConfig) as the layer sees it (LayerView
  /// or, for cross attention, CrossView); throws ArgumentError otherwise.
  Mixer(const ModelConfig& layer, MixerPlace place);

  /// x [B, T, d_model] -> [B, T, d_model], dtype and device of x. `context`:
  /// the table MakeRotaryTable(config, T, x), and rows that layers pass on.
  /// `key_mask` [B, T] bool, true = keep, undefined: all; what is not kept has
  /// no influence, NaN included.
  torch::Tensor forward(const torch::Tensor& x,
                        const MixerContext& context = {},
                        const torch::Tensor& key_mask = {});
  /// forward without OutputBias, for a caller that adds it in a later pass
  /// (ops::ResidualNorm).
  torch::Tensor Unbiased(const torch::Tensor& x,
                         const MixerContext& context = {},
                         const torch::Tensor& key_mask = {});
  /// [d_model]; undefined for a mixer without an output bias.
  virtual torch::Tensor OutputBias() const { return {}; }
  /// Unbiased of norm(x) (null: of x) before the last product, for a caller
  /// that computes it together with what follows (ops::LayerRest): [B, T, V],
  /// Unbiased = rows OutputWeight^T.
  torch::Tensor Unprojected(const torch::Tensor& x,
                            const MixerContext& context = {},
                            const torch::Tensor& key_mask = {},
                            const NormLayer* norm = nullptr);
  /// Unprojected of a piece of a sequence that is cut over ranks: equals the
  /// rows of the piece in Unprojected of the whole. `rotary`: the table of the
  /// piece's places. All ranks call it. Throws ArgumentError for a mixer that
  /// is not causal or whose module cannot be cut.
  torch::Tensor UnprojectedPiece(const torch::Tensor& x, const SequenceCut& cut,
                                 const MixerContext& context = {},
                                 const NormLayer* norm = nullptr);
  /// The rows of the piece in Unbiased of the whole.
  torch::Tensor UnbiasedPiece(const torch::Tensor& x, const SequenceCut& cut,
                              const MixerContext& context = {});
  /// [d_model, V]; undefined for a mixer that ends otherwise: its rows need no
  /// further product.
  virtual torch::Tensor OutputWeight() const { return {}; }

  /// Cross attention. The state of memory [B, S, d_model] under key_mask [B, S]
  /// is made once; reading never changes it. `lengths` [B]: how many rows the
  /// mask keeps, where the caller knows it; counting them waits for the device.
  /// Throws ArgumentError for a mixer that reads no memory.
  MixerState MemoryState(const torch::Tensor& memory,
                         const torch::Tensor& key_mask = {},
                         const torch::Tensor& lengths = {}) const;
  /// x [B, T, d_model] -> [B, T, d_model], as Unbiased. Each row depends on
  /// itself and the memory alone.
  torch::Tensor Read(const torch::Tensor& x, const MixerState& memory);
  /// The same as Unprojected: [B, T, V].
  torch::Tensor ReadUnprojected(const torch::Tensor& x,
                                const MixerState& memory);

  /// The recurrent form of causal mixers. Throws ArgumentError with the reason
  /// for a mixer that has none.
  MixerState InitialState(int64_t batch) const;
  /// Takes in T more tokens, x [B, T, d_model] of which the first lengths[b]
  /// count (undefined: all); rows past them are unspecified. Equals Unbiased on
  /// everything taken in so far. `rotary`: the table of these tokens' places.
  /// T = 1 is a step, T = 0 changes nothing.
  std::pair<torch::Tensor, MixerState> Prefill(
      const torch::Tensor& x, const MixerState& state,
      const MixerContext& context = {}, const torch::Tensor& lengths = {});

  /// Called before update `step`: redraws the tensors that are drawn and not
  /// trained, where the options say so. See ModelImpl::RedrawFeatures.
  virtual void Redraw(int64_t /*step*/) {}

  AttentionKind kind() const { return config_.attention; }
  /// Null for a mixer without a recurrent form.
  std::shared_ptr<const StateForm> state_form() const { return state_form_; }

 protected:
  /// Valid lengths of the new tokens: which of the T count.
  struct NewTokens {
    torch::Tensor lengths;  // [B] int64 on the device of x; undefined: all
    torch::Tensor added;    // the same filled in, on the CPU
  };

  /// Does what Unprojected does, with arguments that are already checked.
  virtual torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                            const torch::Tensor& key_mask) = 0;
  /// Mix of norm(x), for mixers that compute the norm together with their first
  /// product.
  virtual torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                                  const MixerContext& context,
                                  const torch::Tensor& key_mask);
  /// UnprojectedPiece of norm(x) (null: of x): called only for causal mixers.
  virtual torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                                 const MixerContext& context,
                                 const NormLayer* norm);
  /// Prefill before OutputWeight: replaces the tensors of `state`; its lengths
  /// are left to the caller. Called only where the spec has a state.
  virtual torch::Tensor Continue(const torch::Tensor& x,
                                 const MixerContext& context,
                                 const NewTokens& taken, MixerState& state);
  /// MemoryState and ReadUnprojected: called only where memory_form_ is set.
  virtual void FillMemory(const torch::Tensor& memory,
                          const torch::Tensor& key_mask,
                          MixerState& state) const;
  virtual torch::Tensor ReadMemory(const torch::Tensor& x,
                                   const MixerState& memory);
  /// Ends the sentence "'name', ..." about a mixer without a recurrent form.
  virtual const char* WhyNotRecurrent() const {
    return "which has no recurrent form";
  }

  const ModelConfig config_;
  const MixerPlace place_;
  /// The form of its layer's states (LayerState), of which a mixer replaces the
  /// tensors of its spec; null without a recurrent form. A constructor adds the
  /// tensors that only this side has.
  std::shared_ptr<StateForm> state_form_;
  /// The same for memories; null for a mixer that reads none.
  std::shared_ptr<StateForm> memory_form_;

 private:
  torch::Tensor Projected(const torch::Tensor& rows) const;
  void CheckInput(const char* name, const torch::Tensor& x) const;
  void CheckRotary(const RotaryTable& rotary, const torch::Tensor& x) const;
  void CheckState(const char* name, const MixerState& state,
                  const torch::Tensor& x) const;
  torch::TensorOptions WeightOptions() const;
};

}  // namespace tarn::nn
