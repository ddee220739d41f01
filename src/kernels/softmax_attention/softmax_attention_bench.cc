// Benchmark case of softmax attention over a key-value cache, one token:
// seq_len=4096 heads=8 d_key=64 d_value=(d_key) cache=0 (of CacheType: 1 bf16,
// 2 int8) rows=1 (2 to 6: as many queries of a head at once); one task per
// head.
#include <algorithm>

#include "kernels/bench_case.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "kernels/softmax_attention/softmax_rows.h"

namespace tarn::bench {
namespace {

class SoftmaxAttentionStepCase final : public Case {
 public:
  SoftmaxAttentionStepCase(Params& params, int threads)
      : seq_len_(params.Int("seq_len", 4096)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64)),
        d_value_(params.Int("d_value", d_key_)),
        type_(static_cast<CacheType>(params.Int("cache", 0))),
        rows_(std::clamp<int64_t>(params.Int("rows", 1), 1, kMaxSoftmaxRows)),
        scratch_(std::max(seq_len_, SoftmaxRowsFloats(seq_len_, d_value_))),
        key_words_(CacheRowWords(type_, d_key_)),
        value_words_(CacheRowWords(type_, d_value_)),
        queries_(rows_ * heads_ * d_key_, DType::kF32),
        keys_(seq_len_ * heads_ * d_key_, DType::kF32, 2),
        values_(seq_len_ * heads_ * d_value_, DType::kF32, 3),
        scores_(threads * scratch_, DType::kF32),
        out_(rows_ * heads_ * d_value_, DType::kF32) {
    const double cached =
        static_cast<double>(seq_len_ * heads_ * (d_key_ + d_value_));
    work_.useful_flop = work_.executed_flop =
        2 * cached * static_cast<double>(rows_);
    work_.bytes = static_cast<double>(4 * seq_len_ * heads_ *
                                      (key_words_ + value_words_));
    Round(keys_.f32(), d_key_, key_words_);
    Round(values_.f32(), d_value_, value_words_);
  }
  void Run(Executor& executor) override {
    executor.ParallelFor(heads_, [&](int64_t head, int worker) {
      KeyValueCache cache;
      cache.keys = keys_.f32() + head * key_words_;
      cache.values = values_.f32() + head * value_words_;
      cache.key_stride = heads_ * key_words_;
      cache.value_stride = heads_ * value_words_;
      cache.seq_len = seq_len_;
      cache.d_key = d_key_;
      cache.d_value = d_value_;
      cache.type = type_;
      float* scratch = scores_.f32() + worker * scratch_;
      if (rows_ == 1) {
        SoftmaxAttentionStep(queries_.f32() + head * d_key_, cache, 0.125f,
                             scratch, out_.f32() + head * d_value_);
        return;
      }
      SoftmaxQuery queries[kMaxSoftmaxRows];
      for (int64_t r = 0; r < rows_; ++r) {
        const int64_t at = r * heads_ + head;
        queries[r] = {queries_.f32() + at * d_key_, out_.f32() + at * d_value_,
                      seq_len_};
      }
      SoftmaxAttentionRows({queries, static_cast<size_t>(rows_)}, cache,
                           {0.125f}, scratch);
    });
  }

 private:
  // In place: a row that was rounded is not longer.
  void Round(float* rows, int64_t width, int64_t words) const {
    std::vector<float> row(static_cast<size_t>(width));
    for (int64_t i = 0; i < seq_len_ * heads_; ++i) {
      std::copy_n(rows + i * width, width, row.data());
      StoreCacheRow(type_, row.data(), width, rows + i * words);
    }
  }

  int64_t seq_len_, heads_, d_key_, d_value_;
  CacheType type_;
  int64_t rows_, scratch_;
  int64_t key_words_, value_words_;
  Values queries_, keys_, values_, scores_, out_;
};

}  // namespace

void RegisterSoftmaxAttention(Registry& registry) {
  registry.push_back(
      {"softmax_attention_step", NewCase<SoftmaxAttentionStepCase>});
}

}  // namespace tarn::bench
