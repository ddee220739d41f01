// The highest scores of each query, block by block: a heap of candidates per
// query, whose root is the worst of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/softmax_attention/block_geometry.h"
#include "kernels/softmax_attention/blocked_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_attention/blocked_attention_topk.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/softmax_attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Scores of a block pair; false where it has none.
static bool BlockScoresT(const BlockedCall& call, const BlockLayout& at,
                         const QueryBlock& q, int64_t block, KeyBlock& k,
                         float* w) {
  k = KeysAt(q, block);
  if (k.begin >= k.end) return false;
  LoadKeyBlock(call, at, q, k, w);
  MaskedScores(call, at, q, k, w);
  return true;
}

static void LoadQueryBlock(const BlockedCall& call, const BlockLayout& at,
                           QueryBlock& q, float* w) {
  LoadQueries(call, at, q, w);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(BlockScoresT);
HWY_EXPORT(LoadQueryBlock);

namespace {

struct Candidate {
  float score;
  int64_t position;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.position < b.position);
}

// Keys come in ascending order, so a later one of an equal score never
// replaces an earlier one.
void Offer(Candidate* heap, int64_t& count, int64_t width, float score,
           int64_t position) {
  if (score == -std::numeric_limits<float>::infinity()) return;  // hidden
  if (std::isnan(score)) score = std::numeric_limits<float>::infinity();
  if (count == width) {
    if (score <= heap[0].score) return;
    std::pop_heap(heap, heap + count, Better);
    --count;
  }
  heap[count++] = {score, position};
  std::push_heap(heap, heap + count, Better);
}

size_t ScratchBytes(const BlockedAttentionInputs& in, int64_t width) {
  const size_t floats =
      static_cast<size_t>(BlockLayout(in, /*backward=*/false).total);
  const size_t candidates = static_cast<size_t>(kQueryBlock * width);
  return (floats * sizeof(float) + candidates * sizeof(Candidate) + 63) / 64 *
         64;
}

}  // namespace

size_t BlockedAttentionTopkBytes(const BlockedAttentionInputs& in,
                                 int64_t width, int workers) {
  return ScratchBytes(in, width) * static_cast<size_t>(workers);
}

void BlockedAttentionTopk(const BlockedAttentionOptions& options,
                          const BlockedAttentionInputs& in, int64_t width,
                          int64_t* indices, Executor& executor,
                          void* workspace) {
  BlockedAttentionOutputs shape;  // only its shape is read
  shape.out = in.queries;
  CheckBlockedAttention(options, in, shape);
  const BlockedCall call = {&options, &in, {}};
  const BlockLayout at(in, /*backward=*/false);
  const auto load = HWY_DYNAMIC_DISPATCH(LoadQueryBlock);
  const auto scores = HWY_DYNAMIC_DISPATCH(BlockScoresT);
  const int64_t blocks = QueryBlocks(call);
  const auto run = [&](int64_t task, int worker) {
    char* scratch = static_cast<char*>(workspace) +
                    static_cast<size_t>(worker) * ScratchBytes(in, width);
    float* w = reinterpret_cast<float*>(scratch);
    Candidate* heaps = reinterpret_cast<Candidate*>(w + at.total);
    const int64_t row = task / blocks;
    QueryBlock q =
        QueriesAt(call, row / call.heads(), row % call.heads(), task % blocks);
    load(call, at, q, w);
    int64_t count[kQueryBlock] = {0};
    for (int64_t b = q.keys.begin / kKeyBlock; b * kKeyBlock < q.keys.end;
         ++b) {
      KeyBlock k;
      if (!scores(call, at, q, b, k, w)) continue;
      for (int64_t j = k.begin; j < k.end; ++j) {
        const float* of_key = w + at.scores_t + j * kQueryBlock;
        for (int64_t i = 0; i < q.rows; ++i) {
          Offer(heaps + i * width, count[i], width, of_key[i], k.first + j);
        }
      }
    }
    int64_t* to = indices + (row * call.seq_len() + q.first) * width;
    for (int64_t i = 0; i < q.rows; ++i, to += width) {
      const Candidate* heap = heaps + i * width;
      for (int64_t n = 0; n < count[i]; ++n) to[n] = heap[n].position;
      std::sort(to, to + count[i]);
      std::fill(to + count[i], to + width, -1);
    }
  };
  executor.ParallelFor(in.queries.size[0] * call.heads() * blocks, run);
}

}  // namespace tarn
#endif  // HWY_ONCE
