// Benchmark cases of the activations of rows: rows=4096 width=1024. FLOP count
// one operation per element; bytes bound these functions.
#include "kernels/bench_case.h"
#include "kernels/gate_rows/gate_rows.h"

namespace tarn::bench {
namespace {

using EntryFunction = void (*)(const float* x, int64_t width, float* y);

void Softplus(const float* x, int64_t width, float* y) {
  SoftplusRow(x, nullptr, width, y);
}

template <EntryFunction kFunction>
class Entries final : public Case {
 public:
  Entries(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 1024)),
        x_(rows_ * width_, DType::kF32),
        y_(rows_ * width_, DType::kF32) {
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = count;
    work_.bytes = count * 8;
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      kFunction(x_.f32() + begin * width_, (end - begin) * width_,
                y_.f32() + begin * width_);
    });
  }

 private:
  int64_t rows_, width_;
  Values x_, y_;
};

}  // namespace

void RegisterGateRows(Registry& registry) {
  registry.push_back({"silu", NewCase<Entries<SiluRow>>});
  registry.push_back({"sigmoid", NewCase<Entries<SigmoidRow>>});
  registry.push_back({"softplus", NewCase<Entries<Softplus>>});
  registry.push_back({"square_relu", NewCase<Entries<SquareReluRow>>});
  registry.push_back({"tanh", NewCase<Entries<TanhRow>>});
}

}  // namespace tarn::bench
