// Benchmark cases of gate_correction, gate_correction_forward and
// gate_correction_gradient: seq_len=4096 heads=16 width=64 dtype=f32.
#include "kernels/bench_case.h"
#include "kernels/gate_correction/gate_correction.h"

namespace tarn::bench {
namespace {

class GateCorrectionCase : public Case {
 public:
  GateCorrectionCase(Params& params, int) {
    in_.tokens = params.Int("seq_len", 4096);
    in_.heads = params.Int("heads", 16);
    in_.width = params.Int("width", 64);
    in_.dtype = params.Type("dtype");
    in_.o = Take(0);
    in_.r = Take(1);
    in_.k = Take(2);
    in_.v = Take(3);
    in_.g = Take(4);
    out_ = Take(5);
    weight_ = Values(in_.heads * in_.width, DType::kF32, 6);
    in_.weight = weight_.f32();
    Count(6);
  }
  void Run(Executor& executor) override {
    GateCorrectionForward(in_, out_, executor);
  }

 protected:
  void* Take(int place) {
    values_[place] = Values(Numbers(), in_.dtype, place + 1);
    return values_[place].data();
  }
  int64_t Numbers() const { return in_.tokens * in_.heads * in_.width; }
  void Count(double moved) { CountPass(Numbers(), 6, moved, in_.dtype); }

  GateCorrectionInputs in_;
  Values values_[11], weight_;
  void* out_ = nullptr;
};

class GateCorrectionGradientCase final : public GateCorrectionCase {
 public:
  GateCorrectionGradientCase(Params& params, int threads)
      : GateCorrectionCase(params, threads),
        grad_weight_(in_.heads * in_.width, DType::kF32, 7),
        workspace_(static_cast<int64_t>(GateCorrectionGradientBytes(in_))) {
    grad_ = {out_,    Take(6),  Take(7),           Take(8),
             Take(9), Take(10), grad_weight_.f32()};
    Count(11);
  }
  void Run(Executor& executor) override {
    GateCorrectionBackward(in_, grad_, executor, workspace_.data());
  }

 private:
  Values grad_weight_;
  AlignedBuffer<uint8_t> workspace_;
  GateCorrectionGradients grad_;
};

}  // namespace

void RegisterGateCorrection(Registry& registry) {
  registry.push_back({"gate_correction_forward", NewCase<GateCorrectionCase>});
  registry.push_back(
      {"gate_correction_gradient", NewCase<GateCorrectionGradientCase>});
}

}  // namespace tarn::bench
