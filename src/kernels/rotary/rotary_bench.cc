// Benchmark cases of rotary positions: rotary, one row at a time in place, with
// rows=4096 heads=8 d_key=64; rotary_rows, by tables, with seq_len=4096 heads=8
// d_key=64 interleaved=0 dtype=f32.
#include "kernels/bench_case.h"
#include "kernels/rotary/rotary.h"
#include "kernels/rotary/rotary_rows.h"

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

class RotaryRows final : public Case {
 public:
  RotaryRows(Params& params, int)
      : seq_len_(params.Int("seq_len", 4096)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64, 2) / 2 * 2),
        dtype_(params.Type("dtype")),
        x_(Numbers(), dtype_),
        y_(Numbers(), dtype_, 2),
        cos_(seq_len_ * d_key_ / 2, DType::kF32, 3),
        sin_(seq_len_ * d_key_ / 2, DType::kF32, 4) {
    call_.x = View(x_);
    call_.cos = cos_.f32();
    call_.sin = sin_.f32();
    call_.pairs = d_key_ / 2;
    call_.interleaved = params.Int("interleaved", 0, 0) != 0;
    const double count = static_cast<double>(Numbers());
    work_.useful_flop = work_.executed_flop = 3 * count;
    work_.bytes = 2 * count * static_cast<double>(DTypeBytes(dtype_));
  }
  void Run(Executor& executor) override {
    RotateRows(call_, View(y_), executor);
  }

 private:
  int64_t Numbers() const { return seq_len_ * heads_ * d_key_; }
  TensorView View(Values& values) const {
    return TensorView::Dense(values.data(), 1, seq_len_, heads_, d_key_,
                             dtype_);
  }

  int64_t seq_len_, heads_, d_key_;
  DType dtype_;
  Values x_, y_, cos_, sin_;
  RotaryRowsCall call_;
};

}  // namespace

void RegisterRotary(Registry& registry) {
  registry.push_back({"rotary", NewCase<Rotary>});
  registry.push_back({"rotary_rows", NewCase<RotaryRows>});
}

}  // namespace tarn::bench
