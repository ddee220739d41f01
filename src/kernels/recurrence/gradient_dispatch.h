// How the gradients of the gated recurrences are split into tasks: the same for
// every operator, whose kernels come as functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/gradient_layout.h"
#include "kernels/recurrence/part_sums.h"
#include "kernels/recurrence/tasks.h"

namespace tarn {

// The gradient's workspace: scratch of the workers, or of the tasks where a
// head is cut into several, with their parts of dq and dk for 256 tokens; then
// what every sequence and value head adds to sums over the batch.
struct RecurrentGradientPlan {
  int64_t floats, states, key, blocks;
  int64_t pairs;  // (sequence, query/key head) that are processed at once
  int64_t places;
  bool head_gates, bonus;
  RecurrentGradientPlan(const RecurrentInputs& in, int width,
                        bool has_checkpoints)
      : floats(RecurrentGradientLayout(in, has_checkpoints).total),
        states(in.StateCount()),
        key(PadRow(in.keys.size[3])),
        blocks(GradientBlocks(in)),
        pairs(std::clamp<int64_t>(2 * width / blocks, 1,
                                  std::max<int64_t>(Pairs(in), 1))),
        places(blocks > 1 ? pairs * blocks : width),
        head_gates(in.head_gates != nullptr),
        bonus(in.bonus != nullptr) {}
  static int64_t Pairs(const RecurrentInputs& in) {
    return in.SequenceCount() * in.keys.size[2];
  }
  int64_t part_floats() const { return kRecurrentGroup * key; }
  int64_t parts() const { return floats * places; }
  int64_t gate_sums() const {
    return parts() + (blocks > 1 ? 2 * places * part_floats() : 0);
  }
  int64_t bonus_sums() const {
    return gate_sums() + (head_gates ? PadRow(2 * states) : 0);
  }
  int64_t total() const { return bonus_sums() + (bonus ? states * key : 0); }
};

inline size_t RecurrentGradientBytes(const RecurrentInputs& in, int width,
                                     bool has_checkpoints) {
  return static_cast<size_t>(
             RecurrentGradientPlan(in, width, has_checkpoints).total()) *
         sizeof(float);
}

// Tasks of a gradient, by a pair of a sequence and a query/key head.
class RecurrentGradientTasks {
 public:
  RecurrentGradientTasks(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentGradients& grad,
                         const RecurrentGradientPlan& plan, float* workspace)
      : options_(options), in_(in), grad_(grad), plan_(plan), w_(workspace) {}

  int64_t heads() const { return in_.keys.size[2]; }
  int64_t value_heads() const { return in_.values.size[2]; }
  double* gate_sums() const {
    return reinterpret_cast<double*>(w_ + plan_.gate_sums());
  }
  float* bonus_sums() const { return w_ + plan_.bonus_sums(); }
  // Parts of dq, then of dk, of the task at `place`.
  float* Parts(int64_t place) const {
    return w_ + plan_.parts() + 2 * place * plan_.part_floats();
  }

  // Block `block` of a pair, all of its tokens, with scratch number `place`.
  RecurrentGradientTask At(int64_t pair, int64_t block, int64_t place) const {
    const int64_t sequence = pair / heads(), head = pair % heads();
    const int64_t group = value_heads() / heads();
    const int64_t from = group * block / plan_.blocks;
    const int64_t to = group * (block + 1) / plan_.blocks;
    const int64_t first = head * group + from;
    const int64_t row = sequence * value_heads() + first;
    return {&options_,
            &in_,
            &grad_,
            sequence,
            head,
            first,
            to - from,
            SpanAt(in_, sequence).groups(),
            0,
            w_ + place * plan_.floats,
            nullptr,
            nullptr,
            plan_.head_gates ? gate_sums() + row : nullptr,
            plan_.bonus ? bonus_sums() + row * plan_.key : nullptr};
  }

  // dq and dk of chunk c of group n of a pair from the parts of its blocks, the
  // first of which is at `place`.
  void Sum(int64_t pair, int64_t place, int64_t n, int64_t c) const {
    const TokenSpan span = SpanAt(in_, pair / heads());
    const int64_t first = n * kRecurrentGroup + c * kRecurrentChunk;
    const int64_t rows = std::min(kRecurrentChunk, span.tokens - first);
    float* parts = Parts(place) + c * kRecurrentChunk * plan_.key;
    const TensorView* to[] = {&grad_.grad_queries, &grad_.grad_keys};
    for (int64_t i = 0; i < 2 && rows > 0; ++i) {
      SumParts({parts + i * plan_.part_floats(), 2 * plan_.part_floats(),
                plan_.blocks, plan_.key, rows, to[i], span.batch,
                span.first + first, pair % heads()});
    }
  }

 private:
  const RecurrentOptions& options_;
  const RecurrentInputs& in_;
  const RecurrentGradients& grad_;
  const RecurrentGradientPlan& plan_;
  float* const w_;
};

// Some pairs at once, 256 tokens of all their blocks after another: parts of dq
// and dk are kept for these tokens alone.
template <class F>
void RunGradientBlocks(const RecurrentInputs& in,
                       const RecurrentGradientPlan& plan,
                       const RecurrentGradientTasks& tasks, Executor& executor,
                       const F& run) {
  const int64_t all = RecurrentGradientPlan::Pairs(in), blocks = plan.blocks;
  for (int64_t first = 0; first < all; first += plan.pairs) {
    const int64_t pairs = std::min(plan.pairs, all - first);
    int64_t groups = 1;
    for (int64_t i = 0; i < pairs; ++i) {
      groups = std::max(groups, tasks.At(first + i, 0, 0).begin);
    }
    for (int64_t n = groups - 1; n >= 0; --n) {
      executor.ParallelFor(pairs * blocks, [&](int64_t index, int) {
        RecurrentGradientTask task =
            tasks.At(first + index / blocks, index % blocks, index);
        if (task.begin <= n && (task.begin > 0 || n > 0)) return;
        task.begin = std::min(task.begin, n + 1);
        task.end = n;
        task.query_parts = tasks.Parts(index);
        task.key_parts = task.query_parts + plan.part_floats();
        run(task);
      });
      executor.ParallelFor(pairs * kGroupChunks, [&](int64_t index, int) {
        const int64_t pair = index / kGroupChunks;
        tasks.Sum(first + pair, pair * blocks, n, index % kGroupChunks);
      });
    }
  }
}

// run(RecurrentGradientTask) for every sequence, query/key head and block of
// value heads; sums over the batch are added up in index order.
template <class F>
void RunRecurrentGradient(const RecurrentOptions& options,
                          const RecurrentInputs& in,
                          const RecurrentGradients& grad, Executor& executor,
                          void* workspace, const F& run) {
  const RecurrentGradientPlan plan(in, executor.width(),
                                   grad.checkpoints != nullptr);
  const RecurrentGradientTasks tasks(options, in, grad, plan,
                                     static_cast<float*>(workspace));
  const int64_t value_heads = in.values.size[2], d_key = in.keys.size[3];
  if (plan.head_gates) std::fill_n(tasks.gate_sums(), plan.states, 0.0);
  if (plan.bonus) std::fill_n(tasks.bonus_sums(), plan.states * plan.key, 0.0f);
  if (plan.blocks > 1) {
    RunGradientBlocks(in, plan, tasks, executor, run);
  } else {
    executor.ParallelFor(
        RecurrentGradientPlan::Pairs(in),
        [&](int64_t index, int worker) { run(tasks.At(index, 0, worker)); });
  }
  for (int64_t h = 0;
       h < value_heads && grad.grad_head_gates != nullptr && plan.head_gates;
       ++h) {
    double sum = 0;
    for (int64_t n = 0; n < in.SequenceCount(); ++n) {
      sum += tasks.gate_sums()[n * value_heads + h];
    }
    grad.grad_head_gates[h] = static_cast<float>(sum);
  }
  for (int64_t i = 0;
       i < value_heads * d_key && grad.grad_bonus != nullptr && plan.bonus;
       ++i) {
    float sum = 0.0f;
    for (int64_t n = 0; n < in.SequenceCount(); ++n) {
      sum += tasks.bonus_sums()[(n * value_heads + i / d_key) * plan.key +
                                i % d_key];
    }
    grad.grad_bonus[i] = sum;
  }
}

}  // namespace tarn
