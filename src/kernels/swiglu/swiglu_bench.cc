// Benchmark cases of SwiGLU's gated activation with dropout and of its
// gradient: rows=8192 width=1024 dropout=10 (percent). FLOP count two
// operations per element; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/swiglu/swiglu.h"

namespace tarn::bench {
namespace {

class SwigluPassCase : public Case {
 protected:
  explicit SwigluPassCase(Params& params)
      : rows_(params.Int("rows", 8192)),
        width_(params.Int("width", 1024)),
        gate_(rows_ * width_, DType::kF32),
        up_(rows_ * width_, DType::kF32, 2),
        y_(rows_ * width_, DType::kF32, 3) {
    dropout_ = {static_cast<double>(params.Int("dropout", 10, 0)) / 100, 7};
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = 2 * count;
    work_.bytes = 12 * count;
  }

  int64_t rows_, width_;
  Values gate_, up_, y_;
  DropoutOptions dropout_;
};

class SwigluForwardCase final : public SwigluPassCase {
 public:
  SwigluForwardCase(Params& params, int) : SwigluPassCase(params) {}
  void Run(Executor& executor) override {
    SwigluForward(dropout_, rows_, width_, gate_.f32(), up_.f32(), y_.f32(),
                  executor);
  }
};

class SwigluGradientCase final : public SwigluPassCase {
 public:
  SwigluGradientCase(Params& params, int)
      : SwigluPassCase(params),
        grad_y_(rows_ * width_, DType::kF32, 4),
        grad_gate_(rows_ * width_, DType::kF32, 5),
        grad_up_(rows_ * width_, DType::kF32, 6) {
    work_.bytes *= 2;  // grad_y, gate and up in, two gradients and y out
  }
  void Run(Executor& executor) override {
    SwigluBackward(dropout_, rows_, width_,
                   {grad_y_.f32(), gate_.f32(), up_.f32(), grad_gate_.f32(),
                    grad_up_.f32(), y_.f32()},
                   executor);
  }

 private:
  Values grad_y_, grad_gate_, grad_up_;
};

}  // namespace

void RegisterSwiglu(Registry& registry) {
  registry.push_back({"swiglu_forward", NewCase<SwigluForwardCase>});
  registry.push_back({"swiglu_gradient", NewCase<SwigluGradientCase>});
}

}  // namespace tarn::bench
