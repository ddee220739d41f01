// Benchmark cases of cross_entropy, cross_entropy_forward and
// cross_entropy_gradient: rows=512 classes=32000 dtype=f32.
#include "kernels/bench_case.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace tarn::bench {
namespace {

class CrossEntropyCase : public Case {
 public:
  CrossEntropyCase(Params& params, int) {
    in_.rows = params.Int("rows", 512);
    in_.classes = in_.stride = params.Int("classes", 32000);
    in_.dtype = params.Type("dtype");
    logits_ = Values(in_.rows * in_.classes, in_.dtype, 1);
    for (int64_t row = 0; row < in_.rows; ++row) {
      targets_.push_back(row * 7 % in_.classes);
    }
    in_.logits = logits_.data();
    in_.targets = targets_.data();
    losses_ = Values(in_.rows, DType::kF32, 2);
    squares_ = Values(in_.rows, DType::kF32, 3);
    moments_ = Values(2 * in_.rows, DType::kF32, 4);
    CountPass(in_.rows * in_.classes, 3, 1, in_.dtype);
  }
  void Run(Executor& executor) override {
    CrossEntropyForward({}, in_, losses_.f32(), squares_.f32(), moments_.f32(),
                        executor);
  }

 protected:
  CrossEntropyInputs in_;
  std::vector<int64_t> targets_;
  Values logits_, losses_, squares_, moments_;
};

class CrossEntropyGradientCase final : public CrossEntropyCase {
 public:
  CrossEntropyGradientCase(Params& params, int threads)
      : CrossEntropyCase(params, threads),
        grad_logits_(in_.rows * in_.classes, in_.dtype, 5) {
    work_.bytes *= 2;
  }
  void Run(Executor& executor) override {
    CrossEntropyBackward({}, in_, moments_.f32(), losses_.f32(),
                         grad_logits_.data(), executor);
  }

 private:
  Values grad_logits_;
};

}  // namespace

void RegisterCrossEntropy(Registry& registry) {
  registry.push_back({"cross_entropy_forward", NewCase<CrossEntropyCase>});
  registry.push_back(
      {"cross_entropy_gradient", NewCase<CrossEntropyGradientCase>});
}

}  // namespace tarn::bench
