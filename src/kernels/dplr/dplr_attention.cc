// Forward call of dplr_attention: chunks of 16 tokens (docs/kernels.md).
#include "kernels/dplr/dplr_attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/dispatch.h"
#include "kernels/recurrence/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dplr/dplr_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/dplr/pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Columns [v, v + kPanel) of Z, then of the outputs and of the state.
template <int kVectors>
static HWY_INLINE void DplrPanel(const RecurrentTask& task, const ChunkSpan& s,
                                 const RecurrentForwardLayout& layout,
                                 float* state, int64_t v) {
  constexpr int64_t C = kRecurrentChunk;
  const ChunkParts& at = layout.chunk;
  const int64_t d_key = task.in->keys.size[3];
  float* w = task.scratch;
  float* panel = state + v * at.key;
  SolveReads<kVectors>(at, d_key, s.reads_state, panel, v, w);
  ForRowTiles((s.rows + 3) / 4 * 4, [&](auto m, int64_t i) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Clear();
    if (s.reads_state) {
      tile.AddProduct(w + at.queries_t + i, 1, C, panel, kPanel, d_key);
    }
    const auto add = [&](int64_t scores, int64_t rows) HWY_ATTR {
      const float* a = w + scores + i * C;
      const float* b = w + rows + v;
      tile.AddProduct(a, C, 1, b, at.value, i);
      tile.AddLower(a + i, C, 1, b + i * at.value, at.value);
    };
    add(at.scores, at.values);
    add(at.write_scores, at.residuals);
    tile.Store(w + layout.out + i * at.value + v, at.value);
  });
  if (s.leaves_state) {
    RowPrefetcher nothing;
    UpdatePair<kVectors>(at, s, v, panel, panel, w, nothing);
  }
}

static void DplrChunk(const RecurrentTask& task, int64_t head,
                      const ChunkSpan& s, const RecurrentForwardLayout& layout,
                      float* state) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentInputs& in = *task.in;
  const ChunkParts& at = layout.chunk;
  const float scale = task.options->scale;
  float* w = task.scratch;
  LoadPair(in, s, head, at, w);
  LoadTokens(in.queries, s, head, 0, in.keys.size[3], w + at.queries, at.key);
  LoadTokens(in.values, s, head, task.column, task.columns, w + at.values,
             at.value);
  PairScores(*task.options, in, at, w);
  MultiplyRows(w + at.queries, w + at.from_start, scale, at.key,
               w + at.queries);
  Transpose(w + at.queries, at.key, C, at.key, w + at.queries_t, C);
  DecayPair(at, w);
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    DplrPanel<decltype(n)::value>(task, s, layout, state, v);
  });
  const TensorView& out = task.out->out;
  const int64_t skip =
      task.column * static_cast<int64_t>(DTypeBytes(out.dtype));
  for (int64_t r = 0; r < s.rows; ++r) {
    StoreRow(out.dtype, w + layout.out + r * at.value, task.columns,
             out.Row(s.batch, s.first + r, head) + skip);
  }
}

static void DplrForwardSequence(const RecurrentTask& task) {
  ForEachChunk(task, [&](int64_t head, const ChunkSpan& s,
                         const RecurrentForwardLayout& layout, float* state)
                         HWY_ATTR { DplrChunk(task, head, s, layout, state); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DplrForwardSequence);

void CheckDplrAttention(const RecurrentOptions& options,
                        const RecurrentInputs& in,
                        const RecurrentOutputs& outputs) {
  CheckRecurrent({"dplr_attention", false, true}, options, in, outputs.out);
}

size_t DplrAttentionWorkspaceBytes(const RecurrentInputs& in, int width) {
  return RecurrentForwardBytes(in, width);
}

void DplrAttentionForward(const RecurrentOptions& options,
                          const RecurrentInputs& in,
                          const RecurrentOutputs& outputs, Executor& executor,
                          void* workspace) {
  CheckDplrAttention(options, in, outputs);
  RunRecurrentForward(options, in, outputs, executor, workspace,
                      [](const RecurrentTask& task) {
                        HWY_DYNAMIC_DISPATCH(DplrForwardSequence)(task);
                      });
}

}  // namespace tarn
#endif  // HWY_ONCE
