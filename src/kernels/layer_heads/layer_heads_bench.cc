// Benchmark case of a norm followed by three maps: rows=1024 width=128;
// gradient=1: forward and back.
#include "kernels/bench_case.h"
#include "kernels/layer_heads/layer_heads.h"

namespace tarn::bench {
namespace {

class LayerHeads final : public Case {
 public:
  LayerHeads(Params& params, int)
      : rows_(params.Int("rows", 1024)),
        width_(params.Int("width", 128)),
        gradient_(params.Int("gradient", 0, 0) != 0),
        x_(rows_ * width_, DType::kF32),
        y_(3 * rows_ * width_, DType::kF32, 2),
        n_(rows_ * width_, DType::kF32, 3),
        rows_of_norm_(2 * rows_, DType::kF32, 4),
        weights_(3 * width_ * width_, DType::kF32, 5),
        vectors_(5 * width_, DType::kF32, 6),
        grad_x_(rows_ * width_, DType::kF32, 7),
        grad_weights_(3 * width_ * width_, DType::kF32, 8),
        grad_vectors_(5 * width_, DType::kF32, 9) {
    for (int64_t i = 0; i < 3; ++i) {
      maps_[i] = {weights_.f32() + i * width_ * width_,
                  vectors_.f32() + i * width_, width_};
      gradients_.grad_weights[i] = grad_weights_.f32() + i * width_ * width_;
      gradients_.grad_biases[i] = grad_vectors_.f32() + i * width_;
    }
    call_.rows = rows_;
    call_.width = width_;
    call_.x = x_.f32();
    call_.gamma = vectors_.f32() + 3 * width_;
    call_.beta = vectors_.f32() + 4 * width_;
    call_.maps = maps_;
    call_.count = 3;
    call_.y = y_.f32();
    call_.n = n_.f32();
    call_.mean = rows_of_norm_.f32();
    call_.inverse = rows_of_norm_.f32() + rows_;
    gradients_.grad_y = y_.f32();
    gradients_.grad_x = grad_x_.f32();
    gradients_.grad_gamma = grad_vectors_.f32() + 3 * width_;
    gradients_.grad_beta = grad_vectors_.f32() + 4 * width_;
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop =
        (gradient_ ? 3 : 1) * 6 * count * static_cast<double>(width_);
    work_.bytes = (gradient_ ? 10 : 5) * 4 * count;
  }
  void Run(Executor& executor) override {
    const int64_t floats = LayerHeadsGradientWorkspaceFloats(call_, executor);
    if (workspace_.size() < floats) workspace_ = AlignedBuffer<float>(floats);
    LayerHeadsForward(call_, workspace_.data(), executor);
    if (!gradient_) return;
    LayerHeadsBackward(call_, gradients_, workspace_.data(), executor);
  }

 private:
  int64_t rows_, width_;
  bool gradient_;
  Values x_, y_, n_, rows_of_norm_, weights_, vectors_;
  Values grad_x_, grad_weights_, grad_vectors_;
  LayerHeadsMap maps_[3];
  LayerHeadsCall call_;
  LayerHeadsGradients gradients_;
  AlignedBuffer<float> workspace_;
};

}  // namespace

void RegisterLayerHeads(Registry& registry) {
  registry.push_back({"layer_heads", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            new LayerHeads(params, threads));
                      }});
}

}  // namespace tarn::bench
