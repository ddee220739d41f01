// Forward pass. For each block of keys, with m, l, O of the blocks before it:
//   m' = max(m, max_j s_ij);  c = exp(m - m');  p_ij = exp(s_ij - m')
//   l' = c l + sum_j p_ij;  O' = c O + sum_j f_ij p_ij v_j;  o = O / l
// Before the first block m = -infinity and l = 0 or, with a sink t, m = t, l
// = 1.
#include "kernels/softmax_attention/blocked_attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/scratch.h"
#include "kernels/softmax_attention/block_geometry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_attention/blocked_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/softmax_attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Turns scores into weights, in place; updates m and l and leaves c in
// `correction`. factors_t null: no dropout.
static HWY_NOINLINE void UpdateSoftmax(const BlockLayout& at,
                                       const QueryBlock& q, const KeyBlock& k,
                                       const float* factors_t, float* w) {
  const DF d;
  for (int64_t i = 0; i < q.lanes; i += kLanes) {
    float* scores = w + at.scores_t + i;
    const VF before = hn::LoadU(d, w + at.row_max + i);
    VF largest = before;
    for (int64_t j = k.begin; j < k.end; ++j) {
      largest = hn::Max(largest, hn::LoadU(d, scores + j * kQueryBlock));
    }
    VF sum = hn::Zero(d);
    for (int64_t j = k.begin; j < k.end; ++j) {
      float* at_pair = scores + j * kQueryBlock;
      VF p = ExpOfScore(hn::Sub(hn::LoadU(d, at_pair), largest));
      sum = hn::Add(sum, p);
      if (factors_t != nullptr) {
        p = hn::Mul(p, hn::LoadU(d, factors_t + j * kQueryBlock + i));
      }
      hn::StoreU(p, d, at_pair);
    }
    const VF correction = ExpOfScore(hn::Sub(before, largest));
    hn::StoreU(largest, d, w + at.row_max + i);
    hn::StoreU(hn::MulAdd(correction, hn::LoadU(d, w + at.row_sum + i), sum), d,
               w + at.row_sum + i);
    hn::StoreU(correction, d, w + at.correction + i);
  }
}

static void ForwardKeyBlock(const BlockedCall& call, const BlockLayout& at,
                            const QueryBlock& q, int64_t block, int64_t& drawn,
                            float* w) {
  KeyBlock k = KeysAt(q, block);
  if (k.begin >= k.end) return;
  LoadKeyBlock(call, at, q, k, w);
  MaskedScores(call, at, q, k, w);
  const float* factors_t = nullptr;
  if (call.dropout.active()) {
    LoadFactors(call, at, q, k, drawn, w);
    factors_t = w + at.factors_t;
  }
  UpdateSoftmax(at, q, k, factors_t, w);
  for (int64_t i = 0; i < q.rows; ++i) {
    const float correction = w[at.correction + i];
    if (correction != 1.0f) {
      ScaleRow(w + at.out + i * at.value, at.value, correction);
    }
  }
  AddBlockProduct(
      {w + at.scores_t + k.begin * kQueryBlock, 1, kQueryBlock,
       w + at.values + k.begin * at.value, at.value, q.rows, k.end - k.begin},
      k.finite, at.value, w + at.out, at.value);
}

static void ForwardQueryBlock(const BlockedCall& call,
                              const BlockedAttentionOutputs& to, int64_t batch,
                              int64_t head, int64_t block, float* w) {
  const BlockLayout at(*call.in, /*backward=*/false);
  QueryBlock q = QueriesAt(call, batch, head, block);
  LoadQueries(call, at, q, w);
  const float sink = call.in->sinks == nullptr ? kHidden : call.in->sinks[head];
  const bool none = sink == kHidden;  // a NaN reaches every row
  std::fill_n(w + at.row_max, kQueryBlock, none ? kLowest : sink);
  std::fill_n(w + at.row_sum, kQueryBlock, none ? 0.0f : 1.0f);
  std::fill_n(w + at.out, kQueryBlock * at.value, 0.0f);
  int64_t drawn = -1;
  for (int64_t b = q.keys.begin / kKeyBlock; b * kKeyBlock < q.keys.end; ++b) {
    ForwardKeyBlock(call, at, q, b, drawn, w);
  }
  float* statistics =
      to.statistics == nullptr
          ? nullptr
          : to.statistics +
                2 * ((batch * call.heads() + head) * call.seq_len() + q.first);
  for (int64_t i = 0; i < q.rows; ++i) {
    const float sum = w[at.row_sum + i];
    float* row = w + at.out + i * at.value;
    // No allowed key: the row is still 0 (NaN sums are not equal to 0).
    if (sum != 0.0f) ScaleRow(row, at.value, 1.0f / sum);
    StoreRow(DType::kF32, row, call.d_value(),
             to.out.Row(batch, q.first + i, head));
    if (statistics != nullptr) {
      statistics[2 * i] = w[at.row_max + i];
      statistics[2 * i + 1] = sum;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ForwardQueryBlock);

size_t BlockedAttentionWorkspaceBytes(const BlockedAttentionInputs& in,
                                      int width, bool backward) {
  return static_cast<size_t>(BlockLayout(in, backward).total) * sizeof(float) *
         static_cast<size_t>(width);
}

void BlockedAttentionForward(const BlockedAttentionOptions& options,
                             const BlockedAttentionInputs& in,
                             const BlockedAttentionOutputs& out,
                             Executor& executor, void* workspace) {
  CheckBlockedAttention(options, in, out);
  const BlockedCall call = {&options, &in, MakeDropoutKey(options.dropout)};
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardQueryBlock);
  const int64_t blocks = QueryBlocks(call);
  const int64_t scratch = BlockLayout(in, /*backward=*/false).total;
  executor.ParallelFor(
      in.queries.size[0] * call.heads() * blocks,
      [&](int64_t task, int worker) {
        const int64_t row = task / blocks;
        kernel(call, out, row / call.heads(), row % call.heads(), task % blocks,
               static_cast<float*>(workspace) + worker * scratch);
      });
}

}  // namespace tarn
#endif  // HWY_ONCE
