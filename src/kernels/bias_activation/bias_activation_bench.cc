// Benchmark cases of bias, activation and dropout in one pass and of their
// gradient: rows=8192 width=1024 activation=relu (relu, gelu, none) dropout=10
// (percent). FLOP count two operations per element; bytes bound it.
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/bias_activation/bias_activation.h"

namespace tarn::bench {
namespace {

class BiasActivationPassCase : public Case {
 protected:
  explicit BiasActivationPassCase(Params& params)
      : rows_(params.Int("rows", 8192)),
        width_(params.Int("width", 1024)),
        x_(rows_ * width_, DType::kF32),
        y_(rows_ * width_, DType::kF32, 2),
        bias_(width_, DType::kF32, 3) {
    const std::string name = params.Text("activation", "relu");
    if (name != "relu" && name != "gelu" && name != "none") {
      throw ArgumentError("bench: activation", "relu, gelu or none", name);
    }
    options_.activation = name == "relu"   ? Nonlinearity::kRelu
                          : name == "gelu" ? Nonlinearity::kGelu
                                           : Nonlinearity::kIdentity;
    options_.dropout = {static_cast<double>(params.Int("dropout", 10, 0)) / 100,
                        7};
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = 2 * count;
    work_.bytes = 8 * count;
  }

  int64_t rows_, width_;
  Values x_, y_, bias_;
  BiasActivationOptions options_;
};

class BiasActivationForwardCase final : public BiasActivationPassCase {
 public:
  BiasActivationForwardCase(Params& params, int)
      : BiasActivationPassCase(params) {}
  void Run(Executor& executor) override {
    BiasActivationForward(options_, rows_, width_, x_.f32(), bias_.f32(),
                          y_.f32(), executor);
  }
};

class BiasActivationGradientCase final : public BiasActivationPassCase {
 public:
  BiasActivationGradientCase(Params& params, int)
      : BiasActivationPassCase(params),
        grad_y_(rows_ * width_, DType::kF32, 4),
        grad_x_(rows_ * width_, DType::kF32, 5),
        grad_bias_(width_, DType::kF32, 6),
        workspace_(BiasActivationWorkspaceFloats(rows_, width_), DType::kF32) {
    work_.bytes *= 1.5;  // grad_y and y (or x) in, grad_x out
  }
  void Run(Executor& executor) override {
    BiasActivationGradients g;
    g.grad_y = grad_y_.f32();
    g.y = y_.f32();
    g.x = x_.f32();
    g.bias = bias_.f32();
    g.grad_x = grad_x_.f32();
    g.grad_bias = grad_bias_.f32();
    BiasActivationBackward(options_, rows_, width_, g, workspace_.f32(),
                           executor);
  }

 private:
  Values grad_y_, grad_x_, grad_bias_, workspace_;
};

}  // namespace

void RegisterBiasActivation(Registry& registry) {
  registry.push_back(
      {"bias_activation_forward", NewCase<BiasActivationForwardCase>});
  registry.push_back(
      {"bias_activation_gradient", NewCase<BiasActivationGradientCase>});
}

}  // namespace tarn::bench
