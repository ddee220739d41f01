// Benchmark cases of bias, dropout, residual and normalisation in one pass and
// of their gradient: rows=8192 width=256 dropout=10 (percent) kind=layer (or
// rms).
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/residual_norm/residual_norm.h"

namespace tarn::bench {
namespace {

class ResidualNormForwardCase : public Case {
 public:
  ResidualNormForwardCase(Params& params, int)
      : rows_(params.Int("rows", 8192)), width_(params.Int("width", 256)) {
    options_.dropout = {static_cast<double>(params.Int("dropout", 10, 0)) / 100,
                        7};
    const std::string kind = params.Text("kind", "layer");
    if (kind != "layer" && kind != "rms") {
      throw ArgumentError("bench: kind", "layer or rms", kind);
    }
    const bool layer = kind == "layer";
    options_.kind = layer ? NormKind::kLayer : NormKind::kRms;
    t_.residual = Take(rows_ * width_);
    t_.x = Take(rows_ * width_);
    t_.bias = Take(width_);
    t_.gamma = Take(width_);
    if (layer) t_.beta = Take(width_);
    t_.s = Take(rows_ * width_);
    t_.y = Take(rows_ * width_);
    t_.mean = Take(rows_);
    t_.inverse = Take(rows_);
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = 10 * count;
    work_.bytes = 16 * count;  // residual and x in, s and y out
  }
  void Run(Executor& executor) override {
    ResidualNormForward(options_, rows_, width_, t_, executor);
  }

 protected:
  float* Take(int64_t count) {
    held_.emplace_back(count, DType::kF32, held_.size() + 1);
    return held_.back().f32();
  }

  int64_t rows_, width_;
  std::vector<Values> held_;
  ResidualNormOptions options_;
  ResidualNormTensors t_;
};

class ResidualNormGradientCase final : public ResidualNormForwardCase {
 public:
  ResidualNormGradientCase(Params& params, int threads)
      : ResidualNormForwardCase(params, threads) {
    SerialExecutor serial;
    ResidualNormForwardCase::Run(serial);
    g_.grad_y = Take(rows_ * width_);
    g_.s = t_.s;
    g_.mean = t_.mean;
    g_.inverse = t_.inverse;
    g_.gamma = t_.gamma;
    g_.grad_residual = Take(rows_ * width_);
    g_.grad_x = Take(rows_ * width_);
    g_.grad_bias = Take(width_);
    g_.grad_gamma = Take(width_);
    if (t_.beta != nullptr) g_.grad_beta = Take(width_);
    workspace_ = Take(ResidualNormWorkspaceFloats(rows_, width_));
  }
  void Run(Executor& executor) override {
    ResidualNormBackward(options_, rows_, width_, g_, workspace_, executor);
  }

 private:
  ResidualNormGradients g_;
  float* workspace_;
};

}  // namespace

void RegisterResidualNorm(Registry& registry) {
  registry.push_back(
      {"residual_norm_forward", NewCase<ResidualNormForwardCase>});
  registry.push_back(
      {"residual_norm_gradient", NewCase<ResidualNormGradientCase>});
}

}  // namespace tarn::bench
