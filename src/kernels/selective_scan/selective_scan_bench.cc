// Benchmark cases of selective_scan: forward (or step, seq_len=1) and gradient.
// Parameters: batch=1 seq_len=1024 channels=1536 states=16 dtype=f32.
#include <algorithm>

#include "kernels/bench_case.h"
#include "kernels/selective_scan/selective_scan.h"

namespace tarn::bench {
namespace {

class Scan : public Case {
 public:
  Scan(Params& params, int)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", 1024)),
        channels_(params.Int("channels", 1536)),
        states_(params.Int("states", 16)),
        dtype_(params.Type("dtype")),
        state_(batch_ * channels_ * states_, DType::kF32, 1),
        rates_(channels_ * states_, DType::kF32, 2),
        skip_(channels_, DType::kF32, 3) {
    for (int64_t i = 0; i < channels_ * states_; ++i) {
      rates_.f32()[i] = -(1.5f + rates_.f32()[i]);  // -2.5 to -0.5
    }
    in_.inputs = Take(inputs_, channels_, dtype_, 4);
    in_.steps = Take(steps_, channels_, DType::kF32, 5);
    for (int64_t i = 0; i < batch_ * seq_len_ * channels_; ++i) {
      steps_.f32()[i] = 0.1f * (1.01f + steps_.f32()[i]);
    }
    in_.rates = rates_.f32();
    in_.keys = Take(keys_, states_, dtype_, 6);
    in_.queries = Take(queries_, states_, dtype_, 7);
    in_.skip = skip_.f32();
    in_.initial_state = state_.f32();
    outputs_.out = Take(out_, channels_, dtype_, 8);
    outputs_.final_state = state_.f32();
    work_.useful_flop = work_.executed_flop = 6 * Numbers();
    Move(2, 1);
  }
  void Run(Executor& executor) override {
    SelectiveScanForward(in_, outputs_, executor);
  }

 protected:
  double Numbers() const {
    return static_cast<double>(batch_ * seq_len_ * channels_ * states_);
  }
  TensorView Take(Values& values, int64_t width, DType dtype, uint64_t seed) {
    values = Values(batch_ * seq_len_ * width, dtype, seed);
    return TensorView::Dense(values.data(), batch_, seq_len_, 1, width, dtype);
  }
  // Rows of channels that are read or written, in the dtype and as steps.
  void Move(double rows, double steps) {
    work_.bytes = static_cast<double>(batch_ * seq_len_ * channels_) *
                  (rows * static_cast<double>(DTypeBytes(dtype_)) +
                   steps * sizeof(float));
  }

  int64_t batch_, seq_len_, channels_, states_;
  DType dtype_;
  Values state_, rates_, skip_, inputs_, steps_, keys_, queries_, out_;
  SelectiveScanInputs in_;
  SelectiveScanOutputs outputs_;
};

class ScanGradient final : public Scan {
 public:
  ScanGradient(Params& params, int threads)
      : Scan(params, threads),
        saved_(std::max<int64_t>(SelectiveScanCheckpoints(in_), 1) * channels_ *
                   states_,
               DType::kF32, 9),
        scratch_(SelectiveScanScratch(in_, threads), DType::kF32, 10),
        grad_rates_(channels_ * states_, DType::kF32, 11),
        grad_skip_(channels_, DType::kF32, 12) {
    outputs_.checkpoints = saved_.f32();
    SerialExecutor executor;
    SelectiveScanForward(in_, outputs_, executor);
    grad_.checkpoints = saved_.f32();
    grad_.grad_out = outputs_.out;
    grad_.grad_inputs = Take(grad_inputs_, channels_, dtype_, 13);
    grad_.grad_steps = Take(grad_steps_, channels_, DType::kF32, 14);
    grad_.grad_keys = Take(grad_keys_, states_, dtype_, 15);
    grad_.grad_queries = Take(grad_queries_, states_, dtype_, 16);
    grad_.grad_rates = grad_rates_.f32();
    grad_.grad_skip = grad_skip_.f32();
    grad_.scratch = scratch_.f32();
    work_.useful_flop = 18 * Numbers();
    work_.executed_flop = 22 * Numbers();
    Move(3, 2);
  }
  void Run(Executor& executor) override {
    SelectiveScanBackward(in_, grad_, executor);
  }

 private:
  Values saved_, scratch_, grad_rates_, grad_skip_, grad_inputs_, grad_steps_,
      grad_keys_, grad_queries_;
  SelectiveScanGradients grad_;
};

}  // namespace

void RegisterSelectiveScan(Registry& registry) {
  registry.push_back({"selective_scan_forward", NewCase<Scan>});
  registry.push_back({"selective_scan_gradient", NewCase<ScanGradient>});
}

}  // namespace tarn::bench
