// Benchmark cases of rg_lru, rg_lru_forward and rg_lru_gradient: rows=4096
// width=1024 dtype=f32. FLOP count one operation per element; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/rg_lru/rg_lru.h"

namespace tarn::bench {
namespace {

class RgLruCase : public Case {
 public:
  RgLruCase(Params& params, int) {
    call_.rows = params.Int("rows", 4096);
    const int64_t width = params.Int("width", 1024);
    call_.channels.count = call_.x_stride = call_.input_stride =
        call_.recurrence_stride = width;
    call_.dtype = params.Type("dtype");
    x_ = Values(Count(), call_.dtype, 1);
    input_gates_ = Values(Count(), call_.dtype, 2);
    recurrence_gates_ = Values(Count(), call_.dtype, 3);
    rates_ = Values(width, DType::kF32, 4);
    RgLruRates(rates_.f32(), width, rates_.f32());
    inputs_ = Values(Count(), DType::kF32, 5);
    gates_ = Values(Count(), DType::kF32, 6);
    call_.x = x_.data();
    call_.input_gates = input_gates_.data();
    call_.recurrence_gates = recurrence_gates_.data();
    call_.channels.rates = rates_.f32();
    CountPass(Count(), 1, 5, call_.dtype);
  }
  void Run(Executor& executor) override {
    RgLruGatesForward(call_, inputs_.f32(), gates_.f32(), executor);
  }

 protected:
  int64_t Count() const { return call_.rows * call_.channels.count; }

  RgLruCall call_;
  Values x_, input_gates_, recurrence_gates_, rates_, inputs_, gates_;
};

class RgLruGradientCase final : public RgLruCase {
 public:
  RgLruGradientCase(Params& params, int threads)
      : RgLruCase(params, threads),
        grads_(3 * Count(), call_.dtype, 7),
        sums_(3 * call_.channels.count, DType::kF32, 8),
        workspace_(static_cast<int64_t>(RgLruGradientBytes(call_))) {
    CountPass(Count(), 1, 8, call_.dtype);
  }
  void Run(Executor& executor) override {
    const int64_t part =
                      Count() * static_cast<int64_t>(DTypeBytes(call_.dtype)),
                  width = call_.channels.count;
    char* grads = static_cast<char*>(grads_.data());
    RgLruGatesBackward(
        call_,
        {inputs_.f32(), gates_.f32(), grads, grads + part, grads + 2 * part,
         sums_.f32(), sums_.f32() + width, sums_.f32() + 2 * width},
        executor, workspace_.data());
  }

 private:
  Values grads_, sums_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterRgLru(Registry& registry) {
  registry.push_back({"rg_lru_forward", NewCase<RgLruCase>});
  registry.push_back({"rg_lru_gradient", NewCase<RgLruGradientCase>});
}

}  // namespace tarn::bench
