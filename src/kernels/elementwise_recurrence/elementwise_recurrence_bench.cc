// Benchmark cases of elementwise_recurrence: forward (or step, seq_len=1) and
// gradient. Parameters: batch=1 seq_len=4096 channels=1024 dtype=f32.
#include <algorithm>

#include "kernels/bench_case.h"
#include "kernels/elementwise_recurrence/elementwise_recurrence.h"

namespace tarn::bench {
namespace {

class Elementwise : public Case {
 public:
  Elementwise(Params& params, int)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", 4096)),
        channels_(params.Int("channels", 1024)),
        dtype_(params.Type("dtype")),
        state_(batch_ * channels_, DType::kF32, 1) {
    in_.inputs = Take(inputs_, dtype_, 2);
    in_.gates = Take(gates_, DType::kF32, 3);
    for (int64_t i = 0; i < batch_ * seq_len_ * channels_; ++i) {
      gates_.f32()[i] = -(1 + gates_.f32()[i]);  // -2 to 0
    }
    in_.initial_state = state_.f32();
    outputs_.out = Take(out_, dtype_, 4);
    outputs_.final_state = state_.f32();
    work_.useful_flop = work_.executed_flop = 2 * Numbers();
    Move(2, 1);
  }
  void Run(Executor& executor) override {
    ElementwiseRecurrenceForward(in_, outputs_, executor);
  }

 protected:
  double Numbers() const {
    return static_cast<double>(batch_ * seq_len_ * channels_);
  }
  TensorView Take(Values& values, DType dtype, uint64_t seed) {
    values = Values(batch_ * seq_len_ * channels_, dtype, seed);
    return TensorView::Dense(values.data(), batch_, seq_len_, 1, channels_,
                             dtype);
  }
  // Tensors that are read or written, in the dtype and as gates.
  void Move(double rows, double gates) {
    work_.bytes = Numbers() * (rows * static_cast<double>(DTypeBytes(dtype_)) +
                               gates * sizeof(float));
  }

  int64_t batch_, seq_len_, channels_;
  DType dtype_;
  Values state_, inputs_, gates_, out_;
  ElementwiseRecurrenceInputs in_;
  ElementwiseRecurrenceOutputs outputs_;
};

class ElementwiseGradient final : public Elementwise {
 public:
  ElementwiseGradient(Params& params, int threads)
      : Elementwise(params, threads),
        saved_(std::max<int64_t>(ElementwiseCheckpoints(in_), 1) * channels_,
               DType::kF32, 5) {
    outputs_.checkpoints = saved_.f32();
    SerialExecutor executor;
    ElementwiseRecurrenceForward(in_, outputs_, executor);
    grad_.checkpoints = saved_.f32();
    grad_.grad_out = outputs_.out;
    grad_.grad_inputs = Take(grad_inputs_, dtype_, 6);
    grad_.grad_gates = Take(grad_gates_, DType::kF32, 7);
    work_.useful_flop = work_.executed_flop = 5 * Numbers();
    Move(3, 2);
  }
  void Run(Executor& executor) override {
    ElementwiseRecurrenceBackward(in_, grad_, executor);
  }

 private:
  Values saved_, grad_inputs_, grad_gates_;
  ElementwiseRecurrenceGradients grad_;
};

}  // namespace

void RegisterElementwiseRecurrence(Registry& registry) {
  registry.push_back({"elementwise_recurrence_forward", NewCase<Elementwise>});
  registry.push_back(
      {"elementwise_recurrence_gradient", NewCase<ElementwiseGradient>});
}

}  // namespace tarn::bench
