// Benchmark case of row_argmax: count=50280, float32. FLOP count one operation
// per number; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/row_argmax/row_argmax.h"

namespace tarn::bench {
namespace {

class RowArgmaxCase final : public Case {
 public:
  RowArgmaxCase(Params& params, int)
      : count_(params.Int("count", 50280)), row_(count_, DType::kF32, 1) {
    CountPass(count_, 1, 1, DType::kF32);
  }
  void Run(Executor&) override {
    found_ = RowArgmax(static_cast<const float*>(row_.data()), count_);
  }

 private:
  const int64_t count_;
  Values row_;
  volatile int64_t found_ = 0;
};

}  // namespace

void RegisterRowArgmax(Registry& registry) {
  registry.push_back({"row_argmax", NewCase<RowArgmaxCase>});
}

}  // namespace tarn::bench
