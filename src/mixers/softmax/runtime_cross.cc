// Softmax cross attention: of a source, each head keeps the keys
// [source_len, K], then the values [source_len, V].
#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/softmax_attention/softmax_attention.h"
#include "mixers/softmax/runtime.h"
#include "runtime/state/float_runs.h"

namespace tarn::mixers {
namespace {

class SoftmaxCross final : public RuntimeCross {
 public:
  explicit SoftmaxCross(const ModelConfig& layer)
      : d_key_(layer.d_key),
        d_value_(layer.d_value),
        scale_(static_cast<float>(
            1.0 / std::sqrt(static_cast<double>(layer.d_key)))) {}

  int64_t HeadFloats(int64_t source_len) const override {
    return source_len * (d_key_ + d_value_);
  }
  int64_t FillFloats() const override { return 0; }
  int64_t ReadFloats(int64_t source_len) const override {
    return RowStride(source_len);  // the scores of a row
  }
  int64_t RowsRead(int64_t source_len) const override { return source_len; }

  void Fill(HeadRows keys, HeadRows values, float* memory,
            float*) const override {
    float* to = memory + keys.count * d_key_;
    for (int64_t j = 0; j < keys.count; ++j) {
      CopyFloats(keys[j], d_key_, memory + j * d_key_);
      CopyFloats(values[j], d_value_, to + j * d_value_);
    }
  }

  void Read(const float* memory, int64_t source_len, HeadRows queries,
            HeadRows out, float* scratch) const override {
    const KeyValueCache cache = {memory,     memory + source_len * d_key_,
                                 d_key_,     d_value_,
                                 source_len, d_key_,
                                 d_value_};
    for (int64_t i = 0; i < queries.count; ++i) {
      if (source_len == 0) {  // an empty row is zero
        std::fill_n(out[i], d_value_, 0.0f);
      } else {
        SoftmaxAttentionStep(queries[i], cache, scale_, scratch, out[i]);
      }
    }
  }

 private:
  const int64_t d_key_, d_value_;
  const float scale_;
};

}  // namespace

std::unique_ptr<RuntimeCross> MakeSoftmaxCross(const ModelConfig& layer) {
  return std::make_unique<SoftmaxCross>(layer);
}

}  // namespace tarn::mixers
