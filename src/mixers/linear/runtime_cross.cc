// Linear cross attention: of a source, each head keeps S [C, V], z [C] and, for
// the signed denominator, the sum of ||phi(k)||: the same size for any length.
#include <memory>

#include "mixers/linear/runtime.h"
#include "mixers/linear/runtime_form.h"
#include "mixers/linear/runtime_memory.h"

namespace tarn::mixers {
namespace {

class LinearCross final : public RuntimeCross {
 public:
  explicit LinearCross(const ModelConfig& layer)
      : form_(layer), d_key_(layer.d_key), d_value_(layer.d_value) {}

  int64_t HeadFloats(int64_t) const override {
    return form_.d_feature() * (d_value_ + 1) + (form_.norm_sums() ? 1 : 0);
  }
  int64_t FillFloats() const override {
    return BuildLinearMemoryFloats(form_, d_key_, d_value_);
  }
  int64_t ReadFloats(int64_t) const override {
    return RowStride(form_.d_feature());
  }
  int64_t RowsRead(int64_t) const override { return form_.d_feature(); }

  void Fill(HeadRows keys, HeadRows values, float* memory,
            float* scratch) const override {
    float* z = memory + form_.d_feature() * d_value_;
    BuildLinearMemory(form_, keys, values, d_key_, d_value_, memory, z,
                      z + form_.d_feature(), scratch);
  }

  void Read(const float* memory, int64_t, HeadRows queries, HeadRows out,
            float* scratch) const override {
    const float* z = memory + form_.d_feature() * d_value_;
    const float norm_sum = form_.norm_sums() ? z[form_.d_feature()] : 0.0f;
    ReadLinearMemory(form_, {memory, z, norm_sum}, queries, out, d_value_,
                     scratch);
  }

 private:
  const LinearForm form_;
  const int64_t d_key_, d_value_;
};

}  // namespace

std::unique_ptr<RuntimeCross> MakeLinearCross(const ModelConfig& layer) {
  return std::make_unique<LinearCross>(layer);
}

}  // namespace tarn::mixers
