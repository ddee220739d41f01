// Gradient. With P and s of the forward pass recomputed block by block, f the
// factors of dropout and g the gradient of o:
//   delta_i = g_i . o_i;  dv_j = sum_i f_ij p_ij g_i
//   ds_ij = p_ij (f_ij g_i . v_j - delta_i)
//   dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i;  dbias = ds
// With a soft cap, dq and dk take ds_ij (1 - tanh^2) for ds_ij. With a sink t,
//   dt = -sum_i exp(t - m_i) / l_i delta_i
// (Dao et al. 2022, arXiv 2205.14135, appendix B.2, including dropout.)
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/scratch.h"
#include "kernels/softmax_attention/block_geometry.h"
#include "kernels/softmax_attention/blocked_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/softmax_attention/blocked_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/softmax_attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Whether a padded row holds anything but zeros.
HWY_INLINE bool AnyNonZero(const float* row, int64_t padded) {
  const DF d;
  for (int64_t i = 0; i < padded; i += kLanes) {
    if (!hn::AllTrue(d, hn::Eq(hn::LoadU(d, row + i), hn::Zero(d)))) {
      return true;
    }
  }
  return false;
}

// What a query block brings to each of its key blocks: q, g, their transposes,
// m, 1 / l (0 for a row that contributes nothing) and delta.
static void LoadQuerySide(const BlockedCall& call, const BlockLayout& at,
                          const BlockedAttentionGradients& g, QueryBlock& q,
                          float* w) {
  LoadQueries(call, at, q, w);
  const bool finite =
      LoadRows(g.grad_out, q.batch, q.first, q.head, q.rows, nullptr, 1.0f,
               kQueryBlock, w + at.grad_out, at.value);
  q.finite = q.finite && finite;
  Transpose(w + at.grad_out, at.value, kQueryBlock, at.value, w + at.grad_out_t,
            kQueryBlock);
  LoadRows(g.out, q.batch, q.first, q.head, q.rows, nullptr, 1.0f, kQueryBlock,
           w + at.out, at.value);
  const float* statistics =
      g.statistics +
      2 * ((q.batch * call.heads() + q.head) * call.seq_len() + q.first);
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    const bool used = i < q.rows;
    // A row without a gradient contributes nothing, whatever it holds: padding
    // may be NaN.
    const bool sends =
        used && AnyNonZero(w + at.grad_out + i * at.value, at.value);
    const float sum = sends ? statistics[2 * i + 1] : 0.0f;
    w[at.row_max + i] = used ? statistics[2 * i] : 0.0f;
    w[at.row_sum + i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    w[at.delta + i] = RowDot(w + at.grad_out + i * at.value,
                             w + at.out + i * at.value, at.value);
  }
}

// f p into scores_t and ds into grad_scores_t, which hold s and g . v.
static HWY_NOINLINE void ScoreGradients(const BlockLayout& at,
                                        const QueryBlock& q, const KeyBlock& k,
                                        const float* factors_t, float* w) {
  const DF d;
  for (int64_t i = 0; i < q.lanes; i += kLanes) {
    const VF largest = hn::LoadU(d, w + at.row_max + i);
    const VF inverse = hn::LoadU(d, w + at.row_sum + i);
    const VF delta = hn::LoadU(d, w + at.delta + i);
    const auto silent = hn::Eq(inverse, hn::Zero(d));
    for (int64_t j = k.begin; j < k.end; ++j) {
      const int64_t pair = j * kQueryBlock + i;
      const VF score = hn::LoadU(d, w + at.scores_t + pair);
      // Selected: a row of NaN gives nothing to hidden pairs, and a silent row
      // gives nothing to any.
      const auto none = hn::Or(hn::Eq(score, hn::Set(d, kHidden)), silent);
      const VF p = hn::IfThenZeroElse(
          none, hn::Mul(ExpOfScore(hn::Sub(score, largest)), inverse));
      VF dropped = p, grad = hn::LoadU(d, w + at.grad_scores_t + pair);
      if (factors_t != nullptr) {
        const VF factor = hn::LoadU(d, factors_t + pair);
        dropped = hn::Mul(p, factor);
        // Selected: a value whose pair is dropped may hold anything.
        grad = hn::IfThenZeroElse(hn::Eq(factor, hn::Zero(d)),
                                  hn::Mul(grad, factor));
      }
      grad = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)),
                                hn::Mul(p, hn::Sub(grad, delta)));
      hn::StoreU(dropped, d, w + at.scores_t + pair);
      hn::StoreU(grad, d, w + at.grad_scores_t + pair);
    }
  }
}

// f P and dS of a query block against a key block; false where they share no
// pair.
static bool PairGradients(const BlockedCall& call, const BlockLayout& at,
                          const QueryBlock& q, int64_t block, int64_t& drawn,
                          KeyBlock& k, float* w) {
  k = KeysAt(q, block);
  if (k.begin >= k.end) return false;
  LoadKeyBlock(call, at, q, k, w);
  MaskedScores(call, at, q, k, w);
  DotRows(w + at.values, at.value, w + at.grad_out_t, call.d_value(), q, k,
          w + at.grad_scores_t);
  const float* factors_t = nullptr;
  if (call.dropout.active()) {
    LoadFactors(call, at, q, k, drawn, w);
    factors_t = w + at.factors_t;
  }
  ScoreGradients(at, q, k, factors_t, w);
  return true;
}

// ds through the soft cap. Selected: hidden pairs may have any slope.
static HWY_NOINLINE void ThroughCap(const BlockLayout& at, const QueryBlock& q,
                                    const KeyBlock& k, float* w) {
  const DF d;
  for (int64_t j = k.begin; j < k.end; ++j) {
    for (int64_t i = 0; i < q.lanes; i += kLanes) {
      const int64_t pair = j * kQueryBlock + i;
      const VF grad = hn::LoadU(d, w + at.grad_scores_t + pair);
      const VF slope = hn::LoadU(d, w + at.slopes_t + pair);
      hn::StoreU(
          hn::IfThenZeroElse(hn::Eq(grad, hn::Zero(d)), hn::Mul(grad, slope)),
          d, w + at.grad_scores_t + pair);
    }
  }
}

// The part of a block of queries in the gradient of their head's sink.
static float SinkGradient(const BlockLayout& at, float sink, const float* w) {
  const DF d;
  const VF t = hn::Set(d, sink);
  VF sum = hn::Zero(d);
  for (int64_t i = 0; i < kQueryBlock; i += kLanes) {
    const VF inverse = hn::LoadU(d, w + at.row_sum + i);
    const VF p = hn::Mul(
        ExpOfScore(hn::Sub(t, hn::LoadU(d, w + at.row_max + i))), inverse);
    // Selected: a row that contributes nothing may hold anything.
    sum = hn::Add(
        sum, hn::IfThenZeroElse(hn::Eq(inverse, hn::Zero(d)),
                                hn::Mul(p, hn::LoadU(d, w + at.delta + i))));
  }
  return -hn::GetLane(hn::SumOfLanes(d, sum));
}

// Adds a pair's part to dq (of the block), dk and dv (of the whole sequence).
static void AddPair(const BlockLayout& at, const QueryBlock& q,
                    const KeyBlock& k, float* w) {
  const int64_t keys = k.end - k.begin, first = k.begin * kQueryBlock;
  const bool finite = q.finite && k.finite;
  AddBlockProduct({w + at.scores_t + first, kQueryBlock, 1, w + at.grad_out,
                   at.value, keys, q.rows},
                  finite, at.value,
                  w + at.grad_values + (k.first + k.begin) * at.value,
                  at.value);
  AddBlockProduct({w + at.grad_scores_t + first, kQueryBlock, 1, w + at.queries,
                   at.key, keys, q.rows},
                  finite, at.key,
                  w + at.grad_keys + (k.first + k.begin) * at.key, at.key);
  AddBlockProduct({w + at.grad_scores_t + first, 1, kQueryBlock,
                   w + at.keys + k.begin * at.key, at.key, q.rows, keys},
                  finite, at.key, w + at.grad_queries, at.key);
}

// dq, dk, dv of one batch row and head.
static void BackwardHead(const BlockedCall& call,
                         const BlockedAttentionGradients& g, int64_t batch,
                         int64_t head, float* w) {
  const BlockLayout at(*call.in, /*backward=*/true);
  std::fill(w + at.grad_keys, w + at.total, 0.0f);  // and grad_values
  float sink_sum = 0.0f;
  for (int64_t block = 0; block < QueryBlocks(call); ++block) {
    QueryBlock q = QueriesAt(call, batch, head, block);
    LoadQuerySide(call, at, g, q, w);
    std::fill_n(w + at.grad_queries, kQueryBlock * at.key, 0.0f);
    if (g.grad_sinks != nullptr) {
      sink_sum += SinkGradient(at, call.in->sinks[head], w);
    }
    int64_t drawn = -1;
    for (int64_t b = q.keys.begin / kKeyBlock; b * kKeyBlock < q.keys.end;
         ++b) {
      KeyBlock k;
      if (!PairGradients(call, at, q, b, drawn, k, w)) continue;
      if (call.options->softcap > 0.0f) ThroughCap(at, q, k, w);
      AddPair(at, q, k, w);
    }
    for (int64_t i = 0; i < q.rows; ++i) {
      float* row = w + at.grad_queries + i * at.key;
      ScaleRow(row, at.key, call.options->scale);
      StoreRow(DType::kF32, row, call.d_key(),
               g.grad_queries.Row(batch, q.first + i, head));
    }
  }
  if (g.grad_sinks != nullptr) {
    g.grad_sinks[batch * call.heads() + head] = sink_sum;
  }
  for (int64_t j = 0; j < call.key_len(); ++j) {
    StoreRow(DType::kF32, w + at.grad_keys + j * at.key, call.d_key(),
             g.grad_keys.Row(batch, j, head));
    StoreRow(DType::kF32, w + at.grad_values + j * at.value, call.d_value(),
             g.grad_values.Row(batch, j, head));
  }
}

// dS of a pair into the bias's own shape.
static void AddToBias(const BlockLayout& at, const QueryBlock& q,
                      const KeyBlock& k, const BlockedAttentionGradients& g,
                      int64_t keys, float* w) {
  Transpose(w + at.grad_scores_t, kQueryBlock, kKeyBlock, kQueryBlock,
            w + at.plane, kKeyBlock);
  const int64_t* size = g.bias_size;
  const int64_t slice =
      (size[0] == 1 ? 0 : q.batch) * size[1] + (size[1] == 1 ? 0 : q.head);
  const int64_t end = std::min(k.end, keys - k.first);
  for (int64_t i = 0; i < q.rows; ++i) {
    const float* from = w + at.plane + i * kKeyBlock;
    float* to = g.grad_bias +
                (slice * size[2] + (size[2] == 1 ? 0 : q.first + i)) * size[3];
    if (size[3] == 1) {
      for (int64_t j = k.begin; j < end; ++j) *to += from[j];
      continue;
    }
    to += k.first;
    for (int64_t j = k.begin; j < end; ++j) to[j] += from[j];
  }
}

// Everything that is summed into one slice of the bias and one block of its
// rows, or into all of its rows if there is only one.
static void BackwardBias(const BlockedCall& call,
                         const BlockedAttentionGradients& g, int64_t task,
                         float* w) {
  const BlockLayout at(*call.in, /*backward=*/true);
  const int64_t* size = g.bias_size;
  const int64_t blocks = size[2] == 1 ? 1 : QueryBlocks(call);
  const auto range = [](int64_t bias, int64_t index, int64_t whole) {
    return bias == 1 ? KeyRange{0, whole} : KeyRange{index, index + 1};
  };
  const int64_t slice = task / blocks;
  const KeyRange batches =
      range(size[0], slice / size[1], call.in->queries.size[0]);
  const KeyRange heads = range(size[1], slice % size[1], call.heads());
  const KeyRange parts = range(size[2], task % blocks, QueryBlocks(call));
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      for (int64_t part = parts.begin; part < parts.end; ++part) {
        QueryBlock q = QueriesAt(call, b, h, part);
        LoadQuerySide(call, at, g, q, w);
        int64_t drawn = -1;
        for (int64_t j = q.keys.begin / kKeyBlock; j * kKeyBlock < q.keys.end;
             ++j) {
          KeyBlock k;
          if (PairGradients(call, at, q, j, drawn, k, w)) {
            AddToBias(at, q, k, g, call.key_len(), w);
          }
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(BackwardHead);
HWY_EXPORT(BackwardBias);

namespace {

void CheckGradients(const BlockedAttentionInputs& in,
                    const BlockedAttentionGradients& g) {
  const auto want = [](const char* name, const TensorView& view,
                       const TensorView& like) {
    if (!std::equal(view.size, view.size + 4, like.size)) {
      throw ShapeError(StrCat("softmax_attention_backward: ", name),
                       ShapeText(like.Shape()), ShapeText(view.Shape()));
    }
  };
  want("grad_out", g.grad_out, g.out);
  want("grad_queries", g.grad_queries, in.queries);
  want("grad_keys", g.grad_keys, in.keys);
  want("grad_values", g.grad_values, in.values);
  const int64_t whole[] = {in.queries.size[0], in.queries.size[2],
                           in.queries.size[1], in.keys.size[1]};
  for (int axis = 0; axis < 4; ++axis) {
    const int64_t size = g.bias_size[axis];
    if (size != 1 && size != whole[axis]) {
      throw ShapeError(StrCat("softmax_attention_backward: bias axis ", axis),
                       StrCat("1 or ", whole[axis]), StrCat(size));
    }
  }
  if (g.grad_sinks != nullptr && in.sinks == nullptr) {
    throw ArgumentError("softmax_attention_backward: grad_sinks",
                        "null without sinks", "a pointer");
  }
}

}  // namespace

void BlockedAttentionBackward(const BlockedAttentionOptions& options,
                              const BlockedAttentionInputs& in,
                              const BlockedAttentionGradients& g,
                              Executor& executor, void* workspace) {
  CheckBlockedAttention(options, in, {g.out, nullptr});
  CheckGradients(in, g);
  const BlockedCall call = {&options, &in, MakeDropoutKey(options.dropout)};
  const int64_t scratch = BlockLayout(in, /*backward=*/true).total;
  const auto of = [&](int worker) {
    return static_cast<float*>(workspace) + worker * scratch;
  };
  const auto head_kernel = HWY_DYNAMIC_DISPATCH(BackwardHead);
  executor.ParallelFor(in.queries.size[0] * call.heads(), [&](int64_t task,
                                                              int worker) {
    head_kernel(call, g, task / call.heads(), task % call.heads(), of(worker));
  });
  if (g.grad_bias == nullptr) return;
  const int64_t* size = g.bias_size;
  std::fill_n(g.grad_bias, size[0] * size[1] * size[2] * size[3], 0.0f);
  if (QueryBlocks(call) == 0) return;
  const auto bias_kernel = HWY_DYNAMIC_DISPATCH(BackwardBias);
  executor.ParallelFor(
      size[0] * size[1] * (size[2] == 1 ? 1 : QueryBlocks(call)),
      [&](int64_t task, int worker) {
        bias_kernel(call, g, task, of(worker));
      });
}

}  // namespace tarn
#endif  // HWY_ONCE
