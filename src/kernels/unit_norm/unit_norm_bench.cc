// Benchmark cases of unit_norm, unit_norm_forward and unit_norm_gradient:
// rows=4096 heads=8 width=128 dtype=f32. FLOP count one operation per element;
// bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/unit_norm/unit_norm.h"

namespace tarn::bench {
namespace {

class UnitNormCase : public Case {
 public:
  UnitNormCase(Params& params, int) {
    call_.rows = params.Int("rows", 4096);
    call_.heads = params.Int("heads", 8);
    call_.width = params.Int("width", 128);
    call_.dtype = params.Type("dtype");
    call_.stride = call_.heads * call_.width;
    x_ = Values(Count(), call_.dtype, 1);
    y_ = Values(Count(), call_.dtype, 2);
    call_.x = x_.data();
    CountPass(Count(), 1, 2, call_.dtype);
  }
  void Run(Executor& executor) override {
    UnitNormForward(call_, y_.data(), executor);
  }

 protected:
  int64_t Count() const { return call_.rows * call_.heads * call_.width; }

  UnitNormCall call_;
  Values x_, y_;
};

class UnitNormGradientCase final : public UnitNormCase {
 public:
  UnitNormGradientCase(Params& params, int threads)
      : UnitNormCase(params, threads), grad_x_(Count(), call_.dtype, 3) {
    CountPass(Count(), 1, 3, call_.dtype);
  }
  void Run(Executor& executor) override {
    UnitNormBackward(call_, y_.data(), grad_x_.data(), executor);
  }

 private:
  Values grad_x_;
};

}  // namespace

void RegisterUnitNorm(Registry& registry) {
  registry.push_back({"unit_norm_forward", NewCase<UnitNormCase>});
  registry.push_back({"unit_norm_gradient", NewCase<UnitNormGradientCase>});
}

}  // namespace tarn::bench
