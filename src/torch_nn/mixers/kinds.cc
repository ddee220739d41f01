// What each kind of attention holds beside the projections, and its call on the
// heads of a whole sequence.
#include "torch_nn/mixers/attention.h"
#include "torch_ops/aft/aft.h"
#include "torch_ops/sparse/clustered.h"
#include "torch_ops/feature_maps/feature_maps.h"
#include "torch_ops/sparse/reformer.h"

namespace tarn::nn {
namespace {

// Zhai et al. 2021 start the position tables small.
constexpr double kAftDeviation = 0.01;

ops::AttentionMasks Masks(const torch::Tensor& key_mask, bool causal,
                          int64_t offset) {
  ops::AttentionMasks masks;
  masks.causal = causal;
  masks.causal_offset = offset;
  if (key_mask.defined()) masks.key_mask = key_mask;
  return masks;
}

// favor's maps and grf take orthogonal directions (semantics as in
// docs/feature-maps.md), the Fourier features independent ones.
bool IsOrthogonal(FeatureMap map) {
  return map != FeatureMap::kRff && map != FeatureMap::kSmoothedRff;
}

}  // namespace

void AttentionLayerImpl::RegisterInner() {
  const bool other = kind_ == AttentionKind::kConditionalFull;
  const bool linear = kind_ == AttentionKind::kLinear || other;
  const bool omega = linear && UsesOmega(config_.feature_map);
  if (!omega && kind_ != AttentionKind::kAftFull) return;
  auto inner = register_module("inner_attention",
                               std::make_shared<torch::nn::Module>("inner"));
  if (omega) {
    if (other) {
      inner = inner->register_module(
          "other_attention", std::make_shared<torch::nn::Module>("other"));
    }
    const auto map = inner->register_module(
        "feature_map", std::make_shared<torch::nn::Module>("feature_map"));
    omega_ = map->register_buffer(
        "omega", torch::empty({config_.d_key, OmegaColumns(config_.feature_map,
                                                           config_.n_dims)}));
    Draw(0);
    return;
  }
  const std::vector<int64_t> table = {config_.max_sequence_length,
                                      config_.aft_parameterization};
  u_ = inner->register_parameter("u", torch::randn(table) * kAftDeviation);
  v_ = inner->register_parameter("v", torch::randn(table) * kAftDeviation);
}

void AttentionLayerImpl::Redraw(int64_t step) {
  if (!omega_.defined()) return;
  if (config_.redraw != 0 && step % config_.redraw == 0) Draw(step);
}

void AttentionLayerImpl::Draw(int64_t step) {
  torch::NoGradGuard no_grad;
  omega_.copy_(ops::DrawOmega(
      config_.d_key, omega_.size(1), IsOrthogonal(config_.feature_map),
      static_cast<uint64_t>(config_.feature_seed), place_.index, step));
}

ops::SoftmaxOptions AttentionLayerImpl::Softmax() const {
  ops::SoftmaxOptions options;
  options.dropout =
      ops::DrawDropout(is_training() ? config_.attention_dropout : 0.0);
  return options;
}

int64_t AttentionLayerImpl::HashSeed() const {
  if (!is_training()) return place_.index;
  return torch::empty({}, torch::kInt64).random_().item<int64_t>();
}

torch::Tensor AttentionLayerImpl::PositionBias(int64_t first, int64_t rows,
                                               int64_t columns) const {
  const int64_t most = config_.max_sequence_length;
  if (first + rows > most || columns > most) {
    throw ArgumentError("AttentionLayer: x",
                        StrCat("at most max_sequence_length = ", most,
                               " tokens for attention 'aft-full'"),
                        StrCat(std::max(first + rows, columns)));
  }
  return torch::matmul(u_.narrow(0, first, rows), v_.narrow(0, 0, columns).t());
}

torch::Tensor AttentionLayerImpl::AttendClustered(
    const Heads& heads, const torch::Tensor& key_mask) const {
  ops::ClusteredOptions options;
  options.clusters = config_.clusters;
  options.iterations = config_.iterations;
  options.bits = config_.bits;
  options.hash_bias = config_.hash_bias;
  options.topk = config_.topk;
  if (key_mask.defined()) {
    options.key_mask = key_mask;
    // What follows the last token kept is padding, as a query too.
    const torch::Tensor places = torch::arange(
        1, key_mask.size(1) + 1, key_mask.options().dtype(torch::kInt64));
    options.query_lengths =
        key_mask.size(1) == 0
            ? torch::zeros({key_mask.size(0)}, places.options())
            : (key_mask * places).amax(1);
  }
  options.dropout = Softmax().dropout;
  options.hash_seed = HashSeed();
  switch (kind_) {
    case AttentionKind::kClustered:
      return ops::ClusteredAttention(heads.queries, heads.keys, heads.values,
                                     options);
    case AttentionKind::kImprovedClustered:
      return ops::ImprovedClusteredAttention(heads.queries, heads.keys,
                                             heads.values, options);
    default:
      return ops::CausalImprovedClusteredAttention(heads.queries, heads.keys,
                                                   heads.values, options);
  }
}

torch::Tensor AttentionLayerImpl::AttendReformer(const Heads& heads,
                                                 const torch::Tensor& key_mask,
                                                 bool causal) const {
  ops::ReformerOptions options;
  options.chunk_size = config_.hash_chunk;
  options.bits = config_.bits;
  options.rounds = config_.rounds;
  options.dropout = Softmax().dropout;
  options.hash_seed = HashSeed();
  return ops::ReformerAttention(heads.queries, heads.values,
                                Masks(key_mask, causal, 0), options);
}

torch::Tensor AttentionLayerImpl::AttendKind(const Heads& heads,
                                             const torch::Tensor& key_mask,
                                             bool causal,
                                             int64_t offset) const {
  const auto& [queries, keys, values] = heads;
  const ops::AttentionMasks masks = Masks(key_mask, causal, offset);
  switch (kind_) {
    case AttentionKind::kLocal:
      return ops::LocalAttention(queries, keys, values, config_.local_context,
                                 masks, Softmax());
    case AttentionKind::kExactTopk:
      return ops::ExactTopkAttention(queries, keys, values, config_.topk, masks,
                                     Softmax())
          .out;
    case AttentionKind::kClustered:
    case AttentionKind::kImprovedClustered:
    case AttentionKind::kCausalImprovedClustered:
      return AttendClustered(heads, key_mask);
    case AttentionKind::kReformer:
      return AttendReformer(heads, key_mask, causal);
    case AttentionKind::kAftFull:
      return ops::AftFull(queries, keys, values,
                          PositionBias(0, queries.size(1), keys.size(1)),
                          masks);
    case AttentionKind::kAftSimple: {
      ops::AftSimpleOptions options;
      options.causal = causal;
      options.causal_offset = offset;
      if (key_mask.defined()) options.key_mask = key_mask;
      return ops::AftSimple(queries, keys, values, options).out;
    }
    case AttentionKind::kLinear:
    case AttentionKind::kFull:
    case AttentionKind::kConditionalFull:
      break;
  }
  return ops::FullAttention(queries, keys, values, masks, Softmax()).out;
}

}  // namespace tarn::nn
