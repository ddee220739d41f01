// Benchmark cases of the mixture of logistics: rows=8192 mixtures=10. Each
// exponential, logarithm and division counts as one FLOP: arithmetic bounds it.
#include "core/rng.h"
#include "kernels/bench_case.h"
#include "kernels/logistic_mixture/logistic_mixture.h"

namespace tarn::bench {
namespace {

class Mixture : public Case {
 protected:
  explicit Mixture(Params& params)
      : rows_(params.Int("rows", 8192)),
        mixtures_(params.Int("mixtures", 10)),
        params_(rows_ * 3 * mixtures_, DType::kF32),
        losses_(rows_, DType::kF32, 2) {
    Rng rng(3);
    for (int64_t i = 0; i < rows_; ++i) {
      targets_.push_back(static_cast<uint8_t>(rng.Below(256)));
    }
    work_.useful_flop = work_.executed_flop =
        60.0 * static_cast<double>(rows_ * mixtures_);
    work_.bytes = static_cast<double>(rows_ * (12 * mixtures_ + 5));
    args_.rows = rows_;
    args_.n_mixtures = mixtures_;
    args_.params = params_.f32();
    args_.targets = targets_.data();
    args_.losses = losses_.f32();
  }

  int64_t rows_, mixtures_;
  Values params_, losses_;
  std::vector<uint8_t> targets_;
  LogisticMixtureArgs args_;
};

class Loss final : public Mixture {
 public:
  Loss(Params& params, int) : Mixture(params) {}
  void Run(Executor& executor) override {
    LogisticMixtureLoss(args_, executor);
  }
};

class LogisticMixtureGradientCase final : public Mixture {
 public:
  LogisticMixtureGradientCase(Params& params, int)
      : Mixture(params), gradients_(rows_ * 3 * mixtures_, DType::kF32, 4) {
    args_.gradients = gradients_.f32();
    work_.bytes *= 2;
  }
  void Run(Executor& executor) override {
    LogisticMixtureLoss(args_, executor);
  }

 private:
  Values gradients_;
};

class Draw final : public Mixture {
 public:
  Draw(Params& params, int) : Mixture(params) {}
  void Run(Executor&) override {
    Rng rng(7);
    for (int64_t i = 0; i < rows_; ++i) {
      targets_[static_cast<size_t>(i)] = LogisticMixtureSample(
          args_.params + i * 3 * mixtures_, mixtures_, rng);
    }
  }
};

}  // namespace

void RegisterLogisticMixture(Registry& registry) {
  registry.push_back({"logistic_mixture_loss", NewCase<Loss>});
  registry.push_back(
      {"logistic_mixture_gradient", NewCase<LogisticMixtureGradientCase>});
  registry.push_back({"logistic_mixture_sample", NewCase<Draw>});
}

}  // namespace tarn::bench
