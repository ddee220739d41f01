// Benchmark case of what a layer does after its mixer: rows=1024 width=128
// hidden=512, pre-norm, GELU; gradient=1: forward and back.
#include <algorithm>

#include "kernels/bench_case.h"
#include "kernels/layer_rest/layer_rest.h"

namespace tarn::bench {
namespace {

class LayerRest final : public Case {
 public:
  LayerRest(Params& params, int)
      : gradient_(params.Int("gradient", 0, 0) != 0) {
    shape_.rows = params.Int("rows", 1024);
    shape_.width = shape_.mixed = params.Int("width", 128);
    shape_.hidden = params.Int("hidden", 512);
    const int64_t rows = shape_.rows, d = shape_.width, f = shape_.hidden;
    weights_ = {New(d * d), New(d),     New(d), New(d),  New(f * d),
                New(f),     New(d * f), New(d), nullptr, nullptr};
    tensors_.x = New(rows * d);
    tensors_.mixed = New(rows * d);
    tensors_.y = New(rows * d);
    tensors_.s = New(rows * d);
    tensors_.n = New(rows * d);
    tensors_.kept = New(rows * f);
    tensors_.mean = New(rows);
    tensors_.inverse = New(rows);
    gradients_.grad_y = New(rows * d);
    gradients_.grad_x = New(rows * d);
    gradients_.grad_mixed = New(rows * d);
    gradients_.grad_out_weight = New(d * d);
    gradients_.grad_out_bias = New(d);
    gradients_.grad_gamma = New(d);
    gradients_.grad_beta = New(d);
    gradients_.grad_weight1 = New(f * d);
    gradients_.grad_bias1 = New(f);
    gradients_.grad_weight2 = New(d * f);
    gradients_.grad_bias2 = New(d);
    gradients_.hidden = New(rows * f);
    gradients_.grad_hidden = New(rows * f);
    const double weights = static_cast<double>(d * d + 2 * d * f);
    const double count = static_cast<double>(rows);
    work_.useful_flop = work_.executed_flop =
        (gradient_ ? 3 : 1) * 2 * count * weights;
    work_.bytes =
        (gradient_ ? 3 : 1) * 4 * count * static_cast<double>(5 * d + f);
  }
  void Run(Executor& executor) override {
    const int64_t floats =
        std::max(LayerRestWorkspaceFloats(shape_, executor),
                 LayerRestGradientWorkspaceFloats(shape_, executor));
    if (workspace_.size() < floats) workspace_ = AlignedBuffer<float>(floats);
    LayerRestForward({}, shape_, weights_, tensors_, workspace_.data(),
                     executor);
    if (!gradient_) return;
    LayerRestBackward({}, shape_, weights_, tensors_, gradients_,
                      workspace_.data(), executor);
  }

 private:
  float* New(int64_t count) {
    held_.emplace_back(count, DType::kF32, held_.size() + 1);
    return held_.back().f32();
  }

  bool gradient_;
  std::vector<Values> held_;
  LayerRestShape shape_;
  LayerRestWeights weights_;
  LayerRestTensors tensors_;
  LayerRestGradients gradients_;
  AlignedBuffer<float> workspace_;
};

}  // namespace

void RegisterLayerRest(Registry& registry) {
  registry.push_back({"layer_rest", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            new LayerRest(params, threads));
                      }});
}

}  // namespace tarn::bench
