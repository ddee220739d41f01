// Benchmark case of affine maps of few rows: rows=1 inputs=512 outputs=512. The
// weights are read once, which bounds it.
#include "kernels/bench_case.h"
#include "kernels/row_product/row_product.h"

namespace tarn::bench {
namespace {

class RowProductCase final : public Case {
 public:
  RowProductCase(Params& params, int)
      : rows_(params.Int("rows", 1)),
        inputs_(params.Int("inputs", 512)),
        outputs_(params.Int("outputs", 512)),
        x_(rows_ * inputs_, DType::kF32),
        weight_(outputs_ * inputs_, DType::kF32, 2),
        bias_(outputs_, DType::kF32, 3),
        y_(rows_ * outputs_, DType::kF32, 4) {
    const double count = static_cast<double>(inputs_ * outputs_);
    work_.useful_flop = work_.executed_flop =
        2 * count * static_cast<double>(rows_);
    work_.bytes = 4 * count;
  }
  void Run(Executor& executor) override {
    const RowProductMap map = {weight_.f32(), bias_.f32(), outputs_, y_.f32()};
    RowProduct(x_.f32(), rows_, inputs_, &map, 1, executor);
  }

 private:
  int64_t rows_, inputs_, outputs_;
  Values x_, weight_, bias_, y_;
};

}  // namespace

void RegisterRowProduct(Registry& registry) {
  registry.push_back({"row_product", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            new RowProductCase(params, threads));
                      }});
}

}  // namespace tarn::bench
