// Benchmark case of one optimiser step: count=10000000 parameters in one
// tensor, RAdam.
#include "kernels/adam/adam.h"
#include "kernels/bench_case.h"

namespace tarn::bench {
namespace {

class AdamStepCase final : public Case {
 public:
  AdamStepCase(Params& params, int)
      : count_(params.Int("count", 10000000)),
        parameter_(count_, DType::kF32),
        gradient_(count_, DType::kF32, 2),
        m_(count_, DType::kF32, 3),
        v_(count_, DType::kF32) {
    options_.kind = AdamKind::kRAdam;
    options_.update = 1000;
    tensors_ = {
        {parameter_.f32(), gradient_.f32(), m_.f32(), v_.f32(), count_}};
    for (int64_t i = 0; i < count_; ++i) {  // squares are not negative
      v_.f32()[i] *= v_.f32()[i];
    }
    const double count = static_cast<double>(count_);
    work_.useful_flop = work_.executed_flop = 12 * count;
    work_.bytes = 28 * count;  // four read, three written
  }
  void Run(Executor& executor) override {
    AdamStep(options_, tensors_, executor);
  }

 private:
  int64_t count_;
  Values parameter_, gradient_, m_, v_;
  AdamStepOptions options_;
  std::vector<AdamTensor> tensors_;
};

}  // namespace

void RegisterAdam(Registry& registry) {
  registry.push_back({"adam_step", NewCase<AdamStepCase>});
}

}  // namespace tarn::bench
