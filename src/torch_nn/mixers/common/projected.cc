#include "torch_nn/mixers/common/projected.h"

#include "core/error.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// [B, T, heads * width] -> [B, T, heads, width].
torch::Tensor SplitHeads(const torch::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, x.size(2) / heads});
}

}  // namespace

torch::Tensor ProjectRows(const torch::Tensor& x, const NormLayer* norm,
                          std::vector<torch::Tensor> weights,
                          std::vector<torch::Tensor> biases) {
  ops::LayerHeadsArguments a;
  a.x = x;
  a.weights = std::move(weights);
  a.biases = std::move(biases);
  if (norm != nullptr) {
    ops::ResidualNormArguments described;
    norm->Describe(described);
    a.gamma = described.gamma;
    a.beta = described.beta;
    a.eps = described.eps;
    a.norm_kind = described.kind;
  }
  return ops::LayerHeads(a);
}

ProjectedMixer::ProjectedMixer(const ModelConfig& layer, MixerPlace place)
    : Mixer(layer, place),
      attention_dropout_(KeyOf<double>(layer, "attention_dropout")) {
  const int64_t keys = layer.n_heads * layer.d_key;
  const int64_t values = layer.n_heads * layer.d_value;
  const int64_t d_model = layer.d_model;
  query_projection =
      register_module("query_projection", torch::nn::Linear(d_model, keys));
  key_projection =
      register_module("key_projection", torch::nn::Linear(d_model, keys));
  value_projection =
      register_module("value_projection", torch::nn::Linear(d_model, values));
  out_projection =
      register_module("out_projection", torch::nn::Linear(values, d_model));
}

// Queries, keys and values of x or of norm(x), side by side.
torch::Tensor ProjectedMixer::ProjectPacked(const torch::Tensor& x,
                                            const NormLayer* norm) const {
  return ProjectRows(
      x, norm,
      {query_projection->weight, key_projection->weight,
       value_projection->weight},
      {query_projection->bias, key_projection->bias, value_projection->bias});
}

Heads ProjectedMixer::Split(const torch::Tensor& packed) const {
  const int64_t heads = config_.n_heads;
  const int64_t keys = heads * config_.d_key;
  const std::vector<torch::Tensor> parts =
      packed.split_with_sizes({keys, keys, heads * config_.d_value}, /*dim=*/2);
  return {SplitHeads(parts[0], heads), SplitHeads(parts[1], heads),
          SplitHeads(parts[2], heads)};
}

torch::Tensor ProjectedMixer::Mix(const torch::Tensor& x,
                                  const MixerContext& context,
                                  const torch::Tensor& key_mask) {
  return AttendPacked(ProjectPacked(x), context.rotary, key_mask);
}

torch::Tensor ProjectedMixer::MixNormed(const torch::Tensor& x,
                                        const NormLayer& norm,
                                        const MixerContext& context,
                                        const torch::Tensor& key_mask) {
  return AttendPacked(ProjectPacked(x, &norm), context.rotary, key_mask);
}

// The state before the piece, then the piece as tokens that follow it.
torch::Tensor ProjectedMixer::MixPiece(const torch::Tensor& x,
                                       const SequenceCut& cut,
                                       const MixerContext& context,
                                       const NormLayer* norm) {
  const Heads heads = Split(ProjectPacked(x, norm));
  const int64_t batch = x.size(0);
  MixerState state = InitialState(batch);
  StateBefore(heads, context.rotary, cut, state);
  state.lengths = torch::full({batch}, cut.begin(), torch::kInt64);
  const NewTokens all = {{}, torch::full({batch}, cut.size(), torch::kInt64)};
  return ContinueHeads(heads, context.rotary, all, state).flatten(2);
}

void ProjectedMixer::StateBefore(const Heads& heads, const RotaryTable& rotary,
                                 const SequenceCut& cut, MixerState&) {
  Mixer::MixPiece(heads.queries, cut, rotary, nullptr);  // refuses
}

torch::Tensor ProjectedMixer::AttendPacked(const torch::Tensor& packed,
                                           const RotaryTable& rotary,
                                           const torch::Tensor& key_mask) {
  return AttendHeads(Split(packed), rotary, key_mask).flatten(2);
}

torch::Tensor ProjectedMixer::Continue(const torch::Tensor& x,
                                       const MixerContext& context,
                                       const NewTokens& taken,
                                       MixerState& state) {
  return ContinueHeads(Split(ProjectPacked(x)), context.rotary, taken, state)
      .flatten(2);
}

torch::Tensor ProjectedMixer::ContinueHeads(const Heads& heads,
                                            const RotaryTable& rotary,
                                            const NewTokens& taken,
                                            MixerState& state) {
  return Mixer::Continue(heads.queries, rotary, taken, state);  // refuses
}

void ProjectedMixer::FillMemory(const torch::Tensor& memory,
                                const torch::Tensor& key_mask,
                                MixerState& state) const {
  const int64_t keys = config_.n_heads * config_.d_key;
  const torch::Tensor packed = ops::Affine(
      memory, torch::cat({key_projection->weight, value_projection->weight}),
      torch::cat({key_projection->bias, value_projection->bias}));
  FillHeads(SplitHeads(packed.slice(2, 0, keys), config_.n_heads),
            SplitHeads(packed.slice(2, keys), config_.n_heads), key_mask,
            state);
}

void ProjectedMixer::FillHeads(const torch::Tensor& keys, const torch::Tensor&,
                               const torch::Tensor& key_mask,
                               MixerState& state) const {
  Mixer::FillMemory(keys, key_mask, state);  // refuses
}

torch::Tensor ProjectedMixer::ReadMemory(const torch::Tensor& x,
                                         const MixerState& memory) {
  const torch::Tensor queries = SplitHeads(
      ops::Affine(x, query_projection->weight, query_projection->bias),
      config_.n_heads);
  return ReadHeads(queries, memory).flatten(2);
}

torch::Tensor ProjectedMixer::ReadHeads(const torch::Tensor& queries,
                                        const MixerState& memory) {
  return Mixer::ReadMemory(queries, memory);  // refuses
}

ops::Dropout ProjectedMixer::DrawAttentionDropout() const {
  return ops::DrawDropout(is_training() ? attention_dropout_ : 0.0);
}

Heads Turned(const Heads& heads, const RotaryTable& rotary) {
  return {Rotate(heads.queries, rotary), Rotate(heads.keys, rotary),
          heads.values};
}

ops::AttentionMasks Masks(const torch::Tensor& key_mask, bool causal,
                          int64_t offset) {
  ops::AttentionMasks masks;
  masks.causal = causal;
  masks.causal_offset = offset;
  if (key_mask.defined()) masks.key_mask = key_mask;
  return masks;
}

}  // namespace tarn::nn
