// Benchmark cases of mlstm around its recurrence: mlstm_gates_forward (batch=4
// seq_len=1024 heads=8 dtype=f32), mlstm_gates_gradient, mlstm_read_forward and
// mlstm_read_gradient (rows=4096 width=256). FLOP count one operation per
// element; bytes bound it.
#include "kernels/bench_case.h"
#include "kernels/mlstm/mlstm.h"

namespace tarn::bench {
namespace {

class MlstmGatesCase : public Case {
 public:
  MlstmGatesCase(Params& params, int)
      : batch_(params.Int("batch", 4)),
        seq_len_(params.Int("seq_len", 1024)),
        heads_(params.Int("heads", 8)),
        dtype_(params.Type("dtype")),
        numbers_(2 * Count(), dtype_, 1),
        results_(3 * Count(), DType::kF32, 2) {
    in_.input_gates = Part(numbers_, 0, dtype_);
    in_.forget_gates = Part(numbers_, 1, dtype_);
    in_.softcap = 15;
    CountPass(Count(), 1, 5, dtype_);
  }
  void Run(Executor& executor) override {
    MlstmGatesForward(in_, {Result(0), Result(1), Result(2)}, executor);
  }

 protected:
  int64_t Count() const { return batch_ * seq_len_ * heads_; }
  TensorView Part(Values& values, int64_t part, DType dtype) const {
    char* data = static_cast<char*>(values.data()) +
                 part * Count() * static_cast<int64_t>(DTypeBytes(dtype));
    return TensorView::Dense(data, batch_, seq_len_, 1, heads_, dtype);
  }
  TensorView Result(int64_t part) { return Part(results_, part, DType::kF32); }

  const int64_t batch_, seq_len_, heads_;
  const DType dtype_;
  Values numbers_, results_;
  MlstmGatesInputs in_;
};

class MlstmGatesGradientCase final : public MlstmGatesCase {
 public:
  MlstmGatesGradientCase(Params& params, int threads)
      : MlstmGatesCase(params, threads),
        grads_(2 * Count(), dtype_, 3),
        workspace_(static_cast<int64_t>(MlstmGradientBytes(in_))) {
    CountPass(Count(), 1, 7, dtype_);
  }
  void Run(Executor& executor) override {
    MlstmGatesGradients g;
    g.grad_gates = Result(0);
    g.factors = g.grad_factors = Result(1);
    g.maxima = Result(2);
    g.grad_input = Part(grads_, 0, dtype_);
    g.grad_forget = Part(grads_, 1, dtype_);
    MlstmGatesBackward(in_, g, executor, workspace_.data());
  }

 private:
  Values grads_;
  AlignedBuffer<uint8_t> workspace_;
};

class MlstmReadCase : public Case {
 public:
  MlstmReadCase(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 256)),
        read_(rows_ * (width_ + 1), DType::kF32, 1),
        maxima_(rows_, DType::kF32, 2),
        h_(rows_ * width_, DType::kF32, 3) {
    CountPass(rows_ * width_, 1, 2, DType::kF32);
  }
  void Run(Executor& executor) override {
    MlstmReadForward(Call(), h_.f32(), executor);
  }

 protected:
  MlstmReadCall Call() { return {rows_, width_, read_.f32(), maxima_.f32()}; }

  const int64_t rows_, width_;
  Values read_, maxima_, h_;
};

class MlstmReadGradientCase final : public MlstmReadCase {
 public:
  MlstmReadGradientCase(Params& params, int threads)
      : MlstmReadCase(params, threads),
        grads_(rows_ * (width_ + 1), DType::kF32, 4),
        d_maxima_(rows_, DType::kF32, 5) {
    CountPass(rows_ * width_, 1, 3, DType::kF32);
  }
  void Run(Executor& executor) override {
    MlstmReadBackward(Call(), h_.f32(), grads_.f32(), d_maxima_.f32(),
                      executor);
  }

 private:
  Values grads_, d_maxima_;
};

}  // namespace

void RegisterMlstm(Registry& registry) {
  registry.push_back({"mlstm_gates_forward", NewCase<MlstmGatesCase>});
  registry.push_back({"mlstm_gates_gradient", NewCase<MlstmGatesGradientCase>});
  registry.push_back({"mlstm_read_forward", NewCase<MlstmReadCase>});
  registry.push_back({"mlstm_read_gradient", NewCase<MlstmReadGradientCase>});
}

}  // namespace tarn::bench
