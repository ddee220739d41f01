// The gradient's pass over one sequence: groups of 256 tokens in reverse, the
// states of each rebuilt first, then its chunks in reverse.

#if defined(TARN_KERNELS_RECURRENCE_CHUNKED_GRADIENT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_CHUNKED_GRADIENT_INL_H_
#undef TARN_KERNELS_RECURRENCE_CHUNKED_GRADIENT_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_CHUNKED_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/forward-inl.h"
#include "kernels/recurrence/gradient_head-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How ChunkedGradient rebuilds and differentiates a chunk of decay_attention,
// or of delta_attention. One query/key head and the value heads that it serves.
template <bool kDelta>
struct GatedCore {
  // Whether a chunk keeps more of the forward pass than the states.
  static constexpr bool kSolves = kDelta;

  static void Rebuild(const RecurrentGradientTask& task,
                      const RecurrentGradientLayout& layout, const ChunkSpan& s,
                      int64_t g, const float* from, float* to, float* residuals,
                      float* solve, RowPrefetcher& prefetch) {
    RebuildChunk<kDelta>(task, layout, s, g, from, to, residuals, solve,
                         prefetch);
  }

  static void ZeroRest(const RecurrentGradientTask& task,
                       const TokenSpan& span) {
    for (int64_t g = 0; kDelta && g < task.group; ++g) {
      ZeroPadding(task.grad->grad_betas, span, task.value_head + g, 0, 1);
    }
  }

  // What the value heads of a chunk share.
  static void LoadShared(const RecurrentGradientTask& task,
                         const RecurrentGradientLayout& layout,
                         const ChunkSpan&) {
    const RecurrentInputs& in = *task.in;
    const ChunkParts& at = layout.chunk;
    if (in.VectorGates()) return;
    KeyScores(at, task.scratch + at.keys, task.scratch + at.queries_t,
              in.keys.size[3], task.scratch + layout.head_scores);
  }

  static void ValueHead(const GradientContext& c, const float* residuals,
                        const float* solve) {
    GradientValueHead<kDelta>(c, residuals, solve);
  }

  static void StoreRest(const RecurrentGradientTask&,
                        const RecurrentGradientLayout&, const ChunkSpan&) {}
};

// The pass of one task, or its next part. Core: GatedCore, or that of the
// low-rank pair.
template <class Core>
class ChunkedGradient {
 public:
  explicit ChunkedGradient(const RecurrentGradientTask& task)
      : task_(task),
        in_(*task.in),
        layout_(in_, task.grad->checkpoints != nullptr),
        at_(layout_.chunk),
        span_(SpanAt(in_, task.sequence)),
        w_(task.scratch) {}

  void Run() {
    const RecurrentGradients& grad = *task_.grad;
    if (task_.begin == span_.groups()) Begin();
    for (int64_t n = task_.begin - 1; n >= task_.end; --n) Group(n);
    for (int64_t g = 0; g < task_.group && task_.end == 0; ++g) {
      StoreState(w_ + layout_.GradState(g), at_.key, d_key(), d_value(), 0,
                 d_value(), Dense(grad.grad_initial_state, task_.sequence, g));
    }
  }

 private:
  int64_t d_key() const { return in_.keys.size[3]; }
  int64_t d_value() const { return in_.values.size[3]; }
  int64_t Head(int64_t g) const { return task_.value_head + g; }

  void Begin() const {
    const RecurrentGradients& grad = *task_.grad;
    ZeroAllPadding();
    for (int64_t g = 0; g < task_.group; ++g) {
      LoadState(Dense(grad.grad_final_state, task_.sequence, g), d_key(),
                d_value(), 0, d_value(), w_ + layout_.GradState(g), at_.key);
    }
    if (grad.checkpoints == nullptr) MakeCheckpoints();
  }

  template <class T>
  T* Dense(T* base, int64_t row, int64_t g) const {
    if (base == nullptr) return nullptr;
    return base + (row * in_.values.size[2] + Head(g)) * d_key() * d_value();
  }

  // Chunk c of the sequence in the forward pass: with a state before it, and
  // with one after it if that is used.
  ChunkSpan Forward(int64_t c, bool leaves_state) const {
    ChunkSpan s = ChunkAt(span_, c);
    s.reads_state = c > 0 || in_.initial_state != nullptr;
    s.leaves_state = leaves_state;
    return s;
  }

  void ZeroAllPadding() const {
    const RecurrentGradients& grad = *task_.grad;
    if (task_.value_head % (in_.values.size[2] / in_.keys.size[2]) == 0) {
      ZeroPadding(grad.grad_queries, span_, task_.head, 0, d_key());
      ZeroPadding(grad.grad_keys, span_, task_.head, 0, d_key());
    }
    for (int64_t g = 0; g < task_.group; ++g) {
      ZeroPadding(grad.grad_values, span_, Head(g), 0, d_value());
      if (in_.HasGates()) {
        ZeroPadding(grad.grad_gates, span_, Head(g), 0, in_.gates.size[3]);
      }
    }
    Core::ZeroRest(task_, span_);
  }

  // The state before group n into the first state of the group.
  void LoadGroupState(int64_t n, int64_t g) const {
    float* to = w_ + layout_.State(g, 0);
    if (n == 0) {
      LoadState(Dense(in_.initial_state, task_.sequence, g), d_key(), d_value(),
                0, d_value(), to, at_.key);
    } else if (task_.grad->checkpoints != nullptr) {
      LoadState(Dense(task_.grad->checkpoints, span_.checkpoint + n - 1, g),
                d_key(), d_value(), 0, d_value(), to, at_.key);
    } else {
      std::copy_n(w_ + layout_.Checkpoint(g, n - 1), layout_.state_floats, to);
    }
  }

  // The states before every group but the first, when none were saved.
  void MakeCheckpoints() const {
    const int64_t chunks = (span_.groups() - 1) * kGroupChunks;
    for (int64_t g = 0; g < task_.group && chunks > 0; ++g) {
      LoadGroupState(0, g);
      float* state = w_ + layout_.State(g, 0);
      for (int64_t c = 0; c < chunks; ++c) {
        const ChunkSpan s = Forward(c, true);
        RowPrefetcher prefetch = PrefetchRebuild(s, g);
        Core::Rebuild(task_, layout_, s, g, state, state, nullptr, nullptr,
                      prefetch);
        if ((c + 1) % kGroupChunks == 0) {
          std::copy_n(state, layout_.state_floats,
                      w_ + layout_.Checkpoint(g, c / kGroupChunks));
        }
      }
    }
  }

  bool HasGradState(int64_t c) const {
    return c + 1 < span_.chunks() || task_.grad->grad_final_state != nullptr;
  }

  void Group(int64_t n) const {
    const int64_t first = n * kGroupChunks;
    const int64_t count =
        std::min<int64_t>(kGroupChunks, span_.chunks() - first);
    for (int64_t g = 0; g < task_.group; ++g) {
      LoadGroupState(n, g);
      for (int64_t c = 0; c < count; ++c) {
        // The state after the group serves the gradient of decays by channel.
        const bool vector =
            in_.VectorGates() || (in_.HasPair() && IsGated(in_));
        const bool used = c + 1 < count || (vector && HasGradState(first + c));
        if (!used && !Core::kSolves) break;
        const ChunkSpan s = Forward(first + c, used);
        RowPrefetcher prefetch = PrefetchRebuild(s, g);
        Core::Rebuild(task_, layout_, s, g, w_ + layout_.State(g, c),
                      w_ + layout_.State(g, c + 1),
                      w_ + layout_.Residuals(g, c), w_ + layout_.Solve(g, c),
                      prefetch);
      }
    }
    for (int64_t c = count - 1; c >= 0; --c) Chunk(first + c, c);
  }

  // Chunk `index` of the sequence, which is chunk c of its group.
  void Chunk(int64_t index, int64_t c) const {
    constexpr int64_t C = kRecurrentChunk;
    ChunkSpan s =
        Forward(index, index > 0 || task_.grad->grad_initial_state != nullptr);
    LoadTokens(in_.queries, s, task_.head, 0, d_key(), w_ + at_.queries,
               at_.key);
    LoadTokens(in_.keys, s, task_.head, 0, d_key(), w_ + at_.keys, at_.key);
    Transpose(w_ + at_.queries, at_.key, C, at_.key, w_ + at_.queries_t, C);
    Transpose(w_ + at_.keys, at_.key, C, at_.key, w_ + at_.keys_t, C);
    const bool finite = AllFinite(w_ + at_.queries, C * at_.key) &&
                        AllFinite(w_ + at_.keys, C * at_.key);
    Core::LoadShared(task_, layout_, s);
    for (int64_t g = 0; g < task_.group; ++g) {
      RowPrefetcher prefetch = PrefetchGradient(s, g);
      Core::ValueHead(
          {task_, layout_, at_, s, HasGradState(index), g, Head(g), finite,
           w_ + layout_.State(g, c), w_ + layout_.State(g, c + 1),
           w_ + layout_.GradState(g), w_, prefetch},
          w_ + layout_.Residuals(g, c), w_ + layout_.Solve(g, c));
      if (task_.group == 1) break;
      const auto sum = [&](int64_t from, int64_t to) HWY_ATTR {
        if (g == 0) {
          std::copy_n(w_ + from, C * at_.key, w_ + to);
        } else {
          AddRow(w_ + from, C * at_.key, w_ + to);
        }
      };
      sum(layout_.queries_grad, layout_.queries_sum);
      sum(layout_.keys_grad, layout_.keys_sum);
    }
    StoreSums(s, c);
    Core::StoreRest(task_, layout_, s);
  }

  // What Rebuild loads for the chunk after s.
  RowPrefetcher PrefetchRebuild(const ChunkSpan& s, int64_t g) const {
    RowPrefetcher prefetch;
    const int64_t next = s.first + kRecurrentChunk;
    if (g == 0)
      prefetch.Add(in_.keys, in_.keys.Row(s.batch, next, task_.head), d_key());
    prefetch.Add(in_.values, in_.values.Row(s.batch, next, Head(g)), d_value());
    prefetch.Start(kRecurrentChunk,
                   ProductPauses(kRecurrentChunk, at_.key, at_.value));
    return prefetch;
  }

  // What the gradient of the next value head loads and stores that was not
  // loaded by Rebuild: of this chunk, or of the one before it.
  RowPrefetcher PrefetchGradient(const ChunkSpan& s, int64_t g) const {
    RowPrefetcher prefetch;
    const RecurrentGradients& grad = *task_.grad;
    const bool last = g + 1 == task_.group;
    const int64_t next = last ? s.first - kRecurrentChunk : s.first;
    if (next < span_.first) return prefetch;
    const auto add = [&](const TensorView& view, int64_t head, int64_t width) {
      prefetch.Add(view, view.Row(s.batch, next, head), width);
    };
    const int64_t head = Head(last ? 0 : g + 1);
    add(grad.grad_out, head, d_value());
    add(grad.grad_values, head, d_value());
    if (last) {
      add(in_.queries, task_.head, d_key());
      add(grad.grad_queries, task_.head, d_key());
      add(grad.grad_keys, task_.head, d_key());
    }
    prefetch.Start(kRecurrentChunk, 2 * (at_.key / kScoreRows));
    return prefetch;
  }

  // dq and dk of chunk c of a group, or this task's parts of them.
  void StoreSums(const ChunkSpan& s, int64_t c) const {
    const bool one = task_.group == 1;
    const float* queries =
        w_ + (one ? layout_.queries_grad : layout_.queries_sum);
    const float* keys = w_ + (one ? layout_.keys_grad : layout_.keys_sum);
    if (task_.query_parts != nullptr) {
      const int64_t row = c * kRecurrentChunk * at_.key;
      const int64_t count = kRecurrentChunk * at_.key;
      std::copy_n(queries, count, task_.query_parts + row);
      std::copy_n(keys, count, task_.key_parts + row);
      return;
    }
    const TensorView &dq = task_.grad->grad_queries,
                     &dk = task_.grad->grad_keys;
    for (int64_t r = 0; r < s.rows; ++r) {
      StoreRow(dq.dtype, queries + r * at_.key, d_key(),
               dq.Row(s.batch, s.first + r, task_.head));
      StoreRow(dk.dtype, keys + r * at_.key, d_key(),
               dk.Row(s.batch, s.first + r, task_.head));
    }
  }

  const RecurrentGradientTask& task_;
  const RecurrentInputs& in_;
  const RecurrentGradientLayout layout_;
  const ChunkParts& at_;
  const TokenSpan span_;
  float* const w_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
