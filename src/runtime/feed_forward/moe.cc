// The mixture of experts (feed_forward/moe_form.h). The rows of a piece are
// sorted by expert, so that each needed expert's matrices are read once a
// piece; the others are not read. A row's bits do not depend on the rows around
// it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "feed_forward/moe_form.h"
#include "kernels/activation/activation.h"
#include "kernels/moe/groups.h"
#include "kernels/moe/passes.h"
#include "kernels/moe/router.h"
#include "kernels/scratch.h"
#include "runtime/feed_forward/feed_forward.h"

namespace tarn {
namespace {

// The matrices of one expert.
struct ExpertMatrices {
  WeightMatrix linear1, linear3, linear2;  // linear3 of a gated one

  int64_t bytes() const {
    return linear1.bytes() + linear2.bytes() + linear3.bytes();
  }
};

ExpertActivation ActivationOf(ExpertPart part) {
  switch (part) {
    case ExpertPart::kSwiglu:
      return ExpertActivation::kSilu;
    case ExpertPart::kGeglu:
      return ExpertActivation::kGelu;
    case ExpertPart::kRelu2:
      break;
  }
  return ExpertActivation::kRelu2;
}

// Hands out parts of the hidden rows of a piece, 64 bytes apart. Null: counts.
class Carver {
 public:
  explicit Carver(float* begin) : begin_(begin) {}
  float* Floats(int64_t count) {
    float* part = begin_ == nullptr ? nullptr : begin_ + floats_;
    floats_ += PadRow(count);
    return part;
  }
  int64_t* Indices(int64_t count) {
    return reinterpret_cast<int64_t*>(Floats(2 * count));
  }
  int64_t floats() const { return floats_; }

 private:
  float* const begin_;
  int64_t floats_ = 0;
};

class MoePart final : public RuntimeFeedForward {
 public:
  MoePart(const ModelConfig& layer, MixerTensors& tensors)
      : form_(MoeFormOf(layer)),
        d_model_(layer.d_model),
        router_(tensors.Stack({"router"}, {form_.experts}, d_model_,
                              /*biases=*/false)) {
    if (form_.biased()) router_bias_ = tensors.Vector("router_bias");
    const auto maps = [&](const char* name, int64_t out, int64_t in) {
      return tensors.Matrices(name, form_.experts, out, in);
    };
    std::vector<WeightMatrix> linear1 =
        maps("experts.linear1", form_.width, d_model_);
    std::vector<WeightMatrix> linear3(linear1.size());
    if (form_.gated()) {
      linear3 = maps("experts.linear3", form_.width, d_model_);
    }
    std::vector<WeightMatrix> linear2 =
        maps("experts.linear2", d_model_, form_.width);
    for (size_t e = 0; e < linear1.size(); ++e) {
      experts_.push_back({std::move(linear1[e]), std::move(linear3[e]),
                          std::move(linear2[e])});
    }
    if (form_.shared_width == 0) return;
    const auto one = [&](const char* name, int64_t out, int64_t in) {
      return tensors.Stack({name}, {out}, in, /*biases=*/false);
    };
    shared_.linear1 = one("shared.linear1", form_.shared_width, d_model_);
    if (form_.gated()) {
      shared_.linear3 = one("shared.linear3", form_.shared_width, d_model_);
    }
    shared_.linear2 = one("shared.linear2", d_model_, form_.shared_width);
    if (form_.shared_gate) shared_gate_ = one("shared_gate", 1, d_model_);
  }

  int64_t bytes() const override {
    int64_t bytes = router_.bytes() + shared_.bytes() + shared_gate_.bytes();
    for (const ExpertMatrices& expert : experts_) bytes += expert.bytes();
    return bytes;
  }
  // What one row needs, hence more than its share of several.
  int64_t hidden_width() const override { return Layout(nullptr, 1).floats; }

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t) const override {
    const Places at = Layout(rows.hidden.data, rows.count);
    Executor& executor = block.executor();
    PackedMatMul(rows.y.data, rows.y.stride, rows.count, router_,
                 {at.logits, form_.experts}, executor);
    Choose(rows.count, at, executor);
    ExpertsProblem p;
    p.tokens = rows.count;
    p.top_k = form_.per_token;
    p.experts = form_.experts;
    p.d_model = d_model_;
    const ExpertGroups groups = GroupsIn(p, at.indices);
    GroupByExpert(at.chosen, groups);
    const size_t row_bytes = static_cast<size_t>(d_model_) * sizeof(float);
    block.ForTasks(groups.assignments, d_model_ / 4, [&](int64_t r, int) {
      std::memcpy(at.sorted + r * d_model_,
                  rows.y[groups.order[r] / form_.per_token], row_bytes);
    });
    for (int64_t e = 0; e < form_.experts; ++e) {
      const int64_t begin = groups.offsets[e];
      const int64_t count = groups.offsets[e + 1] - begin;
      if (count == 0) continue;
      float* own = at.sorted + begin * d_model_;
      RunExpert(block, experts_[static_cast<size_t>(e)], {own, d_model_}, count,
                at, {own, d_model_});
    }
    CombineExperts(p, groups, at.weights, at.sorted, at.sum, executor);
    if (form_.shared_width > 0) AddShared(block, rows, at);
    block.ForTasks(rows.count, d_model_ / 4, [&](int64_t i, int) {
      AddToRow(at.sum + i * d_model_, d_model_, rows.x[i]);
    });
  }

  // Logits and the gate of the shared expert; the choice; the first products of
  // the chosen experts and of the shared one; their last ones.
  int phases() const override { return 4; }
  int64_t units(int phase) const override {
    switch (phase) {
      case 0:
        return PanelUnits({&router_, &shared_gate_});
      case 1:
        return 1;
      case 2:
        return form_.per_token * Panels(form_.width) +
               Panels(form_.shared_width);
      default:
        return Panels(d_model_);
    }
  }
  void Step(MixerBlock&, const FeedForwardRows& rows,
            const StepShare& share) const override {
    // Rows choose experts of their own, so each goes by itself.
    StepShare one = share;
    one.rows = 1;
    for (int64_t row = 0; row < rows.count; ++row) StepRow(rows, row, one);
  }
  const void* Reads(int phase, int64_t unit) const override {
    return phase == 0 ? PanelAt({&router_, &shared_gate_}, unit) : nullptr;
  }

 private:
  void StepRow(const FeedForwardRows& rows, int64_t row,
               const StepShare& share) const {
    const Places at = Layout(rows.hidden[row], 1);
    const Rows y = rows.y.From(row);
    switch (share.phase) {
      case 0:
        RunProducts({{.w = &router_, .x = y, .y = {at.logits}},
                     {.w = &shared_gate_, .x = y, .y = {at.gates}}},
                    share);
        return;
      case 1: {
        SerialExecutor serial;
        Choose(1, at, serial);
        return;
      }
      case 2:
        StepFirst(y, at, share);
        return;
      default:
        StepLast(at, rows.x[row], share);
    }
  }

  static int64_t Panels(int64_t outputs) {
    return ColumnUnits(outputs, WeightMatrix::kPanel);
  }
  // Where the arrays of a piece lie.
  struct Places {
    float *logits, *weights, *sorted, *sum, *one, *three, *shared, *gates;
    int64_t *chosen, *indices;
    int64_t floats;  // of all
  };

  // The experts of each row, and their weights.
  void Choose(int64_t count, const Places& at, Executor& executor) const {
    const RouterOptions options = {
        form_.router == RouterKind::kSoftmax ? RouterScores::kSoftmax
                                             : RouterScores::kSigmoid,
        form_.per_token, form_.normalize, form_.scale,
        form_.biased() ? router_bias_.data() : nullptr};
    RouterForward(options, count, form_.experts, at.logits, at.chosen,
                  at.weights, executor);
  }

  // f(expert, number among the chosen, the share's part of its panels) for the
  // chosen experts of a single row; the shared one comes last.
  template <typename F>
  void ForChosen(const Places& at, const StepShare& share, const F& f) const {
    int64_t first = 0;
    for (int64_t j = 0; j <= form_.per_token; ++j) {
      const bool shared = j == form_.per_token;
      const int64_t panels = Panels(shared ? form_.shared_width : form_.width);
      StepShare own = share;
      own.begin = std::max<int64_t>(share.begin - first, 0);
      own.end = std::min(share.end - first, panels);
      first += panels;
      if (own.begin >= own.end) continue;
      f(shared ? shared_ : experts_[static_cast<size_t>(at.chosen[j])], j, own);
    }
  }

  void StepFirst(const Rows& y, const Places& at,
                 const StepShare& share) const {
    ForChosen(
        at, share,
        [&](const ExpertMatrices& w, int64_t j, const StepShare& own) {
          float* one = at.one + j * form_.width;
          float* three = form_.gated() ? at.three + j * form_.width : nullptr;
          StepShare before = own;
          before.next = w.linear1.Panel(own.begin);
          if (form_.gated()) {
            RunProducts({{.w = &w.linear3, .x = y, .y = {three}}}, before);
          }
          RunProducts({{.w = &w.linear1, .x = y, .y = {one}}}, own);
          const StepColumns columns = ColumnsOfPanels(w.linear1, own);
          one += columns.begin;
          if (form_.gated()) three += columns.begin;
          SerialExecutor serial;
          ExpertActivationRows(ActivationOf(form_.part), 1, columns.count, one,
                               three, one, serial);
        });
  }

  // x = the sum of the experts' last products, for some columns.
  void StepLast(const Places& at, float* x, const StepShare& share) const {
    const StepColumns own = ColumnsOf(d_model_, WeightMatrix::kPanel, share);
    for (int64_t j = 0; j < form_.per_token; ++j) {
      const ExpertMatrices& w = experts_[static_cast<size_t>(at.chosen[j])];
      float* result = at.sorted + j * d_model_;
      RunProducts(
          {{.w = &w.linear2, .x = {at.one + j * form_.width}, .y = {result}}},
          share);
      AddExpertRow(result + own.begin, at.weights[j], j == 0, own.count,
                   x + own.begin);
    }
    if (form_.shared_width == 0) return;
    RunProducts({{.w = &shared_.linear2,
                  .x = {at.one + form_.per_token * form_.width},
                  .y = {at.shared}}},
                share);
    AddGated(at.shared + own.begin, at.gates[0], own.count, x + own.begin);
  }

  // sum += shared sigma(gate), or without a gate sum += shared.
  void AddGated(float* shared, float gate_logit, int64_t width,
                float* sum) const {
    if (form_.shared_gate) {
      const float gate = 1.0f / (1.0f + std::exp(-gate_logit));
      for (int64_t d = 0; d < width; ++d) shared[d] *= gate;
    }
    AddToRow(shared, width, sum);
  }

  Places Layout(float* begin, int64_t count) const {
    const int64_t sorted = count * form_.per_token;
    // A step runs the shared expert at the same time as the others.
    const int64_t hidden = sorted * form_.width + count * form_.shared_width;
    Carver carver(begin);
    Places at;
    at.logits = carver.Floats(count * form_.experts);
    at.weights = carver.Floats(sorted);
    at.chosen = carver.Indices(sorted);
    at.indices = carver.Indices(form_.experts + 1 + 2 * sorted);
    at.sorted = carver.Floats(sorted * d_model_);
    at.sum = carver.Floats(count * d_model_);
    at.one = carver.Floats(hidden);
    at.three = carver.Floats(form_.gated() ? hidden : 0);
    at.shared = carver.Floats(form_.shared_width > 0 ? count * d_model_ : 0);
    at.gates = carver.Floats(count);
    at.floats = carver.floats();
    return at;
  }

  // to = linear2 (act(linear1 from) * linear3 from); `to` may be `from`.
  void RunExpert(MixerBlock& block, const ExpertMatrices& w, const Rows& from,
                 int64_t count, const Places& at, const Rows& to) const {
    const int64_t width = w.linear1.outputs();
    Executor& executor = block.executor();
    PackedMatMul(from.data, from.stride, count, w.linear1, {at.one, width},
                 executor);
    if (form_.gated()) {
      PackedMatMul(from.data, from.stride, count, w.linear3, {at.three, width},
                   executor);
    }
    block.ForTasks(count, width, [&](int64_t i, int) {
      SerialExecutor serial;
      float* one = at.one + i * width;
      ExpertActivationRows(ActivationOf(form_.part), 1, width, one,
                           form_.gated() ? at.three + i * width : nullptr, one,
                           serial);
    });
    PackedMatMul(at.one, width, count, w.linear2, {to.data, to.stride},
                 executor);
  }

  void AddShared(MixerBlock& block, const FeedForwardRows& rows,
                 const Places& at) const {
    RunExpert(block, shared_, rows.y, rows.count, at, {at.shared, d_model_});
    if (form_.shared_gate) {
      PackedMatMul(rows.y.data, rows.y.stride, rows.count, shared_gate_,
                   {at.gates, 1}, block.executor());
    }
    block.ForTasks(rows.count, d_model_, [&](int64_t i, int) {
      AddGated(at.shared + i * d_model_, at.gates[i], d_model_,
               at.sum + i * d_model_);
    });
  }

  const MoeForm form_;
  const int64_t d_model_;
  const WeightMatrix router_;
  std::vector<float> router_bias_;  // [E] or empty
  std::vector<ExpertMatrices> experts_;
  ExpertMatrices shared_;
  WeightMatrix shared_gate_;
};

}  // namespace

std::vector<RuntimeFeedForwardRow> MoeFeedForwards() {
  return {{"moe",
           [](const ModelConfig& layer,
              MixerTensors& tensors) -> std::unique_ptr<RuntimeFeedForward> {
             return std::make_unique<MoePart>(layer, tensors);
           }}};
}

}  // namespace tarn
