// Benchmark cases of blocked softmax attention, forward and gradient:
// batch=1 seq_len=1024 heads=8 d_key=64 d_value=(d_key) causal=1
// local_context=0 dropout=0 (per cent) bias=0 (1: a [T, T] bias).
#include <algorithm>

#include "kernels/bench_case.h"
#include "kernels/softmax_attention/blocked_attention.h"

namespace tarn::bench {
namespace {

class Attention : public Case {
 public:
  Attention(Params& params, int threads, bool backward)
      : batch_(params.Int("batch", 1)),
        seq_len_(params.Int("seq_len", 1024)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64)),
        d_value_(params.Int("d_value", d_key_)),
        queries_(Rows(d_key_), DType::kF32),
        keys_(Rows(d_key_), DType::kF32, 2),
        values_(Rows(d_value_), DType::kF32, 3),
        out_(Rows(d_value_), DType::kF32, 4),
        statistics_(2 * batch_ * heads_ * seq_len_, DType::kF32) {
    options_.scale = 0.125f;
    options_.causal = params.Int("causal", 1, 0) != 0;
    options_.local_context = params.Int("local_context", 0, 0);
    options_.dropout.probability =
        static_cast<double>(params.Int("dropout", 0, 0)) / 100;
    in_.queries = View(queries_, d_key_);
    in_.keys = View(keys_, d_key_);
    in_.values = View(values_, d_value_);
    if (params.Int("bias", 0, 0) != 0) {
      bias_ = Values(seq_len_ * seq_len_, DType::kF32, 5);
      in_.bias = {bias_.f32(), {0, 0, seq_len_, 1}};
    }
    workspace_ =
        Values(static_cast<int64_t>(
                   BlockedAttentionWorkspaceBytes(in_, threads, backward) / 4),
               DType::kF32);
    // Pairs a query may read and the two products each takes; the gradient
    // takes five.
    double pairs = 0;
    for (int64_t i = 0; i < seq_len_; ++i) {
      const int64_t c = options_.local_context;
      const int64_t begin = c > 0 ? std::max<int64_t>(0, i - c / 2) : 0;
      const int64_t end = c > 0 ? i + (c + 1) / 2 : seq_len_;
      pairs += static_cast<double>(
          std::min({end, seq_len_, options_.causal ? i + 1 : seq_len_}) -
          begin);
    }
    pairs *= static_cast<double>(batch_ * heads_);
    work_.useful_flop = work_.executed_flop =
        pairs * static_cast<double>(backward ? 6 * d_key_ + 4 * d_value_
                                             : 2 * d_key_ + 2 * d_value_);
    work_.bytes =
        4.0 * static_cast<double>((backward ? 2 : 1) *
                                  (2 * Rows(d_key_) + 2 * Rows(d_value_)));
  }

 protected:
  int64_t Rows(int64_t width) const {
    return batch_ * seq_len_ * heads_ * width;
  }
  TensorView View(Values& data, int64_t width) const {
    return TensorView::Dense(data.data(), batch_, seq_len_, heads_, width);
  }
  void Forward(Executor& executor) {
    BlockedAttentionForward(options_, in_,
                            {View(out_, d_value_), statistics_.f32()}, executor,
                            workspace_.data());
  }

  int64_t batch_, seq_len_, heads_, d_key_, d_value_;
  Values queries_, keys_, values_, out_, statistics_, bias_, workspace_;
  BlockedAttentionOptions options_;
  BlockedAttentionInputs in_;
};

class ForwardCase final : public Attention {
 public:
  ForwardCase(Params& params, int threads)
      : Attention(params, threads, false) {}
  void Run(Executor& executor) override { Forward(executor); }
};

class GradientCase final : public Attention {
 public:
  GradientCase(Params& params, int threads)
      : Attention(params, threads, true),
        grad_out_(Rows(d_value_), DType::kF32, 6),
        grad_queries_(Rows(d_key_), DType::kF32),
        grad_keys_(Rows(d_key_), DType::kF32),
        grad_values_(Rows(d_value_), DType::kF32) {
    if (in_.bias.data != nullptr) {
      grad_bias_ = Values(seq_len_ * seq_len_, DType::kF32);
    }
    SerialExecutor serial;
    Forward(serial);
  }
  void Run(Executor& executor) override {
    BlockedAttentionGradients g;
    g.out = View(out_, d_value_);
    g.grad_out = View(grad_out_, d_value_);
    g.statistics = statistics_.f32();
    g.grad_queries = View(grad_queries_, d_key_);
    g.grad_keys = View(grad_keys_, d_key_);
    g.grad_values = View(grad_values_, d_value_);
    if (in_.bias.data != nullptr) {
      g.grad_bias = grad_bias_.f32();
      g.bias_size[2] = g.bias_size[3] = seq_len_;
    }
    BlockedAttentionBackward(options_, in_, g, executor, workspace_.data());
  }

 private:
  Values grad_out_, grad_queries_, grad_keys_, grad_values_, grad_bias_;
};

}  // namespace

void RegisterBlockedAttention(Registry& registry) {
  registry.push_back({"softmax_attention_forward", NewCase<ForwardCase>});
  registry.push_back({"softmax_attention_gradient", NewCase<GradientCase>});
}

}  // namespace tarn::bench
