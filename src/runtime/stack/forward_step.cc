// One token of one sequence, with every layer in one region of the executor. A
// step reads each weight once and does little else, so what counts is that the
// memory is never idle: a worker keeps the same share of every product and
// prefetches the beginning of the next one while it ends the last, and every
// worker computes the norms it needs instead of waiting for another to do it.
//
// Each layer has five phases of `width` shares each:
//   0  in = W_in In(x)                  shares of panels
//   1  a = Mix(in)                      shares of heads
//   2  y = Res(x) + W_out a             shares of panels
//   3  h = act(W_1 In(y)), or silu(W_1 In(y)) * W_3 In(y)
//   4  x = Res(y) + W_2 h
// Pre-norm: In = LN, Res(x) = x. Post-norm: both are the norm that closes the
// part before. Other sums do not run like this. x and y are two rows, so that
// no share reads what another one writes.
#include <algorithm>

#include "runtime/stack/forward.h"

namespace tarn {
namespace {

constexpr int64_t kPhases = 5;  // of a layer
// The least bytes of a layer: below, a hand-over costs more than a share saves.
constexpr int64_t kLeastBytes = 262144;
// Bytes of the next product that the end of one prefetches, and bytes after
// them that a worker prefetches while it waits for the others.
constexpr int64_t kFetched = 4096, kIdleFetch = 8192;

struct Range {
  int64_t begin, end;
};

// The part of `count` items that belongs to a share.
Range Part(int64_t count, int share, int width) {
  return {count * share / width, count * (share + 1) / width};
}

}  // namespace

bool Forward::StepsAsTeam() const {
  if (rows() != 1 || segments.size() != 1 || cross_ != nullptr ||
      weights_.layers.empty() || !config_.HasPlainSums()) {
    return false;
  }
  int64_t bytes = 0;
  for (const LayerWeights& w : weights_.layers) {
    if (!w.mixer->one_region() || w.feed_forward == nullptr ||
        w.feed_forward->team() == nullptr) {
      return false;
    }
    bytes += w.mixer->bytes() + w.feed_forward->bytes();
  }
  return bytes >= kLeastBytes * static_cast<int64_t>(weights_.layers.size());
}

void Forward::RunStep() {
  const int64_t layers = static_cast<int64_t>(weights_.layers.size());
  const int64_t head = head_rows_.empty() ? 0 : 1;
  team_.Run(
      kPhases * layers + head,
      [this](int64_t phase, int share, int worker) {
        StepPhase(phase, share, worker);
      },
      [this](int64_t phase, int share) {
        const bool attends = phase % kPhases == 1;
        const char* next =
            static_cast<const char*>(NextOfStep(phase + 1, share));
        if (next == nullptr) return;
        FetchMemory(attends ? next : next + kFetched, kIdleFetch);
      });
}

// The matrix of a phase; null for attention, and after the last phase.
const WeightMatrix* Forward::StepMatrix(int64_t phase) const {
  const size_t layer = static_cast<size_t>(phase / kPhases);
  if (layer == weights_.layers.size()) {
    const bool head = phase % kPhases == 0 && !head_rows_.empty();
    return head ? &all_.Head(config_) : nullptr;
  }
  const LayerWeights& w = weights_.layers[layer];
  switch (phase % kPhases) {
    case 0:
      return &w.mixer->in();
    case 2:
      return &w.mixer->out();
    case 3: {
      const TeamProducts& part = *w.feed_forward->team();
      return part.factor != nullptr ? part.factor : part.first;
    }
    case 4:
      return w.feed_forward->team()->second;
    default:
      return nullptr;
  }
}

// Where a share of a phase begins to read; null when nothing follows.
const void* Forward::NextOfStep(int64_t phase, int share) const {
  if (const WeightMatrix* w = StepMatrix(phase)) {
    return w->Panel(Part(w->panels(), share, team_.width()).begin);
  }
  const int64_t layer = phase / kPhases;
  if (layer == static_cast<int64_t>(weights_.layers.size())) return nullptr;
  const RuntimeMixer& mixer =
      *weights_.layers[static_cast<size_t>(layer)].mixer;
  return mixer.Reads(*segments[0].state, layer,
                     Part(mixer.shares(), share, team_.width()).begin);
}

// The row Res of a sublayer, for `sublayer` 2 l (attention of layer l) or
// 2 l + 1: the row it reads, closed by the norm of the sublayer before in
// post-norm models (then in the worker's scratch).
const float* Forward::StepResidual(int64_t sublayer, int worker) {
  const float* x = sublayer % 2 == 0 ? x_[0] : normed_[0];
  if (config_.norm == tarn::Norm::kPre || sublayer == 0) return x;
  const LayerWeights& before =
      weights_.layers[static_cast<size_t>((sublayer - 1) / 2)];
  const PartNorms& norms =
      sublayer % 2 == 0 ? before.feed_forward_norms : before.mixer_norms;
  float* closed = Scratch(worker);
  Norm(norms.closing, x, closed);
  return closed;
}

// The row In of a sublayer.
const float* Forward::StepInput(int64_t sublayer, int worker) {
  const float* x = StepResidual(sublayer, worker);
  if (config_.norm != tarn::Norm::kPre) return x;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(sublayer / 2)];
  const PartNorms& norms =
      sublayer % 2 == 0 ? w.mixer_norms : w.feed_forward_norms;
  float* normed = Scratch(worker);
  Norm(norms.before, x, normed);
  return normed;
}

void Forward::StepPhase(int64_t phase, int share, int worker) {
  const WeightMatrix* w = StepMatrix(phase);
  const int64_t layer = phase / kPhases;
  if (w == nullptr) {
    StepMix(layer, share, worker);
    return;
  }
  const Range panels = Part(w->panels(), share, team_.width());
  if (panels.begin == panels.end) return;
  RowPanels task{.w = w,
                 .panel_begin = panels.begin,
                 .panel_end = panels.end,
                 .next = NextOfStep(phase + 1, share)};
  switch (phase % kPhases) {
    case 0:
      if (layer == static_cast<int64_t>(weights_.layers.size())) {
        task.x = StepHeadInput(worker);
        task.y = head_out_[0];
      } else {
        task.x = StepInput(2 * layer, worker);
        task.y = in[0];
      }
      break;
    case 2:
      task.x = out[0];
      task.y = normed_[0];
      task.finish = MatMulFinish::kAdd;
      task.residual = StepResidual(2 * layer, worker);
      break;
    case 3: {
      const TeamProducts& part =
          *weights_.layers[static_cast<size_t>(layer)].feed_forward->team();
      task.x = StepInput(2 * layer + 1, worker);
      task.y = hidden_[0];
      if (part.factor != nullptr) {
        // The second factor comes first, then the one that it is multiplied
        // with: both matrices have the same panels.
        const WeightMatrix& gate = *part.first;
        const void* next = task.next;
        task.next = gate.Panel(panels.begin);
        PackedRowMatMul(task);
        task.next = next;
        task.w = &gate;
        task.residual = hidden_[0];
      }
      task.finish = part.finish;
      break;
    }
    case 4:
      task.x = hidden_[0];
      task.y = x_[0];
      task.finish = MatMulFinish::kAdd;
      task.residual = StepResidual(2 * layer + 1, worker);
      break;
  }
  PackedRowMatMul(task);
}

const float* Forward::StepHeadInput(int worker) {
  const int64_t layers = static_cast<int64_t>(weights_.layers.size());
  const float* x = StepResidual(2 * layers, worker);
  if (!config_.final_norm) return x;
  float* normed = Scratch(worker) + RowStride(config_.d_model);
  Norm(weights_.norm, x, normed);
  return normed;
}

void Forward::StepMix(int64_t layer, int share, int worker) {
  const RuntimeMixer& mixer =
      *weights_.layers[static_cast<size_t>(layer)].mixer;
  const Range part = Part(mixer.shares(), share, team_.width());
  if (part.begin == part.end) return;
  mixer.Step(*this, layer, part.begin, part.end, worker);
}

}  // namespace tarn
