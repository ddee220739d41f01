// Benchmark cases of short_convolution: forward (or step, seq_len=1) and
// gradient. Parameters: batch=1 seq_len=4096 channels=1536 width=4 dtype=f32.
#include "kernels/bench_case.h"
#include "kernels/short_convolution/short_convolution.h"

namespace tarn::bench {
namespace {

class Convolution : public Case {
 public:
  Convolution(Params& params, int)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", 4096)),
        channels_(params.Int("channels", 1536)),
        dtype_(params.Type("dtype")) {
    in_.width = params.Int("width", 4, 2);
    weights_ = Values(channels_ * in_.width, DType::kF32, 1);
    bias_ = Values(channels_, DType::kF32, 2);
    state_ = Values(batch_ * (in_.width - 1) * channels_, DType::kF32, 3);
    in_.inputs = Take(inputs_, 4);
    in_.weights = weights_.f32();
    in_.bias = bias_.f32();
    in_.initial_state = state_.f32();
    out_ = Take(outputs_, 5);
    Count(2, 1);
  }
  void Run(Executor& executor) override {
    ShortConvolutionForward(in_, out_, state_.f32(), executor);
  }

 protected:
  TensorView Take(Values& values, uint64_t seed) {
    values = Values(batch_ * seq_len_ * channels_, dtype_, seed);
    return TensorView::Dense(values.data(), batch_, seq_len_, 1, channels_,
                             dtype_);
  }
  // `moved` tensors of the inputs' size, `sums` filters a token.
  void Count(double moved, double sums) {
    const double numbers = static_cast<double>(batch_ * seq_len_ * channels_);
    work_.useful_flop = work_.executed_flop =
        numbers * sums * 2 * static_cast<double>(in_.width);
    work_.bytes = numbers * moved * static_cast<double>(DTypeBytes(dtype_));
  }

  int64_t batch_, seq_len_, channels_;
  DType dtype_;
  ShortConvolutionInputs in_;
  Values weights_, bias_, state_, inputs_, outputs_;
  TensorView out_;
};

class ConvolutionGradient final : public Convolution {
 public:
  ConvolutionGradient(Params& params, int threads)
      : Convolution(params, threads) {
    grad_weights_ = Values(channels_ * in_.width, DType::kF32, 6);
    grad_bias_ = Values(channels_, DType::kF32, 7);
    grad_.grad_out = out_;
    grad_.grad_inputs = Take(grads_, 8);
    grad_.grad_weights = grad_weights_.f32();
    grad_.grad_bias = grad_bias_.f32();
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(ShortConvolutionGradientBytes(in_)));
    Count(3, 3);
  }
  void Run(Executor& executor) override {
    ShortConvolutionBackward(in_, grad_, executor, workspace_.data());
  }

 private:
  Values grads_, grad_weights_, grad_bias_;
  ShortConvolutionGradients grad_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterShortConvolution(Registry& registry) {
  registry.push_back({"short_convolution_forward", NewCase<Convolution>});
  registry.push_back(
      {"short_convolution_gradient", NewCase<ConvolutionGradient>});
}

}  // namespace tarn::bench
