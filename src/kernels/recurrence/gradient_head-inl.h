// The gradient of one chunk and value head of decay_attention or
// delta_attention, put together from gradient-inl.h and
// gate_gradient-inl.h.

#if defined(TARN_KERNELS_RECURRENCE_GRADIENT_HEAD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_GRADIENT_HEAD_INL_H_
#undef TARN_KERNELS_RECURRENCE_GRADIENT_HEAD_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_GRADIENT_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/gate_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// P, Qt, Kb^T and Pt of the chunk, which the forward call had as well.
template <bool kDelta>
HWY_MAYBE_UNUSED static ScoreView GradientScores(const GradientContext& c) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentInputs& in = c.in();
  const RecurrentGradientLayout& l = c.layout;
  const ChunkParts& at = c.at;
  const float scale = c.task.options->scale;
  const int64_t d_key = in.keys.size[3];
  float* w = c.w;
  if (in.VectorGates()) {
    PrepareVectorScores<false>(*c.task.options, in, c.value_head, at, w);
    MultiplyRows(w + at.queries, w + at.from_start, scale, at.key,
                 w + l.decayed_queries);
    MultiplyRows(w + at.keys, w + at.to_end, 1.0f, at.key, w + at.spare);
    Transpose(w + at.spare, at.key, C, at.key, w + l.decayed_keys_t, C);
    Transpose(w + at.from_start, at.key, C, at.key, w + l.from_start_t, C);
    Transpose(w + at.to_end, at.key, C, at.key, w + l.to_end_t, C);
    if (kDelta) {
      MultiplyRows(w + at.keys, w + at.from_start, 1.0f, at.key,
                   w + l.past_keys);
    }
    return {w + at.scores, C, 1};
  }
  std::copy_n(w + l.head_scores, C * C, w + at.scores);
  DecayScores(w + at.scores, w + at.pairs_t, scale);
  if (in.bonus != nullptr) {
    AddBonus(in, at, c.value_head, scale, w + at.queries, w + at.keys,
             w + at.scores);
  }
  std::copy_n(w + at.queries, C * at.key, w + l.decayed_queries);
  ScaleRows(w + l.decayed_queries, at.key, w + at.from_start);
  if (scale != 1.0f) ScaleRow(w + l.decayed_queries, C * at.key, scale);
  ScaleLanes(w + at.keys_t, d_key, w + at.to_end, 1.0f, w + l.decayed_keys_t);
  if (kDelta) {
    std::copy_n(w + at.keys, C * at.key, w + l.past_keys);
    ScaleRows(w + l.past_keys, at.key, w + at.from_start);
  }
  return {w + at.scores, 1, C};
}

// dP * E by rows over queries and over keys, of output gradients `rows`;
// scalar gates alone weigh the scores, vector gates weigh later.
HWY_MAYBE_UNUSED static void GradientWeights(const GradientContext& c,
                                             int64_t rows, float scale,
                                             bool strict, int64_t weights,
                                             int64_t weights_t) {
  constexpr int64_t C = kRecurrentChunk;
  float* w = c.w;
  Scores<Half::kLaneNotAfter>({w + rows, c.at.value, w + c.layout.values_t, C,
                               C, C, c.in().values.size[3], nullptr, nullptr,
                               w + weights});
  if (strict && c.in().bonus != nullptr) {
    for (int64_t i = 0; i < C; ++i) {
      w[c.layout.bonus_lanes + i] = w[weights + i * C + i] * scale;
    }
  }
  if (strict) ZeroDiagonal(w + weights);
  if (c.in().VectorGates() && scale != 1.0f) {
    ScaleRow(w + weights, C * C, scale);
  }
  Transpose(w + weights, C, C, C, w + weights_t, C);
}

// Decays the weights of scalar gates, and adds dP_ij P_ij (scores P by rows
// over keys, times sign) to pair_parts, or begins with it.
HWY_MAYBE_UNUSED static void DecayWeights(const GradientContext& c, float scale,
                                          const float* scores, float sign,
                                          bool first, int64_t weights,
                                          int64_t weights_t) {
  constexpr int64_t C = kRecurrentChunk;
  float* w = c.w;
  for (int64_t j = 0; IsGated(c.in()) && j < C; ++j) {
    float* parts = w + c.layout.pair_parts + j * C;
    BlockLanes product(w + weights_t + j * C);
    product.Multiply(BlockLanes(scores + j * C));
    product.Multiply(hn::Set(DF(), sign));
    if (!first) product.Add(BlockLanes(parts));
    product.Store(parts);
  }
  DecayScores(w + weights, w + c.at.pairs, scale);
  DecayScores(w + weights_t, w + c.at.pairs_t, scale);
}

// dq, dk and dp of the chunk, transposed and by rows.
template <bool kDelta>
HWY_MAYBE_UNUSED static void RowGradients(const GradientContext& c) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentInputs& in = c.in();
  const RecurrentGradientLayout& l = c.layout;
  const ChunkParts& at = c.at;
  const float scale = c.task.options->scale;
  const bool vector = in.VectorGates(), exclusive = in.bonus != nullptr;
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  float* w = c.w;
  const float* from_start = w + (vector ? l.from_start_t : at.from_start);
  const float* to_end = w + (vector ? l.to_end_t : at.to_end);
  const int64_t stride = vector ? C : 0;
  const float* state = c.s.reads_state ? c.state : nullptr;
  const float* grad_state = c.has_grad_state ? c.grad_state : nullptr;
  const auto weights = [&](int64_t part) {
    return vector ? nullptr : w + part;
  };
  // A NaN reaches every token through the delta rule's solve in any case.
  const bool finite = kDelta || c.finite;
  const auto parts = [&](int64_t part) {
    return !vector && IsGated(in) ? w + part : nullptr;
  };
  StateTimesTokens(
      at, d_value,
      {state, w + l.grad_out_t, from_start, stride, scale, w + at.keys,
       weights(l.weights_t), nullptr, nullptr, w + l.queries_t_grad,
       w + at.queries_t, parts(l.query_parts), finite, &c.prefetch});
  StateTimesTokens(
      at, d_value,
      {grad_state, w + l.values_t, to_end, stride, 1.0f, w + at.queries,
       weights(l.weights), w + at.keys,
       kDelta ? weights(l.past_weights) : nullptr, w + l.keys_t_grad,
       w + at.keys_t, parts(l.key_parts), finite, &c.prefetch});
  if (kDelta) {
    StateTimesTokens(at, d_value,
                     {state, w + l.grad_past_t, from_start, stride, 1.0f,
                      w + at.keys, weights(l.past_weights_t), nullptr, nullptr,
                      w + l.past_t_grad, w + at.keys_t, parts(l.past_parts)});
  }
  if (vector) {
    const float* gamma = w + at.gates;
    if (c.has_grad_state) {  // for dg
      Transpose(w + l.keys_t_grad, C, at.key, C, w + l.keys_grad, at.key);
      MultiplyRows(w + at.keys, w + l.keys_grad, 1.0f, at.key, w + at.spare);
    }
    AddDecayedKeys(w + l.weights_t, w + at.keys, gamma, at.key, d_key,
                   exclusive, w + l.queries_t_grad, finite);
    AddDecayedQueries(w + l.weights, w + at.queries, exclusive,
                      w + l.past_weights, kDelta ? w + at.keys : nullptr, false,
                      gamma, at.key, d_key, w + l.keys_t_grad, finite);
    if (kDelta) {
      AddDecayedKeys(w + l.past_weights_t, w + at.keys, gamma, at.key, d_key,
                     false, w + l.past_t_grad);
    }
  }
  Transpose(w + l.queries_t_grad, C, at.key, C, w + l.queries_grad, at.key);
  Transpose(w + l.keys_t_grad, C, at.key, C, w + l.keys_grad, at.key);
  if (kDelta) {
    Transpose(w + l.past_t_grad, C, at.key, C, w + l.past_grad, at.key);
  }
}

// The terms of the bonus: dr += c u k, dk += c u r, du += c r k.
HWY_MAYBE_UNUSED static void BonusGradients(const GradientContext& c) {
  const DF d;
  const RecurrentGradientLayout& l = c.layout;
  const int64_t d_key = c.in().keys.size[3], key = c.at.key;
  float* w = c.w;
  HWY_ALIGN float tail[kRowPad];
  float* sums = c.task.bonus_sums + c.g * key;
  for (int64_t k = 0; k < key; k += kLanes) {
    std::fill(tail, tail + kLanes, 0.0f);
    const int64_t count = std::clamp<int64_t>(d_key - k, 0, kLanes);
    std::copy_n(c.in().bonus + c.value_head * d_key + k, count, tail);
    const VF u = hn::LoadU(d, tail);
    VF sum = hn::Zero(d);
    for (int64_t i = 0; i < kRecurrentChunk; ++i) {
      const VF factor = hn::Set(d, w[l.bonus_lanes + i]);
      const int64_t row = i * key + k;
      const VF q = hn::LoadU(d, w + c.at.queries + row);
      const VF own = hn::LoadU(d, w + c.at.keys + row);
      const VF scaled = hn::Mul(factor, u);
      float* dq = w + l.queries_grad + row;
      float* dk = w + l.keys_grad + row;
      hn::StoreU(hn::MulAdd(scaled, own, hn::LoadU(d, dq)), d, dq);
      hn::StoreU(hn::MulAdd(scaled, q, hn::LoadU(d, dk)), d, dk);
      sum = hn::MulAdd(hn::Mul(factor, q), own, sum);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, sums + k), sum), d, sums + k);
  }
}

// The gradient of one chunk and value head: dV, dg and dbeta are stored, dq and
// dk are in queries_grad and keys_grad, dS is moved on.
template <bool kDelta>
HWY_MAYBE_UNUSED static void GradientValueHead(const GradientContext& c,
                                               const float* residuals,
                                               const float* solve) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentInputs& in = c.in();
  const RecurrentGradientLayout& l = c.layout;
  const RecurrentGradients& grad = *c.task.grad;
  const ChunkParts& at = c.at;
  const int64_t d_value = in.values.size[3];
  float* w = c.w;
  LoadDecays(in, c.s, c.value_head, at, w);
  LoadTokens(grad.grad_out, c.s, c.value_head, 0, d_value, w + l.grad_out,
             at.value);
  if (kDelta) {
    LoadScalars(in.betas, c.s, c.value_head, 0.0f, w + at.betas);
    std::copy_n(residuals, C * at.value, w + at.values);
    ScaleRows(w + at.values, at.value, w + at.betas);
    const BlockLanes betas(w + at.betas);
    for (int64_t j = 0; j < C; ++j) {
      BlockLanes row(solve + j * C);
      row.Multiply(betas);
      row.Store(w + at.solve + j * C);
    }
  } else {
    LoadTokens(in.values, c.s, c.value_head, 0, d_value, w + at.values,
               at.value);
  }
  const ScoreView scores = GradientScores<kDelta>(c);
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    ValueGradientPanel<kDelta, decltype(n)::value>(c, scores, v);
  });
  if (kDelta) DeltaValueGradients(c, residuals);
  for (int64_t r = 0; r < c.s.rows; ++r) {
    StoreRow(grad.grad_values.dtype, w + l.grad_values + r * at.value, d_value,
             grad.grad_values.Row(c.s.batch, c.s.first + r, c.value_head));
  }
  Transpose(w + at.values, at.value, C, at.value, w + l.values_t, C);
  Transpose(w + l.grad_out, at.value, C, at.value, w + l.grad_out_t, C);
  GradientWeights(c, l.grad_out, c.task.options->scale, in.bonus != nullptr,
                  l.weights, l.weights_t);
  const bool scalar = !in.VectorGates();
  if (scalar) {
    DecayWeights(c, c.task.options->scale, w + at.scores, 1.0f, true, l.weights,
                 l.weights_t);
  } else {
    TakeNear(NearPairsOf(c));
  }
  if (kDelta) {
    Transpose(w + l.grad_past, at.value, C, at.value, w + l.grad_past_t, C);
    GradientWeights(c, l.grad_past, 1.0f, true, l.past_weights,
                    l.past_weights_t);
    if (scalar) {
      DecayWeights(c, 1.0f, solve, -1.0f, false, l.past_weights,
                   l.past_weights_t);
    }
  }
  RowGradients<kDelta>(c);
  if (in.VectorGates()) {
    VectorGateGradients(c);
    AddNear(NearPairsOf(c), at.key);
  } else if (IsGated(in)) {
    ScalarGateGradients(c);
  }
  if (kDelta) AddRow(w + l.past_grad, C * at.key, w + l.keys_grad);
  if (in.bonus != nullptr) BonusGradients(c);
  if (!c.s.leaves_state) return;
  RowPrefetcher nothing;
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    float* panel = c.grad_state + v * at.key;
    DecayPanel<true, kVectors>(w + l.decayed_queries, at.key,
                               w + l.grad_out + v, at.value, c.s.rows, at.key,
                               w + at.end_decay, panel, panel, nothing);
    if (kDelta) {
      UpdatePanel(w + l.past_keys, at.key, w + l.grad_past + v, at.value,
                  c.s.rows, at.key, kVectors, panel, nothing);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
