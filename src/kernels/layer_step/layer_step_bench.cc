// Benchmark case of a token through layers with linear attention: rows=1
// layers=4 width=128 heads=4 hidden=512. Weights and states are read once,
// which bounds a single row.
#include "kernels/bench_case.h"
#include "kernels/layer_step/linear_step.h"

namespace tarn::bench {
namespace {

class LayerStep final : public Case {
 public:
  LayerStep(Params& params, int)
      : rows_(params.Int("rows", 1)),
        count_(params.Int("layers", 4)),
        width_(params.Int("width", 128)),
        heads_(params.Int("heads", 4)),
        hidden_(params.Int("hidden", 512)),
        of_layer_(4 * width_ * width_ + 2 * width_ * hidden_),
        of_state_(rows_ * width_ * (width_ / heads_)),
        weights_(count_ * of_layer_, DType::kF32),
        vectors_(2 * std::max(width_, hidden_), DType::kF32, 2),
        x_(rows_ * width_, DType::kF32, 3),
        out_(rows_ * width_, DType::kF32, 4),
        S_(count_ * of_state_, DType::kF32, 5),
        z_(count_ * rows_ * width_, DType::kF32, 6) {
    call_.rows = rows_;
    call_.width = width_;
    call_.heads = heads_;
    call_.d_key = call_.d_value = width_ / heads_;
    call_.hidden = hidden_;
    for (int64_t i = 0; i < count_; ++i) AddLayer(i);
    call_.layers = layers_.data();
    call_.count = count_;
    call_.x = x_.f32();
    call_.out = out_.f32();
    const double rows = static_cast<double>(rows_);
    const double states = static_cast<double>(count_ * of_state_);
    work_.useful_flop = work_.executed_flop =
        2 * rows * static_cast<double>(count_ * of_layer_) + 4 * states;
    work_.bytes = 4 * static_cast<double>(count_ * of_layer_) + 8 * states;
  }

  void Run(Executor& executor) override {
    if (team_ == nullptr || executor_ != &executor) {
      executor_ = &executor;
      team_ = std::make_unique<Team>(executor);
      workspace_ = AlignedBuffer<float>(
          LayerStepWorkspaceFloats(call_, executor.width()));
    }
    const LinearStepAttention attention({}, call_, states_.data());
    LayerSteps(call_, attention, workspace_.data(), *team_);
  }

 private:
  void AddLayer(int64_t i) {
    const float* next = weights_.f32() + i * of_layer_;
    const float* bias = vectors_.f32();
    const auto map = [&](int64_t outputs, int64_t inputs) {
      const float* weight = next;
      next += outputs * inputs;
      return LayerStepMap{weight, bias};
    };
    LayerStepLayer& layer = layers_.emplace_back();
    const LayerStepMap heads[] = {map(width_, width_), map(width_, width_),
                                  map(width_, width_), map(width_, width_)};
    const LayerStepNorm norm = {bias + width_, bias};
    layer.attention[0] = {heads[0], heads[1], heads[2], heads[3], norm};
    layer.linear1 = map(hidden_, width_);
    layer.linear2 = map(width_, hidden_);
    layer.norm = norm;
    float* S = S_.f32() + i * of_state_;
    float* z = z_.f32() + i * rows_ * width_;
    states_.push_back({S, z, S, z});
  }

  int64_t rows_, count_, width_, heads_, hidden_, of_layer_, of_state_;
  Values weights_, vectors_, x_, out_, S_, z_;
  std::vector<LayerStepLayer> layers_;
  std::vector<LinearAttentionState> states_;
  LayerStepCall call_;
  Executor* executor_ = nullptr;
  std::unique_ptr<Team> team_;
  AlignedBuffer<float> workspace_;
};

}  // namespace

void RegisterLayerStep(Registry& registry) {
  registry.push_back({"layer_step", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            new LayerStep(params, threads));
                      }});
}

}  // namespace tarn::bench
