// Benchmark cases of token_shift, token_shift_forward and token_shift_gradient:
// batch=2 seq_len=2048 width=1024 weight=1 dtype=f32. FLOP count three
// operations per element; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/token_shift/token_shift.h"

namespace tarn::bench {
namespace {

class TokenShiftCase : public Case {
 public:
  TokenShiftCase(Params& params, int) {
    call_.sequences = params.Int("batch", 2);
    call_.seq_len = params.Int("seq_len", 2048);
    call_.width = call_.stride = params.Int("width", 1024);
    call_.dtype = params.Type("dtype");
    x_ = Values(Count(), call_.dtype, 1);
    y_ = Values(Count(), call_.dtype, 2);
    weight_ = Values(call_.width, DType::kF32, 3);
    call_.x = x_.data();
    if (params.Int("weight", 1, 0) != 0) call_.weight = weight_.f32();
    CountPass(Count(), 3, 2, call_.dtype);
  }
  void Run(Executor& executor) override {
    TokenShiftForward(call_, y_.data(), executor);
  }

 protected:
  int64_t Count() const { return call_.rows() * call_.width; }
  bool Weighted() const { return call_.weight != nullptr; }

  TokenShiftCall call_;
  Values x_, y_, weight_;
};

class TokenShiftGradientCase final : public TokenShiftCase {
 public:
  TokenShiftGradientCase(Params& params, int threads)
      : TokenShiftCase(params, threads),
        grad_x_(Count(), call_.dtype, 4),
        grad_weight_(call_.width, DType::kF32, 5),
        workspace_(
            static_cast<int64_t>(TokenShiftGradientBytes(call_, Weighted()))) {
    CountPass(Count(), 3, 3, call_.dtype);
  }
  void Run(Executor& executor) override {
    TokenShiftGradients g;
    g.grad_y = y_.data();
    g.grad_x = grad_x_.data();
    if (Weighted()) g.grad_weight = grad_weight_.f32();
    TokenShiftBackward(call_, g, executor, workspace_.data());
  }

 private:
  Values grad_x_, grad_weight_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterTokenShift(Registry& registry) {
  registry.push_back({"token_shift_forward", NewCase<TokenShiftCase>});
  registry.push_back({"token_shift_gradient", NewCase<TokenShiftGradientCase>});
}

}  // namespace tarn::bench
