// Benchmark cases of dplr_attention: forward, gradient and step (or prefill).
// Parameters: batch=1 seq_len=16384 (step: 1) heads=8 d_key=64 d_value=(d_key)
// dtype=f32. Gates are vectors.
#include <cmath>
#include <deque>

#include "kernels/bench_case.h"
#include "kernels/dplr/dplr_attention.h"

namespace tarn::bench {
namespace {

// The tensors of a call and the buffers that they view.
class DplrCase : public Case {
 protected:
  DplrCase(Params& params, int64_t tokens)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", tokens)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64)),
        d_value_(params.Int("d_value", d_key_)),
        dtype_(params.Type("dtype")) {
    in_.queries = Take(d_key_, dtype_);
    in_.keys = Take(d_key_, dtype_);
    in_.values = Take(d_value_, dtype_);
    in_.gates = Take(d_key_, DType::kF32);
    in_.reads = Take(d_key_, dtype_);
    in_.writes = Take(d_key_, dtype_);
    // Pairs of numbers in [-1, 1) have products of up to K / 3: gates of about
    // -log K keep the state from growing.
    float* gates = static_cast<float*>(in_.gates.data);
    const float least = std::log(static_cast<float>(d_key_));
    for (int64_t i = 0; i < batch_ * seq_len_ * heads_ * d_key_; ++i) {
      gates[i] = -least - std::abs(gates[i]);
    }
  }
  TensorView Take(int64_t width, DType dtype) {
    held_.emplace_back(batch_ * seq_len_ * heads_ * width, dtype,
                       held_.size() + 1);
    return TensorView::Dense(held_.back().data(), batch_, seq_len_, heads_,
                             width, dtype);
  }
  // FLOP of a token and head, and tensors of each width that are moved.
  void Count(double flop, double keys, double values) {
    const double rows = static_cast<double>(batch_ * seq_len_ * heads_);
    work_.useful_flop = work_.executed_flop = rows * flop;
    work_.bytes = rows * ((keys * static_cast<double>(d_key_) +
                           values * static_cast<double>(d_value_)) *
                              static_cast<double>(DTypeBytes(dtype_)) +
                          4 * static_cast<double>(d_key_));
  }
  double K() const { return static_cast<double>(d_key_); }
  double V() const { return static_cast<double>(d_value_); }

  int64_t batch_, seq_len_, heads_, d_key_, d_value_;
  DType dtype_;
  std::deque<Values> held_;
  RecurrentInputs in_;
  AlignedBuffer<uint8_t> workspace_;
};

class DplrForwardCase final : public DplrCase {
 public:
  DplrForwardCase(Params& params, int threads) : DplrCase(params, 16384) {
    out_.out = Take(d_value_, dtype_);
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(DplrAttentionWorkspaceBytes(in_, threads)));
    Count(8 * K() * V() + 16 * (4 * K() + 4 * V()) + 256.0 / 3, 4, 2);
  }
  void Run(Executor& executor) override {
    DplrAttentionForward({}, in_, out_, executor, workspace_.data());
  }

 private:
  RecurrentOutputs out_;
};

class DplrGradientCase final : public DplrCase {
 public:
  DplrGradientCase(Params& params, int threads) : DplrCase(params, 16384) {
    grad_.grad_out = Take(d_value_, dtype_);
    grad_.grad_queries = Take(d_key_, dtype_);
    grad_.grad_keys = Take(d_key_, dtype_);
    grad_.grad_values = Take(d_value_, dtype_);
    grad_.grad_gates = Take(d_key_, DType::kF32);
    grad_.grad_reads = Take(d_key_, dtype_);
    grad_.grad_writes = Take(d_key_, dtype_);
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(DplrAttentionGradientBytes(in_, threads, false)));
    Count(22 * K() * V() + 16 * (12 * K() + 10 * V()) + 256.0 / 3, 8, 3);
  }
  void Run(Executor& executor) override {
    DplrAttentionBackward({}, in_, grad_, executor, workspace_.data());
  }

 private:
  RecurrentGradients grad_;
};

class DplrStepCase final : public DplrCase {
 public:
  DplrStepCase(Params& params, int) : DplrCase(params, 1) {
    const int64_t floats = batch_ * heads_ * d_key_ * d_value_;
    held_.emplace_back(floats, DType::kF32, 99);
    state_ = {held_.back().f32(), held_.back().f32()};
    out_ = Take(d_value_, dtype_);
    Count(9 * K() * V(), 4, 2);
    work_.bytes += static_cast<double>(floats) * 8;
  }
  void Run(Executor& executor) override {
    DplrAttentionStep({}, in_, state_, out_, executor);
  }

 private:
  RecurrentState state_;
  TensorView out_;
};

}  // namespace

void RegisterDplrAttention(Registry& registry) {
  registry.push_back({"dplr_attention_forward", NewCase<DplrForwardCase>});
  registry.push_back({"dplr_attention_gradient", NewCase<DplrGradientCase>});
  registry.push_back({"dplr_attention_step", NewCase<DplrStepCase>});
}

}  // namespace tarn::bench
