// Benchmark cases of aft-simple over sequences, of its gradient and of one more
// token: batch=4 seq_len=1024 channels=512 causal=1, and batch=64 channels=512
// for the step. FLOP count fifteen operations per element and forty in the
// gradient; exponentials bound it on one thread, bytes on many.
#include <algorithm>
#include <limits>

#include "kernels/aft_simple/aft_simple.h"
#include "kernels/bench_case.h"

namespace tarn::bench {
namespace {

class AftSimplePassCase : public Case {
 protected:
  AftSimplePassCase(Params& params, int64_t batch, int64_t seq_len)
      : batch_(params.Int("batch", batch)),
        seq_len_(seq_len == 1 ? 1 : params.Int("seq_len", seq_len)),
        channels_(params.Int("channels", 512)),
        q_(elements(), DType::kF32),
        k_(elements(), DType::kF32, 2),
        v_(elements(), DType::kF32, 3),
        out_(elements(), DType::kF32, 4),
        m_(batch_ * channels_, DType::kF32, 5),
        a_(batch_ * channels_, DType::kF32, 6),
        b_(batch_ * channels_, DType::kF32, 7) {
    in_.queries = View(q_);
    in_.keys = View(k_);
    in_.values = View(v_);
    in_.causal = seq_len == 1 || params.Int("causal", 1, 0) != 0;
    for (int64_t i = 0; i < batch_ * channels_; ++i) b_.f32()[i] = 1.0f;
    const double count = static_cast<double>(elements());
    work_.useful_flop = work_.executed_flop = 15 * count;
    work_.bytes = 16 * count + 24.0 * static_cast<double>(batch_ * channels_);
  }

  int64_t elements() const { return batch_ * seq_len_ * channels_; }
  TensorView View(Values& values) const {
    return TensorView::Dense(values.f32(), batch_, seq_len_, 1, channels_);
  }
  AftSimpleState State() { return {m_.f32(), a_.f32(), b_.f32()}; }

  int64_t batch_, seq_len_, channels_;
  Values q_, k_, v_, out_, m_, a_, b_;
  AftSimpleInputs in_;
};

class AftSimpleForwardCase : public AftSimplePassCase {
 public:
  AftSimpleForwardCase(Params& params, int)
      : AftSimplePassCase(params, 4, 1024) {}
  // Starts from an empty memory each time.
  void Run(Executor& executor) override {
    const int64_t count = batch_ * channels_;
    std::fill_n(m_.f32(), count, -std::numeric_limits<float>::infinity());
    std::fill_n(a_.f32(), count, 0.0f);
    std::fill_n(b_.f32(), count, 0.0f);
    AftSimpleForward(in_, State(), View(out_), executor);
  }
};

class AftSimpleStepCase final : public AftSimplePassCase {
 public:
  AftSimpleStepCase(Params& params, int) : AftSimplePassCase(params, 64, 1) {}
  void Run(Executor& executor) override {
    AftSimpleForward(in_, State(), View(out_), executor);
  }
};

class AftSimpleGradientCase final : public AftSimplePassCase {
 public:
  AftSimpleGradientCase(Params& params, int threads)
      : AftSimplePassCase(params, 4, 1024),
        grad_q_(elements(), DType::kF32, 8),
        grad_k_(elements(), DType::kF32, 9),
        grad_v_(elements(), DType::kF32, 10),
        workspace_(AftSimpleBackwardFloats(in_, threads), DType::kF32) {
    const double count = static_cast<double>(elements());
    work_.useful_flop = work_.executed_flop = 40 * count;
    work_.bytes = 28 * count;
  }
  void Run(Executor& executor) override {
    AftSimpleGradients g;
    g.out = View(out_);
    g.queries = View(grad_q_);
    g.keys = View(grad_k_);
    g.values = View(grad_v_);
    AftSimpleBackward(in_, {}, g, executor, workspace_.f32());
  }

 private:
  Values grad_q_, grad_k_, grad_v_, workspace_;
};

}  // namespace

void RegisterAftSimple(Registry& registry) {
  registry.push_back({"aft_simple_forward", NewCase<AftSimpleForwardCase>});
  registry.push_back({"aft_simple_step", NewCase<AftSimpleStepCase>});
  registry.push_back({"aft_simple_gradient", NewCase<AftSimpleGradientCase>});
}

}  // namespace tarn::bench
