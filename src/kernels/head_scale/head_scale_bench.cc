// Benchmark cases of head_scale, head_scale_forward and head_scale_gradient:
// rows=4096 heads=16 width=64 base=1 dtype=f32, with one factor for each head.
// FLOP count two operations per element; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/head_scale/head_scale.h"

namespace tarn::bench {
namespace {

class HeadScaleCase : public Case {
 public:
  HeadScaleCase(Params& params, int) {
    call_.rows = params.Int("rows", 4096);
    call_.heads = params.Int("heads", 16);
    call_.width = params.Int("width", 64);
    call_.dtype = params.Type("dtype");
    call_.stride = call_.heads * call_.width;
    call_.shared = true;
    values_ = Values(Count(), call_.dtype, 1);
    base_ = Values(Count(), call_.dtype, 2);
    y_ = Values(Count(), call_.dtype, 3);
    factors_ = Values(call_.heads, DType::kF32, 4);
    call_.values = values_.data();
    call_.factors = factors_.f32();
    if (params.Int("base", 1, 0) != 0) call_.base = base_.data();
    CountPass(Count(), 2, call_.base == nullptr ? 2 : 3, call_.dtype);
  }
  void Run(Executor& executor) override {
    HeadScaleForward(call_, y_.data(), executor);
  }

 protected:
  int64_t Count() const { return call_.rows * call_.heads * call_.width; }

  HeadScaleCall call_;
  Values values_, base_, y_, factors_;
};

class HeadScaleGradientCase final : public HeadScaleCase {
 public:
  HeadScaleGradientCase(Params& params, int threads)
      : HeadScaleCase(params, threads),
        grad_values_(Count(), call_.dtype, 5),
        grad_factors_(call_.heads, DType::kF32, 6),
        workspace_(static_cast<int64_t>(HeadScaleGradientBytes(call_))) {
    CountPass(Count(), 3, 3, call_.dtype);
  }
  void Run(Executor& executor) override {
    HeadScaleBackward(call_, y_.data(), grad_values_.data(),
                      grad_factors_.f32(), executor, workspace_.data());
  }

 private:
  Values grad_values_, grad_factors_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterHeadScale(Registry& registry) {
  registry.push_back({"head_scale_forward", NewCase<HeadScaleCase>});
  registry.push_back({"head_scale_gradient", NewCase<HeadScaleGradientCase>});
}

}  // namespace tarn::bench
