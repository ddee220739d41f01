// One token of one sequence: every layer in one region of the executor. A step
// reads each weight once and does little else, so what counts is that memory
// never waits: a worker keeps the same share of every product, fetches the
// beginning of the next one while it ends the last, and norms are computed by
// whoever needs them instead of by one while the others wait.
//
// Five phases a layer, each of `width` shares:
//   0  q, k, v = W_qkv In(x)            shares of panels
//   1  a = Attention(q, k, v)           shares of heads
//   2  y = Res(x) + W_out a             shares of panels
//   3  h = act(W_1 In(y))
//   4  x = Res(y) + W_2 h
// Pre-norm: In = LN, Res(x) = x. Post-norm: both are the norm that closes the
// sublayer before. x and y are two rows, so that nobody reads what another
// share writes.
#include <algorithm>

#include "kernels/rotary/rotary.h"
#include "runtime/stack/forward.h"

namespace tarn {
namespace {

constexpr int64_t kPhases = 5;  // of a layer
// Of one layer: below, a hand-over costs more than a share saves.
constexpr int64_t kLeastBytes = 262144;
// What a product's end has fetched of the next one, and what a worker that
// waits for the others fetches behind it.
constexpr int64_t kFetched = 4096, kIdleFetch = 8192;

struct Range {
  int64_t begin, end;
};

// The part of `count` things that falls to a share.
Range Part(int64_t count, int share, int width) {
  return {count * share / width, count * (share + 1) / width};
}

}  // namespace

bool Forward::StepsAsTeam() const {
  if (rows() != 1 || segments_.size() != 1 || rotated_features_ ||
      config_.arch == Arch::kSeq2seq || weights_.layers.empty()) {
    return false;
  }
  const LayerWeights& w = weights_.layers.front();
  return w.qkv.bytes() + w.out.bytes() + w.linear1.bytes() +
             w.linear2.bytes() >=
         kLeastBytes;
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

// The matrix of a phase; null for attention, and behind the last.
const PackedMatrix* Forward::StepMatrix(int64_t phase) const {
  const size_t layer = static_cast<size_t>(phase / kPhases);
  if (layer == weights_.layers.size()) {
    const bool head = phase % kPhases == 0 && !head_rows_.empty();
    return head ? &all_.Head(config_) : nullptr;
  }
  const LayerWeights& w = weights_.layers[layer];
  switch (phase % kPhases) {
    case 0:
      return &w.qkv;
    case 2:
      return &w.out;
    case 3:
      return &w.linear1;
    case 4:
      return &w.linear2;
    default:
      return nullptr;
  }
}

// Where a share of a phase begins to read; null when nothing follows.
const void* Forward::NextOfStep(int64_t phase, int share) const {
  if (const PackedMatrix* w = StepMatrix(phase)) {
    return w->Panel(Part(w->panels(), share, team_.width()).begin);
  }
  const int64_t layer = phase / kPhases;
  if (layer == static_cast<int64_t>(weights_.layers.size())) return nullptr;
  const SequenceState& state = *segments_[0].state;
  const int64_t head = Part(config_.n_heads, share, team_.width()).begin;
  if (config_.attention == AttentionKind::kFull) {
    return state.Keys(layer, head);
  }
  return state.S(layer) + head * form_.d_feature() * config_.d_value;
}

// Res of a sublayer, for `sublayer` 2 l (attention of layer l) or 2 l + 1: the
// row it reads, closed by the norm of the sublayer before in post-norm models
// (then in the worker's scratch).
const float* Forward::StepResidual(int64_t sublayer, int worker) {
  const float* x = sublayer % 2 == 0 ? x_[0] : normed_[0];
  if (config_.norm == tarn::Norm::kPre || sublayer == 0) return x;
  const LayerWeights& before =
      weights_.layers[static_cast<size_t>((sublayer - 1) / 2)];
  float* closed = WorkerScratch(worker);
  Norm(sublayer % 2 == 0 ? before.last_norm() : before.norm1, x, closed);
  return closed;
}

// In of a sublayer.
const float* Forward::StepInput(int64_t sublayer, int worker) {
  const float* x = StepResidual(sublayer, worker);
  if (config_.norm != tarn::Norm::kPre) return x;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(sublayer / 2)];
  float* normed = WorkerScratch(worker);
  Norm(sublayer % 2 == 0 ? w.norm1 : w.last_norm(), x, normed);
  return normed;
}

void Forward::StepPhase(int64_t phase, int share, int worker) {
  const PackedMatrix* w = StepMatrix(phase);
  const int64_t layer = phase / kPhases;
  if (w == nullptr) {
    StepAttend(layer, share, worker);
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
        task.y = qkv_[0];
      }
      break;
    case 2:
      task.x = attended_[0];
      task.y = normed_[0];
      task.finish = MatMulFinish::kAdd;
      task.residual = StepResidual(2 * layer, worker);
      break;
    case 3:
      task.x = StepInput(2 * layer + 1, worker);
      task.y = hidden_[0];
      task.finish = config_.activation == Activation::kRelu
                        ? MatMulFinish::kRelu
                        : MatMulFinish::kGelu;
      break;
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
  float* normed = WorkerScratch(worker) + RowStride(config_.d_model);
  Norm(weights_.norm, x, normed);
  return normed;
}

void Forward::StepAttend(int64_t layer, int share, int worker) {
  const Segment& segment = segments_[0];
  const Range heads = Part(config_.n_heads, share, team_.width());
  if (heads.begin == heads.end) return;
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    if (config_.positions == Positions::kRotary) RotateHead(0, head);
    if (config_.attention == AttentionKind::kFull) {
      AttendHeadFull(segment, layer, head, worker);
    } else if (form_.outside()) {
      AttendHeadOutside(segment, layer, head, worker);
    }
  }
  if (config_.attention == AttentionKind::kLinear && !form_.outside()) {
    AttendHeads(segment, layer, heads.begin, heads.end - heads.begin);
  }
}

}  // namespace tarn
