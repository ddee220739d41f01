// Benchmark cases of the elementwise functions: rows=4096 width=1024. FLOP
// count one operation per element; bytes bound these functions.
#include "kernels/activation/activation.h"
#include "kernels/bench_case.h"

namespace tarn::bench {
namespace {

using RowFunction = void (*)(const float* x, int64_t width, float* y);

void Elu1Row(const float* x, int64_t width, float* y) {
  FeatureMapRow(FeatureMap::kElu1, x, width, y);
}

template <RowFunction kFunction>
class Rows final : public Case {
 public:
  Rows(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 1024)),
        x_(rows_ * width_, DType::kF32),
        y_(rows_ * width_, DType::kF32) {
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = count;
    work_.bytes = count * (kFunction == AddToRow ? 12 : 8);
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        kFunction(x_.f32() + row * width_, width_, y_.f32() + row * width_);
      }
    });
  }

 private:
  int64_t rows_, width_;
  Values x_, y_;
};

template <RowFunction kFunction>
std::unique_ptr<Case> NewRows(Params& params, int threads) {
  return std::make_unique<Rows<kFunction>>(params, threads);
}

}  // namespace

void RegisterActivation(Registry& registry) {
  registry.push_back({"relu", NewRows<ReluRow>});
  registry.push_back({"gelu", NewRows<GeluRow>});
  registry.push_back({"elu1", NewRows<Elu1Row>});
  registry.push_back({"add", NewRows<AddToRow>});
}

}  // namespace tarn::bench
