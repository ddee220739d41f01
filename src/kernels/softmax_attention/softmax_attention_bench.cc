// Benchmark case of softmax attention over a key-value cache, one token:
// seq_len=4096 heads=8 d_key=64 d_value=(d_key); one task per head.
#include "kernels/bench_case.h"
#include "kernels/softmax_attention/softmax_attention.h"

namespace tarn::bench {
namespace {

class SoftmaxAttentionStepCase final : public Case {
 public:
  SoftmaxAttentionStepCase(Params& params, int threads)
      : seq_len_(params.Int("seq_len", 4096)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64)),
        d_value_(params.Int("d_value", d_key_)),
        queries_(heads_ * d_key_, DType::kF32),
        keys_(seq_len_ * heads_ * d_key_, DType::kF32, 2),
        values_(seq_len_ * heads_ * d_value_, DType::kF32, 3),
        scores_(threads * seq_len_, DType::kF32),
        out_(heads_ * d_value_, DType::kF32) {
    const double cached =
        static_cast<double>(seq_len_ * heads_ * (d_key_ + d_value_));
    work_.useful_flop = work_.executed_flop = 2 * cached;
    work_.bytes = 4 * cached;
  }
  void Run(Executor& executor) override {
    executor.ParallelFor(heads_, [&](int64_t head, int worker) {
      KeyValueCache cache;
      cache.keys = keys_.f32() + head * d_key_;
      cache.values = values_.f32() + head * d_value_;
      cache.key_stride = heads_ * d_key_;
      cache.value_stride = heads_ * d_value_;
      cache.seq_len = seq_len_;
      cache.d_key = d_key_;
      cache.d_value = d_value_;
      SoftmaxAttentionStep(queries_.f32() + head * d_key_, cache, 0.125f,
                           scores_.f32() + worker * seq_len_,
                           out_.f32() + head * d_value_);
    });
  }

 private:
  int64_t seq_len_, heads_, d_key_, d_value_;
  Values queries_, keys_, values_, scores_, out_;
};

}  // namespace

void RegisterSoftmaxAttention(Registry& registry) {
  registry.push_back(
      {"softmax_attention_step", NewCase<SoftmaxAttentionStepCase>});
}

}  // namespace tarn::bench
