// What the benchmark cases of decay_attention and delta_attention share.
// Parameters: batch=1 seq_len=16384 heads=8 (query/key) value_heads=(heads)
// d_key=64 d_value=(d_key) dtype=f32 gate=token (none, head, token, channel),
// checkpoints=1 (gradient: from the forward call).
#pragma once

#include <cmath>
#include <deque>
#include <memory>
#include <string>

#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn::bench {

struct RecurrentShape {
  int64_t batch, seq_len, heads, value_heads, d_key, d_value;
  DType dtype;
  std::string gate;
  RecurrentShape(Params& params, int64_t tokens)
      : batch(params.Int("batch", 1)),
        seq_len(params.Int("seq_len", tokens)),
        heads(params.Int("heads", 8)),
        value_heads(params.Int("value_heads", heads)),
        d_key(params.Int("d_key", 64)),
        d_value(params.Int("d_value", d_key)),
        dtype(params.Type("dtype")),
        gate(params.Text("gate", "token")) {
    if (gate != "none" && gate != "head" && gate != "token" &&
        gate != "channel") {
      throw ArgumentError("bench: gate", "none, head, token or channel", gate);
    }
  }
  double TokenHeads() const {
    return static_cast<double>(batch * seq_len * value_heads);
  }
  int64_t gate_width() const {
    return gate == "channel" ? d_key : gate == "token" ? 1 : 0;
  }
};

// The tensors of a call and the buffers that they view.
class RecurrentBuffers {
 public:
  RecurrentBuffers(const RecurrentShape& shape, bool delta) : shape_(shape) {
    in.queries = Take(shape.heads, shape.d_key, shape.dtype);
    in.keys = Take(shape.heads, shape.d_key, shape.dtype);
    in.values = Take(shape.value_heads, shape.d_value, shape.dtype);
    if (shape.gate_width() > 0) {
      in.gates = Take(shape.value_heads, shape.gate_width(), DType::kF32);
      MakeGates(
          static_cast<float*>(in.gates.data),
          shape.batch * shape.seq_len * shape.value_heads * shape.gate_width());
    } else if (shape.gate == "head") {
      float* gates = Floats(shape.value_heads);
      MakeGates(gates, shape.value_heads);
      in.head_gates = gates;
    }
    if (!delta) return;
    in.betas = Take(shape.value_heads, 1, DType::kF32);
    // Keys of K numbers in [-1, 1) have squares of about K / 3: such betas keep
    // the recurrence from growing.
    float* betas = static_cast<float*>(in.betas.data);
    const int64_t count = shape.batch * shape.seq_len * shape.value_heads;
    for (int64_t i = 0; i < count; ++i) {
      betas[i] = (betas[i] + 1.0f) / static_cast<float>(shape.d_key);
    }
  }
  TensorView Take(int64_t heads, int64_t width, DType dtype) {
    const int64_t count = shape_.batch * shape_.seq_len * heads * width;
    held_.emplace_back(count, dtype, held_.size() + 1);
    return TensorView::Dense(held_.back().data(), shape_.batch, shape_.seq_len,
                             heads, width, dtype);
  }
  float* Floats(int64_t count) {
    held_.emplace_back(count, DType::kF32, held_.size() + 1);
    return held_.back().f32();
  }

  RecurrentInputs in;

 private:
  static void MakeGates(float* gates, int64_t count) {
    for (int64_t i = 0; i < count; ++i) gates[i] = -0.1f * std::abs(gates[i]);
  }
  RecurrentShape shape_;
  std::deque<Values> held_;
};

// Bytes of a token and value head of a call that reads q, k, v and the gates
// once; `rows`: how many tensors of each width move.
inline double RecurrentBytes(const RecurrentShape& s, bool delta, double rows) {
  const double share =
      static_cast<double>(s.heads) / static_cast<double>(s.value_heads);
  const double elements = rows * (share * static_cast<double>(s.d_key) +
                                  static_cast<double>(s.d_value));
  const double scalars =
      static_cast<double>(s.gate_width()) + (delta ? 1.0 : 0.0);
  return elements * static_cast<double>(DTypeBytes(s.dtype)) + 4 * scalars;
}

// FLOP of a token and value head at chunks of 16 tokens, causal halves counted
// once: forward 4 K V + C (K + V), and for the delta rule 6 K V + C (2 K + 2 V)
// with a third of C C for the solve; gradients in the same way.
inline double RecurrentFlop(const RecurrentShape& s, bool delta,
                            bool gradient) {
  constexpr double C = 16;
  const double K = static_cast<double>(s.d_key);
  const double V = static_cast<double>(s.d_value);
  if (!delta) {
    return gradient ? 10 * K * V + C * (3 * K + 2 * V)
                    : 4 * K * V + C * (K + V);
  }
  return gradient ? 16 * K * V + C * (6 * K + 5 * V) + C * C / 3
                  : 6 * K * V + C * (2 * K + 2 * V) + C * C / 3;
}

// Op: kDelta and the operator's functions, see decay_attention_bench.cc.
template <class Op>
class RecurrentForwardCase : public Case {
 public:
  RecurrentForwardCase(Params& params, int threads)
      : shape_(params, 16384), buffers_(shape_, Op::kDelta) {
    out_.out = buffers_.Take(shape_.value_heads, shape_.d_value, shape_.dtype);
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(Op::ForwardBytes(buffers_.in, threads)));
    work_.useful_flop = work_.executed_flop =
        shape_.TokenHeads() * RecurrentFlop(shape_, Op::kDelta, false);
    work_.bytes = shape_.TokenHeads() * RecurrentBytes(shape_, Op::kDelta, 2);
  }
  void Run(Executor& executor) override {
    Op::Forward({}, buffers_.in, out_, executor, workspace_.data());
  }

 protected:
  RecurrentShape shape_;
  RecurrentBuffers buffers_;
  RecurrentOutputs out_;
  AlignedBuffer<uint8_t> workspace_;
};

template <class Op>
class RecurrentGradientCase final : public Case {
 public:
  RecurrentGradientCase(Params& params, int threads)
      : shape_(params, 16384), buffers_(shape_, Op::kDelta) {
    const bool saved = params.Int("checkpoints", 1, 0) != 0;
    const RecurrentInputs& in = buffers_.in;
    grad_.grad_out =
        buffers_.Take(shape_.value_heads, shape_.d_value, shape_.dtype);
    grad_.grad_queries =
        buffers_.Take(shape_.heads, shape_.d_key, shape_.dtype);
    grad_.grad_keys = buffers_.Take(shape_.heads, shape_.d_key, shape_.dtype);
    grad_.grad_values =
        buffers_.Take(shape_.value_heads, shape_.d_value, shape_.dtype);
    if (in.HasGates()) {
      grad_.grad_gates =
          buffers_.Take(shape_.value_heads, shape_.gate_width(), DType::kF32);
    }
    if (in.head_gates != nullptr) {
      grad_.grad_head_gates = buffers_.Floats(shape_.value_heads);
    }
    if (Op::kDelta) {
      grad_.grad_betas = buffers_.Take(shape_.value_heads, 1, DType::kF32);
    }
    if (saved) {
      float* checkpoints =
          buffers_.Floats(RecurrentCheckpoints(in) * shape_.value_heads *
                          shape_.d_key * shape_.d_value);
      grad_.checkpoints = checkpoints;
      AlignedBuffer<uint8_t> scratch(
          static_cast<int64_t>(Op::ForwardBytes(in, 1)));
      SerialExecutor serial;
      Op::Forward({}, in, {grad_.grad_values, nullptr, checkpoints}, serial,
                  scratch.data());
    }
    workspace_ = AlignedBuffer<uint8_t>(
        static_cast<int64_t>(Op::GradientBytes(in, threads, saved)));
    work_.useful_flop = work_.executed_flop =
        shape_.TokenHeads() * RecurrentFlop(shape_, Op::kDelta, true);
    work_.bytes = shape_.TokenHeads() * RecurrentBytes(shape_, Op::kDelta, 4);
  }
  void Run(Executor& executor) override {
    Op::Backward({}, buffers_.in, grad_, executor, workspace_.data());
  }

 private:
  RecurrentShape shape_;
  RecurrentBuffers buffers_;
  RecurrentGradients grad_;
  AlignedBuffer<uint8_t> workspace_;
};

// A step (seq_len=1) or prefill of batch rows on states.
template <class Op>
class RecurrentStepCase final : public Case {
 public:
  RecurrentStepCase(Params& params, int)
      : shape_(params, 1), buffers_(shape_, Op::kDelta) {
    const int64_t floats =
        shape_.batch * shape_.value_heads * shape_.d_key * shape_.d_value;
    float* state = buffers_.Floats(floats);
    state_ = {state, state};
    out_ = buffers_.Take(shape_.value_heads, shape_.d_value, shape_.dtype);
    const double K = static_cast<double>(shape_.d_key);
    const double V = static_cast<double>(shape_.d_value);
    work_.useful_flop = work_.executed_flop =
        shape_.TokenHeads() * (Op::kDelta ? 7 : 5) * K * V;
    work_.bytes = static_cast<double>(floats) * 8 +
                  shape_.TokenHeads() * RecurrentBytes(shape_, Op::kDelta, 2);
  }
  void Run(Executor& executor) override {
    Op::Step({}, buffers_.in, state_, out_, executor);
  }

 private:
  RecurrentShape shape_;
  RecurrentBuffers buffers_;
  RecurrentState state_;
  TensorView out_;
};

template <typename T>
std::unique_ptr<Case> MakeRecurrentCase(Params& params, int threads) {
  return std::make_unique<T>(params, threads);
}

}  // namespace tarn::bench
