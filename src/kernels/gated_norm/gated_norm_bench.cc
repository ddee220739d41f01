// Benchmark cases of gated_norm: forward (or one token, seq_len=1) and
// gradient. Parameters: batch=1 seq_len=4096 groups=16 width=128 first=0 (gate
// after the norm, or before it) centred=0 dtype=f32.
#include "kernels/bench_case.h"
#include "kernels/gated_norm/gated_norm.h"

namespace tarn::bench {
namespace {

class GatedNormCase : public Case {
 public:
  GatedNormCase(Params& params, int)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", 4096)),
        dtype_(params.Type("dtype")) {
    options_.groups = params.Int("groups", 16);
    options_.width = params.Int("width", 128);
    options_.gate_first = params.Int("first", 0, 0) != 0;
    options_.centred = params.Int("centred", 0, 0) != 0;
    weight_ = Values(options_.width, DType::kF32, 1);
    in_.x = Take(x_, 2);
    in_.gate = Take(gate_, 3);
    in_.weight = weight_.f32();
    out_ = Take(outputs_, 4);
    Count(3, 12);
  }
  void Run(Executor& executor) override {
    GatedNormForward(options_, in_, out_, executor);
  }

 protected:
  TensorView Take(Values& values, uint64_t seed) {
    values = Values(Numbers(), dtype_, seed);
    return TensorView::Dense(values.data(), batch_, seq_len_, options_.groups,
                             options_.width, dtype_);
  }
  int64_t Numbers() const {
    return batch_ * seq_len_ * options_.groups * options_.width;
  }
  // `moved` tensors of the inputs' size, `operations` an entry.
  void Count(double moved, double operations) {
    CountPass(Numbers(), operations, moved, dtype_);
  }

  int64_t batch_, seq_len_;
  DType dtype_;
  GatedNormOptions options_;
  GatedNormInputs in_;
  Values weight_, x_, gate_, outputs_;
  TensorView out_;
};

class GatedNormGradientCase final : public GatedNormCase {
 public:
  GatedNormGradientCase(Params& params, int threads)
      : GatedNormCase(params, threads) {
    grad_weight_ = Values(options_.width, DType::kF32, 5);
    grad_.grad_out = out_;
    grad_.grad_x = Take(grad_x_, 6);
    grad_.grad_gate = Take(grad_gate_, 7);
    grad_.grad_weight = grad_weight_.f32();
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(GatedNormGradientBytes(options_, in_.x, threads)));
    Count(5, 25);
  }
  void Run(Executor& executor) override {
    GatedNormBackward(options_, in_, grad_, executor, workspace_.data());
  }

 private:
  Values grad_x_, grad_gate_, grad_weight_;
  GatedNormGradients grad_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterGatedNorm(Registry& registry) {
  registry.push_back({"gated_norm_forward", NewCase<GatedNormCase>});
  registry.push_back({"gated_norm_gradient", NewCase<GatedNormGradientCase>});
}

}  // namespace tarn::bench
