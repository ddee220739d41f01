// Benchmark case of rotary positions: rows=4096 heads=8 d_key=64, in place.
#include "kernels/bench_case.h"
#include "kernels/rotary/rotary.h"

namespace tarn::bench {
namespace {

class Rotary final : public Case {
 public:
  Rotary(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64, 2) / 2 * 2),
        x_(rows_ * heads_ * d_key_, DType::kF32),
        cos_(d_key_ / 2, DType::kF32, 2),
        sin_(d_key_ / 2, DType::kF32, 3) {
    // A rotation by 36.9 degrees: rows keep their length, run after run.
    for (int64_t i = 0; i < d_key_ / 2; ++i) {
      cos_.f32()[i] = 0.8f;
      sin_.f32()[i] = 0.6f;
    }
    const double count = static_cast<double>(rows_ * heads_ * d_key_);
    work_.useful_flop = work_.executed_flop = 3 * count;
    work_.bytes = 8 * count;
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        RotateRow(cos_.f32(), sin_.f32(), heads_, d_key_,
                  x_.f32() + row * heads_ * d_key_);
      }
    });
  }

 private:
  int64_t rows_, heads_, d_key_;
  Values x_, cos_, sin_;
};

}  // namespace

void RegisterRotary(Registry& registry) {
  registry.push_back({"rotary", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            std::make_unique<Rotary>(params, threads));
                      }});
}

}  // namespace tarn::bench
