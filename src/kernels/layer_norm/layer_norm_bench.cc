// Benchmark case of layer normalisation: rows=4096 width=512.
#include "kernels/bench_case.h"
#include "kernels/layer_norm/layer_norm.h"

namespace tarn::bench {
namespace {

class LayerNorm final : public Case {
 public:
  LayerNorm(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 512)),
        x_(rows_ * width_, DType::kF32),
        y_(rows_ * width_, DType::kF32),
        gamma_(width_, DType::kF32, 2),
        beta_(width_, DType::kF32, 3) {
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = 7 * count;
    work_.bytes = 8 * count;
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        LayerNormRow(x_.f32() + row * width_, width_, gamma_.f32(), beta_.f32(),
                     1e-5f, y_.f32() + row * width_);
      }
    });
  }

 private:
  int64_t rows_, width_;
  Values x_, y_, gamma_, beta_;
};

}  // namespace

void RegisterLayerNorm(Registry& registry) {
  registry.push_back({"layer_norm", NewCase<LayerNorm>});
}

}  // namespace tarn::bench
