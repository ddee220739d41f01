// A few rows, of one sequence or several, with every layer in one region of the
// executor. A step reads each weight once and does little else, so what counts
// is that the memory is never idle: a worker keeps the same share of every
// product and prefetches the beginning of the next one while it ends the last.
//
// Phases of a layer, each cut into shares (runtime/mixer/step.h):
//   in = W_in In(x)        the mixer's phases        r = W_out out
//   the phases of the feed-forward part, of which the last makes its r
// and the same for cross attention. Whoever reads a row next adds r to it and
// takes the norms. Each share does this for itself, in rows of its own, instead
// of waiting for another share to do it.
#include <algorithm>

#include "kernels/activation/activation.h"
#include "runtime/stack/forward.h"

namespace tarn {
namespace {

// The least bytes of a layer: below, a hand-over costs more than a share saves.
constexpr int64_t kLeastBytes = 262144;
// Bytes of the next product that the end of one prefetches, of one row or of
// several, and bytes after them that a worker prefetches while it waits for the
// others.
constexpr int64_t kFetched = 4096, kFetchedOfRows = 16384, kIdleFetch = 8192;

struct Range {
  int64_t begin, end;
};

// The part of `count` items that belongs to a share.
Range Part(int64_t count, int share, int width) {
  return {count * share / width, count * (share + 1) / width};
}

}  // namespace

// The list of phases, with the results that wait to be added.
class Forward::StepPlan {
 public:
  explicit StepPlan(std::vector<StepPhase>& phases) : phases_(phases) {}

  void Add(StepPhase phase, const PartNorms* reads = nullptr) {
    phase.reads = reads;
    phase.adds = waiting_;
    phase.adds_out = waiting_out_;
    waiting_ = nullptr;
    phases_.push_back(phase);
  }
  // Phases of a mixer or a feed-forward part.
  void AddAll(StepPhase phase, int count, const PartNorms* reads = nullptr) {
    for (; phase.number < count; ++phase.number) {
      Add(phase, phase.number == 0 ? reads : nullptr);
    }
  }
  // The last phase made a part's result, or there is no product after `out`.
  void End(const PartNorms& part, bool is_out) {
    waiting_ = &part;
    waiting_out_ = is_out;
  }

 private:
  std::vector<StepPhase>& phases_;
  const PartNorms* waiting_ = nullptr;
  bool waiting_out_ = false;
};

void Forward::PlanStep() {
  using Work = StepPhase::Work;
  int64_t bytes = 0;
  for (const LayerWeights& w : weights_.layers) {
    if (w.mixer == nullptr) return;
    const bool steps = w.mixer->phases() > 0 && (w.feed_forward == nullptr ||
                                                 w.feed_forward->phases() > 0);
    if (!steps) return;
    bytes += w.mixer->bytes();
    if (w.feed_forward != nullptr) bytes += w.feed_forward->bytes();
  }
  const int64_t layers = static_cast<int64_t>(weights_.layers.size());
  if (layers == 0 || bytes < kLeastBytes * layers) return;
  StepPlan plan(step_);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const auto feed_forward = [&] {
      if (w.feed_forward == nullptr) return;
      plan.AddAll({Work::kFeedForward, layer}, w.feed_forward->phases(),
                  &w.feed_forward_norms);
      plan.End(w.feed_forward_norms, false);
    };
    plan.Add({Work::kIn, layer}, &w.mixer_norms);
    if (config_.parallel_residual) feed_forward();
    plan.AddAll({Work::kMixer, layer}, w.mixer->phases());
    const bool made = w.mixer->out().outputs() == 0;
    if (!made) plan.Add({Work::kOut, layer});
    plan.End(w.mixer_norms, made);
    if (cross_ != nullptr) {
      plan.Add({Work::kCrossIn, layer}, &w.cross_norms);
      plan.Add({Work::kCross, layer});
      plan.Add({Work::kCrossOut, layer});
      plan.End(w.cross_norms, false);
    }
    if (!config_.parallel_residual) feed_forward();
  }
  plan.Add({Work::kHead, layers});
  step_rows_ = AlignedBuffer<float>(2 * kStepRows * RowStride(config_.d_model) *
                                    team_.width());
}

void Forward::RunStep() {
  // Without logits nothing reads the rows after the last layer.
  const bool read = !head_rows_.empty() || !hidden_rows_.empty();
  const int64_t phases = static_cast<int64_t>(step_.size()) - (read ? 0 : 1);
  team_.Run(
      phases,
      [this](int64_t phase, int share, int worker) {
        RunPhase(phase, share, worker);
      },
      [this, phases](int64_t phase, int share) {
        if (phase + 1 == phases) return;
        const char* next =
            static_cast<const char*>(NextOfStep(phase + 1, share));
        if (next == nullptr) return;
        const bool fetched =
            StepMatrix(step_[static_cast<size_t>(phase)]) != nullptr;
        if (fetched) next += rows() == 1 ? kFetched : kFetchedOfRows;
        FetchMemory(next, kIdleFetch);
      });
}

// The matrix of a phase that is one product, else null.
const WeightMatrix* Forward::StepMatrix(const StepPhase& phase) const {
  if (phase.work == StepPhase::Work::kHead) return &all_.Head(config_);
  const LayerWeights& w = weights_.layers[static_cast<size_t>(phase.layer)];
  switch (phase.work) {
    case StepPhase::Work::kIn:
      return w.mixer->in().outputs() > 0 ? &w.mixer->in() : nullptr;
    case StepPhase::Work::kOut:
      return &w.mixer->out();
    case StepPhase::Work::kCrossIn:
      return &w.cross.query;
    case StepPhase::Work::kCrossOut:
      return &w.cross.out;
    default:
      return nullptr;
  }
}

int64_t Forward::StepUnits(const StepPhase& phase) const {
  if (const WeightMatrix* w = StepMatrix(phase)) return w->panels();
  const LayerWeights& w = weights_.layers[static_cast<size_t>(phase.layer)];
  switch (phase.work) {
    case StepPhase::Work::kMixer:
      return w.mixer->units(phase.number);
    case StepPhase::Work::kFeedForward:
      return w.feed_forward->units(phase.number);
    case StepPhase::Work::kCross:
      return cross_->heads();
    default:
      return 1;  // a mixer without a first product
  }
}

// Where a share of a phase begins to read; null where that is not known.
const void* Forward::NextOfStep(int64_t index, int share) const {
  if (index == static_cast<int64_t>(step_.size())) return nullptr;
  const StepPhase& phase = step_[static_cast<size_t>(index)];
  const Range own = Part(StepUnits(phase), share, team_.width());
  if (own.begin == own.end) return nullptr;
  if (const WeightMatrix* w = StepMatrix(phase)) return w->Panel(own.begin);
  const LayerWeights& w = weights_.layers[static_cast<size_t>(phase.layer)];
  switch (phase.work) {
    case StepPhase::Work::kMixer:
      return w.mixer->Reads(*this, phase.layer, phase.number, own.begin);
    case StepPhase::Work::kFeedForward:
      return w.feed_forward->Reads(phase.number, own.begin);
    default:
      return nullptr;
  }
}

// x = closing(x + residual_factor after(r)), as Block::AddOut; y is scratch.
void Forward::AddStepResult(const StepPhase& phase, int64_t row, float* x,
                            float* y) const {
  const PartNorms& norms = *phase.adds;
  const int64_t d_model = config_.d_model;
  const float* result = phase.adds_out ? out[row] : normed_[row];
  if (config_.HasPlainSums()) {
    AddToRow(result, d_model, x);
  } else {
    if (!norms.after.empty()) {
      Norm(norms.after, result, y);
      result = y;
    }
    AddScaledRow(result, static_cast<float>(config_.residual_factor), d_model,
                 x);
  }
  if (!norms.closing.empty()) Norm(norms.closing, x, x);
}

// Makes a share's copy of what a phase reads of a row: x, which goes on from
// phase to phase, and y.
void Forward::MakeStepRow(const StepPhase& phase, int64_t row, float* x,
                          float* y) const {
  if (&phase == step_.data()) std::copy_n(x_[row], config_.d_model, x);
  if (phase.adds != nullptr) AddStepResult(phase, row, x, y);
  if (phase.reads == nullptr) return;
  // A part keeps its input for all of its phases.
  if (phase.reads->before.empty()) {
    std::copy_n(x, config_.d_model, y);
  } else {
    Norm(phase.reads->before, x, y);
  }
}

void Forward::RunPhase(int64_t index, int share, int worker) {
  const StepPhase& phase = step_[static_cast<size_t>(index)];
  const int64_t stride = RowStride(config_.d_model);
  const Rows x = {step_rows_.data() + 2 * kStepRows * stride * share, stride};
  const Rows y = x.From(kStepRows);
  for (int64_t row = 0; row < rows(); ++row) {
    MakeStepRow(phase, row, x[row], y[row]);
  }
  // Every share has all rows.
  if (phase.work == StepPhase::Work::kHead && share == 0) CopyStepHidden(x);
  const Range own = Part(StepUnits(phase), share, team_.width());
  if (own.begin == own.end) return;
  const StepShare task = {.layer = phase.layer,
                          .phase = phase.number,
                          .begin = own.begin,
                          .end = own.end,
                          .worker = worker,
                          .rows = rows(),
                          .next = NextOfStep(index + 1, share)};
  switch (phase.work) {
    case StepPhase::Work::kMixer:
      weights_.layers[static_cast<size_t>(phase.layer)].mixer->Step(*this,
                                                                    task);
      return;
    case StepPhase::Work::kFeedForward:
      weights_.layers[static_cast<size_t>(phase.layer)].feed_forward->Step(
          *this, {y, normed_, hidden_, 0, rows()}, task);
      return;
    case StepPhase::Work::kCross:
      for (const Segment& segment : segments) {
        for (int64_t head = own.begin; head < own.end; ++head) {
          cross_->ReadHead(*this, segment, phase.layer, head, worker);
        }
      }
      return;
    case StepPhase::Work::kHead:
      RunStepHead(x, y, task);
      return;
    default:
      RunProduct(phase, y, task);
  }
}

void Forward::CopyStepHidden(const Rows& x) {
  for (const Hidden& wanted : hidden_rows_) {
    for (int64_t i = 0; i < wanted.count; ++i) {
      FinalOf(x[wanted.row + i], wanted.to + i * config_.d_model);
    }
  }
}

// Logits of the rows that were asked for, which come one after the other.
void Forward::RunStepHead(const Rows& x, const Rows& y, StepShare share) {
  share.rows = static_cast<int64_t>(head_rows_.size());
  if (share.rows == 0) return;
  for (int64_t i = 0; i < share.rows; ++i) {
    FinalOf(x[head_rows_[static_cast<size_t>(i)]], y[i]);
  }
  RunProducts(
      {{.w = &all_.Head(config_), .x = y, .y = {}, .y_rows = head_out_.data()}},
      share);
}

void Forward::RunProduct(const StepPhase& phase, const Rows& y,
                         const StepShare& share) {
  const WeightMatrix* w = StepMatrix(phase);
  switch (phase.work) {
    case StepPhase::Work::kIn:
    case StepPhase::Work::kCrossIn:
      if (w == nullptr) {
        for (int64_t row = 0; row < rows(); ++row) {
          std::copy_n(y[row], config_.d_model, in[row]);
        }
      } else {
        RunProducts({{.w = w, .x = y, .y = in}}, share);
      }
      return;
    default:
      RunProducts({{.w = w, .x = out, .y = normed_}}, share);
  }
}

}  // namespace tarn
