#include "torch_nn/mixers/mixer.h"

#include <algorithm>

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "core/text.h"
#include "torch_nn/state/lengths.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

[[noreturn]] void Refuse(const char* where, const char* wanted,
                         AttentionKind kind, const char* reason) {
  throw ArgumentError(StrCat("Mixer: ", where), wanted,
                      StrCat("'", Name(kind), "', ", reason));
}

}  // namespace

// A decoder of a sequence-to-sequence model counts its mixers after those of
// the encoder, two per layer.
Depth DepthOf(const ModelConfig& layer, const MixerPlace& place) {
  Depth depth = {place.index, layer.n_layers};
  if (layer.arch == Arch::kSeq2seq && place.causal) {
    depth = {(place.index - layer.n_layers) / 2, layer.n_decoder_layers};
  }
  depth.layers = std::max<int64_t>(depth.layers, 1);
  depth.layer = std::clamp<int64_t>(depth.layer, 0, depth.layers - 1);
  return depth;
}

Mixer::Mixer(const ModelConfig& layer, MixerPlace place)
    : config_(layer), place_(place) {
  if (layer.d_key < 1 || layer.d_value < 1 || layer.n_heads < 1) {
    throw ArgumentError("Mixer: config", "a finished config (FinishConfig)",
                        StrCat("n_heads ", layer.n_heads, ", d_key ",
                               layer.d_key, ", d_value ", layer.d_value));
  }
  if (Spec(layer.attention).state == nullptr) return;
  state_form_ = std::make_shared<StateForm>();
  state_form_->kind = layer.attention;
  for (const StateTensor& tensor : LayerState(layer)) {
    state_form_->slots.push_back({tensor});
    if (tensor.kept > 0) state_form_->window = tensor.kept;
  }
}

void Mixer::CheckInput(const char* name, const torch::Tensor& x) const {
  if (x.dim() == 3 && x.size(2) == config_.d_model) return;
  throw ShapeError(StrCat("Mixer: ", name),
                   StrCat("[batch, seq_len, ", config_.d_model, "]"),
                   ShapeText(x.sizes().vec()));
}

void Mixer::CheckState(const char* name, const MixerState& state,
                       const torch::Tensor& x) const {
  if (state.form().kind == kind() && state.batch() == x.size(0)) return;
  throw ArgumentError(
      StrCat("Mixer: ", name),
      StrCat("one of '", Name(kind()), "' for ", x.size(0), " sequences"),
      StrCat("'", Name(state.form().kind), "' for ", state.batch()));
}

torch::TensorOptions Mixer::WeightOptions() const {
  const std::vector<torch::Tensor> weights = parameters();
  return weights.empty() ? torch::TensorOptions(torch::kFloat32)
                         : weights.front().options();
}

torch::Tensor Mixer::forward(const torch::Tensor& x,
                             const MixerContext& context,
                             const torch::Tensor& key_mask) {
  const torch::Tensor out = Unbiased(x, context, key_mask);
  const torch::Tensor bias = OutputBias();
  return bias.defined() ? out + bias : out;
}

torch::Tensor Mixer::Projected(const torch::Tensor& rows) const {
  const torch::Tensor weight = OutputWeight();
  return weight.defined() ? ops::Affine(rows, weight) : rows;
}

torch::Tensor Mixer::Unbiased(const torch::Tensor& x,
                              const MixerContext& context,
                              const torch::Tensor& key_mask) {
  return Projected(Unprojected(x, context, key_mask));
}

torch::Tensor Mixer::Unprojected(const torch::Tensor& x,
                                 const MixerContext& context,
                                 const torch::Tensor& key_mask,
                                 const NormLayer* norm) {
  CheckInput("x", x);
  CheckRotary(context.rotary, x);
  return norm == nullptr ? Mix(x, context, key_mask)
                         : MixNormed(x, *norm, context, key_mask);
}

namespace {

torch::Tensor WantPassed(const torch::Tensor& found,
                         const std::vector<int64_t>& wanted) {
  if (!found.defined()) {
    throw ArgumentError("Mixer: passed",
                        "what an earlier layer of the same stack makes",
                        "none");
  }
  if (found.sizes() != wanted) {
    throw ShapeError("Mixer: passed", ShapeText(wanted),
                     ShapeText(found.sizes().vec()));
  }
  return found;
}

}  // namespace

torch::Tensor PassedRows::Read(const PassedRows* passed, const torch::Tensor& x,
                               int64_t width) {
  return WantPassed(passed == nullptr ? torch::Tensor() : passed->rows,
                    {x.size(0), x.size(1), width});
}

torch::Tensor PassedRows::ReadTable(const PassedRows* passed, int64_t layers,
                                    int64_t width) {
  return WantPassed(passed == nullptr ? torch::Tensor() : passed->table,
                    {layers, width});
}

void Mixer::CheckRotary(const RotaryTable& rotary,
                        const torch::Tensor& x) const {
  if (config_.positions != Positions::kRotary) return;
  if (rotary.defined() && rotary.seq_len() == x.size(1)) return;
  throw ShapeError(
      "Mixer: rotary", StrCat("a table of ", x.size(1), " tokens"),
      rotary.defined() ? ShapeText(rotary.cos.sizes().vec()) : "none");
}

torch::Tensor Mixer::UnprojectedPiece(const torch::Tensor& x,
                                      const SequenceCut& cut,
                                      const MixerContext& context,
                                      const NormLayer* norm) {
  CheckInput("x", x);
  CheckRotary(context.rotary, x);
  if (x.size(1) != cut.size()) {
    throw ShapeError("Mixer: x", StrCat("a piece of ", cut.size(), " tokens"),
                     ShapeText(x.sizes().vec()));
  }
  if (place_.cross || !place_.causal) {
    throw ArgumentError(
        "Mixer: UnprojectedPiece", "causal self-attention",
        place_.cross ? "cross attention" : "a layer that sees later tokens");
  }
  if (state_form_ == nullptr) {
    Refuse("UnprojectedPiece", "a mixer whose sequences can be cut over ranks",
           kind(), WhyNotRecurrent());
  }
  return MixPiece(x, cut, context, norm);
}

torch::Tensor Mixer::UnbiasedPiece(const torch::Tensor& x,
                                   const SequenceCut& cut,
                                   const MixerContext& context) {
  return Projected(UnprojectedPiece(x, cut, context));
}

torch::Tensor Mixer::MixPiece(const torch::Tensor&, const SequenceCut&,
                              const MixerContext&, const NormLayer*) {
  Refuse("UnprojectedPiece", "a mixer whose sequences can be cut over ranks",
         kind(), "which cannot");
}

torch::Tensor Mixer::MixNormed(const torch::Tensor& x, const NormLayer& norm,
                               const MixerContext& context,
                               const torch::Tensor& key_mask) {
  return Mix(norm.forward(x), context, key_mask);
}

MixerState Mixer::MemoryState(const torch::Tensor& memory,
                              const torch::Tensor& key_mask,
                              const torch::Tensor& lengths) const {
  CheckInput("memory", memory);
  if (!place_.cross) {
    throw ArgumentError("Mixer: MemoryState", "cross attention",
                        "self-attention");
  }
  if (memory_form_ == nullptr) {
    Refuse("MemoryState", "a mixer that reads a memory", kind(),
           "which mixes its own rows only");
  }
  MixerState state(memory_form_, memory.size(0), WeightOptions());
  if (lengths.defined()) {
    state.lengths = lengths.to(torch::kCPU);
  } else if (key_mask.defined()) {
    state.lengths = key_mask.sum(1).to(torch::kCPU);
  } else {
    state.lengths =
        torch::full({memory.size(0)}, memory.size(1), torch::kInt64);
  }
  FillMemory(memory, key_mask, state);
  return state;
}

torch::Tensor Mixer::Read(const torch::Tensor& x, const MixerState& memory) {
  return Projected(ReadUnprojected(x, memory));
}

torch::Tensor Mixer::ReadUnprojected(const torch::Tensor& x,
                                     const MixerState& memory) {
  CheckInput("x", x);
  if (!place_.cross || memory_form_ == nullptr) {
    Refuse("Read", "cross attention", kind(),
           "which is not used as cross attention here");
  }
  CheckState("memory", memory, x);
  return ReadMemory(x, memory);
}

MixerState Mixer::InitialState(int64_t batch) const {
  if (place_.cross || !place_.causal) {
    throw ArgumentError("Mixer: InitialState", "causal self-attention",
                        place_.cross ? "cross attention (see MemoryState)"
                                     : "a layer that sees later tokens");
  }
  if (state_form_ == nullptr) {
    Refuse("InitialState", "a mixer with a recurrent form", kind(),
           WhyNotRecurrent());
  }
  return MixerState(state_form_, batch, WeightOptions());
}

std::pair<torch::Tensor, MixerState> Mixer::Prefill(
    const torch::Tensor& x, const MixerState& state,
    const MixerContext& context, const torch::Tensor& lengths) {
  CheckInput("x", x);
  if (state_form_ == nullptr || place_.cross) {
    Refuse("Prefill", "a mixer with a recurrent form", kind(),
           place_.cross ? "which reads a memory here" : WhyNotRecurrent());
  }
  CheckState("state", state, x);
  const int64_t batch = x.size(0), seq_len = x.size(1);
  CheckLengths("Mixer", lengths, x);
  const NewTokens taken = {lengths.defined() ? lengths.to(x.device()) : lengths,
                           lengths.defined()
                               ? lengths.to(torch::kCPU)
                               : torch::full({batch}, seq_len, torch::kInt64)};
  MixerState next = state;
  torch::Tensor out = Projected(Continue(x, context, taken, next));
  next.lengths = state.lengths + taken.added;
  return {std::move(out), std::move(next)};
}

torch::Tensor Mixer::Continue(const torch::Tensor&, const MixerContext&,
                              const NewTokens&, MixerState&) {
  Refuse("Prefill", "a mixer that can continue", kind(),
         "whose spec has a state and whose module does not read it");
}

void Mixer::FillMemory(const torch::Tensor&, const torch::Tensor&,
                       MixerState&) const {
  Refuse("MemoryState", "a mixer that reads a memory", kind(),
         "whose module fills none");
}

torch::Tensor Mixer::ReadMemory(const torch::Tensor&, const MixerState&) {
  Refuse("Read", "a mixer that reads a memory", kind(),
         "whose module reads none");
}

}  // namespace tarn::nn
