// Benchmark case of the polynomial features: rows=4096 width=64.
#include "kernels/bench_case.h"
#include "kernels/poly2/poly2.h"

namespace tarn::bench {
namespace {

class Poly2 final : public Case {
 public:
  Poly2(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 64)),
        x_(rows_ * width_, DType::kF32),
        features_(rows_ * Poly2Width(width_), DType::kF32, 2) {
    const double written = static_cast<double>(rows_ * Poly2Width(width_));
    work_.useful_flop = work_.executed_flop = 2 * written;
    work_.bytes = 4 * (static_cast<double>(rows_ * width_) + written);
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        Poly2Row(x_.f32() + row * width_, width_,
                 features_.f32() + row * Poly2Width(width_));
      }
    });
  }

 private:
  int64_t rows_, width_;
  Values x_, features_;
};

}  // namespace

void RegisterPoly2(Registry& registry) {
  registry.push_back({"poly2", NewCase<Poly2>});
}

}  // namespace tarn::bench
