// Benchmark cases of row_mixes, row_mixes_forward and row_mixes_gradient:
// rows=4096 width=1024 count=6 dtype=f32 (of the weights, too).
#include "kernels/bench_case.h"
#include "kernels/row_mixes/row_mixes.h"

namespace tarn::bench {
namespace {

class RowMixesCase : public Case {
 public:
  RowMixesCase(Params& params, int) {
    in_.rows = params.Int("rows", 4096);
    in_.width = params.Int("width", 1024);
    in_.count =
        static_cast<int>(std::min<int64_t>(params.Int("count", 6), kMostMixes));
    in_.dtype = in_.weight_dtype = params.Type("dtype");
    in_.x = Take(in_.rows * in_.width);
    in_.delta = Take(in_.rows * in_.width);
    for (int j = 0; j < in_.count; ++j) {
      in_.weights[j] = Take(in_.width);
      outs_[j] = Take(in_.rows * in_.width);
    }
    workspace_ =
        AlignedBuffer<uint8_t>(static_cast<int64_t>(RowMixesForwardBytes(in_)));
    CountPass(in_.rows * in_.width, 2.0 * in_.count, 2.0 + in_.count,
              in_.dtype);
  }
  void Run(Executor& executor) override {
    RowMixesForward(in_, outs_, executor, workspace_.data());
  }

 protected:
  void* Take(int64_t count) {
    values_.emplace_back(count, in_.dtype, values_.size() + 1);
    return values_.back().data();
  }

  RowMixInputs in_;
  std::vector<Values> values_;
  void* outs_[kMostMixes] = {};
  AlignedBuffer<uint8_t> workspace_;
};

class RowMixesGradientCase final : public RowMixesCase {
 public:
  RowMixesGradientCase(Params& params, int threads)
      : RowMixesCase(params, threads),
        grad_weights_(in_.count * in_.width, DType::kF32, 99) {
    for (int j = 0; j < in_.count; ++j) grad_.grad_outs[j] = outs_[j];
    grad_.grad_x = Take(in_.rows * in_.width);
    grad_.grad_delta = Take(in_.rows * in_.width);
    grad_.grad_weights = grad_weights_.f32();
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(RowMixesGradientBytes(in_)));
    CountPass(in_.rows * in_.width, 5.0 * in_.count, 3.0 + in_.count,
              in_.dtype);
  }
  void Run(Executor& executor) override {
    RowMixesBackward(in_, grad_, executor, workspace_.data());
  }

 private:
  Values grad_weights_;
  RowMixGradients grad_;
};

}  // namespace

void RegisterRowMixes(Registry& registry) {
  registry.push_back({"row_mixes_forward", NewCase<RowMixesCase>});
  registry.push_back({"row_mixes_gradient", NewCase<RowMixesGradientCase>});
}

}  // namespace tarn::bench
