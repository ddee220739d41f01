// Benchmark case of the factors of dropout: rows=8192 width=1024. Ten rounds of
// Philox for every eight elements, counted as one FLOP per element.
#include "kernels/bench_case.h"
#include "kernels/dropout/dropout.h"

namespace tarn::bench {
namespace {

class Scales final : public Case {
 public:
  Scales(Params& params, int)
      : rows_(params.Int("rows", 8192)),
        width_(params.Int("width", 1024)),
        scales_(rows_ * width_, DType::kF32) {
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = count;
    work_.bytes = 4 * count;
  }
  void Run(Executor& executor) override {
    DropoutScales({0.1, 7}, rows_, width_, scales_.f32(), executor);
  }

 private:
  int64_t rows_, width_;
  Values scales_;
};

}  // namespace

void RegisterDropout(Registry& registry) {
  registry.push_back({"dropout_scales", NewCase<Scales>});
}

}  // namespace tarn::bench
