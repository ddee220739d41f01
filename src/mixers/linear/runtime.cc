#include "mixers/linear/runtime.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/linear_attention/linear_attention.h"
#include "mixers/common/runtime_attention.h"
#include "mixers/linear/form.h"
#include "mixers/linear/runtime_form.h"
#include "mixers/linear/runtime_memory.h"
#include "runtime/state/float_runs.h"

namespace tarn::mixers {
namespace {

enum LinearTensor : int64_t { kSums, kKeySums, kNormSums };  // of LinearState

// The power of two that brings the largest entry near 1; 1 where there is none.
// Scaling by it leaves an exact quotient unchanged, with later underflow.
float PowerOfTwoScale(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest == 0.0f || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126));
}

class Linear final : public RuntimeAttention {
 public:
  Linear(const ModelConfig& layer, MixerTensors& tensors)
      : RuntimeAttention(layer, tensors),
        form_(layer),
        plain_(form_.Plain()),
        exact_(LinearKeys(layer).denominator == Denominator::kExact),
        turned_(rotary_ && layer.rotary_place == RotaryPlace::kAfter),
        s_floats_(PaddedFloats(form_.d_feature() * d_value_)),
        sums_floats_(s_floats_ + PaddedFloats(form_.d_feature())) {
    build_floats_ = std::max(BuildLinearMemoryFloats(form_, d_key_, d_value_),
                             RowStride(form_.d_feature()));
    if (turned_) {
      build_floats_ = std::max(
          build_floats_, BuildLinearMemoryFloats(plain_, d_key_, d_value_));
    }
  }

  // Rotated features: phi(q), phi(k) before rotation, and the denominators.
  int64_t row_floats() const override {
    return turned_ ? 2 * key_width_ + heads_ : 0;
  }

  int64_t WorkerFloats(const MixerBlock& block) const override {
    const bool causal =
        !block.segments.empty() && block.segments.front().state != nullptr;
    if (!causal) return sums_floats_ + build_floats_;
    if (form_.outside()) return 2 * RowStride(form_.d_feature());
    return turned_ ? RowStride(d_key_) : 0;
  }

  // A task is some heads of a segment: all heads where there are many segments,
  // since their states are contiguous, else one.
  void Mix(MixerBlock& block, int64_t layer) const override {
    Rotate(block);
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const bool together = !turned_ && !form_.outside();
    const int64_t heads =
        segments >= 4 * block.workers() && together ? heads_ : 1;
    const int64_t groups = heads_ / heads;
    // About six state entries a nanosecond.
    const int64_t ns = heads * (form_.d_feature() * d_value_ / 6 + 100);
    block.ForTasks(segments * groups,
                   ns * ((block.rows() + segments - 1) / segments),
                   [&](int64_t task, int worker) {
                     const Segment& segment =
                         block.segments[static_cast<size_t>(task / groups)];
                     const int64_t head = task % groups * heads;
                     if (turned_) {
                       AttendTurned(block, segment, layer, head, worker);
                     } else if (form_.outside()) {
                       AttendOutside(block, segment, layer, head, worker);
                     } else {
                       AttendHeads(block, segment, layer, head, heads);
                     }
                   });
  }

  void MixSequences(MixerBlock& block) const override {
    Rotate(block);
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    block.ForTasks(segments * heads_,
                   block.rows() / segments *
                       (form_.d_feature() * (d_key_ + d_value_) / 16 + 100),
                   [&](int64_t task, int worker) {
                     const Segment& segment =
                         block.segments[static_cast<size_t>(task / heads_)];
                     if (segment.count == 0) return;
                     ReadAll(block, segment, task % heads_, worker);
                   });
  }

  void Step(MixerBlock& block, const StepShare& share) const override {
    for (int64_t head = share.begin; head < share.end; ++head) {
      for (int64_t row = 0; row < block.rows(); ++row) {
        if (turned_) MapHeads(block, row, head, 1);
        if (rotary_) RotateHead(block, row, head);
      }
    }
    for (const Segment& segment : block.segments) {
      if (!turned_ && !form_.outside()) {
        AttendHeads(block, segment, share.layer, share.begin,
                    share.end - share.begin);
        continue;
      }
      for (int64_t head = share.begin; head < share.end; ++head) {
        if (turned_) {
          AttendTurned(block, segment, share.layer, head, share.worker);
        } else {
          AttendOutside(block, segment, share.layer, head, share.worker);
        }
      }
    }
  }

  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t head) const override {
    return block.segments.front().state->Tensor(layer, kSums) +
           head * form_.d_feature() * d_value_;
  }

 private:
  void Rotate(MixerBlock& block) const {
    if (!rotary_) return;
    block.ForRows(key_width_, [&](int64_t row) {
      if (turned_) MapHeads(block, row, 0, heads_);
      RotateRow(block, row);
    });
  }

  // Puts phi(q), phi(k) of `count` heads into `extra` and, to be rotated, in
  // place of q and k.
  void MapHeads(const MixerBlock& block, int64_t row, int64_t first,
                int64_t count) const {
    for (int64_t head = first; head < first + count; ++head) {
      float *q = Query(block, row, head), *k = Key(block, row, head);
      form_.Map(q, q);
      form_.Map(k, k);
      if (exact_) {
        const float scale = PowerOfTwoScale(q, d_key_);
        for (int64_t i = 0; i < d_key_; ++i) q[i] *= scale;
      }
      float* features = block.extra[row] + head * d_key_;
      std::copy_n(q, d_key_, features);
      std::copy_n(k, d_key_, features + key_width_);
    }
  }

  // Katharopoulos et al. 2020, eq. (18)-(20), for the segment's tokens in
  // order.
  void AttendHeads(const MixerBlock& block, const Segment& segment,
                   int64_t layer, int64_t head, int64_t heads) const {
    const int64_t count = segment.count, row = segment.row;
    SerialExecutor serial;
    LinearAttentionPrefill(
        form_.options(),
        HeadView(Query(block, row, head), count, block.in.stride, d_key_,
                 heads),
        HeadView(Key(block, row, head), count, block.in.stride, d_key_, heads),
        HeadView(Value(block, row, head), count, block.in.stride, d_value_,
                 heads),
        segment.state->Tensor(layer, kSums) + head * d_key_ * d_value_,
        segment.state->Tensor(layer, kKeySums) + head * d_key_,
        HeadView(Out(block, row, head), count, block.out.stride, d_value_,
                 heads),
        serial);
  }

  // Rotation after the feature map (Su et al. 2021, eq. (19)): the numerator
  // uses rotated features, the denominator plain ones. Two runs of the
  // recurrence:
  //   S += R phi(k) v^T,  n = S^T R phi(q)
  //   z += phi(k) 1,      d = z^T phi(q)      (a state of one value column)
  void AttendTurned(MixerBlock& block, const Segment& segment, int64_t layer,
                    int64_t head, int worker) const {
    const int64_t count = segment.count, row = segment.row;
    const int64_t stride = block.in.stride, extra = block.extra.stride;
    const LinearAttentionOptions& options = form_.plain_options();
    // The kernel always sums keys into a normalizer; here it is not read.
    float* unused = block.Scratch(worker);
    std::fill_n(unused, d_key_, 0.0f);
    SerialExecutor serial;
    LinearAttentionPrefill(
        options, HeadView(Query(block, row, head), count, stride, d_key_),
        HeadView(Key(block, row, head), count, stride, d_key_),
        HeadView(Value(block, row, head), count, stride, d_value_),
        segment.state->Tensor(layer, kSums) + head * d_key_ * d_value_, unused,
        HeadView(Out(block, row, head), count, block.out.stride, d_value_),
        serial);
    float one = 1.0f;
    float* features = block.extra[row] + head * d_key_;
    float* denominators = block.extra[row] + 2 * key_width_ + head;
    LinearAttentionPrefill(
        options, HeadView(features, count, extra, d_key_),
        HeadView(features + key_width_, count, extra, d_key_),
        HeadView(&one, count, 0, 1),
        segment.state->Tensor(layer, kKeySums) + head * d_key_, unused,
        HeadView(denominators, count, extra, 1), serial);
    for (int64_t i = 0; i < count; ++i) {
      form_.Divide(denominators[i * extra], 0.0f, d_value_,
                   Out(block, row + i, head));
    }
  }

  // Attends with features of a width of their own or with a signed denominator,
  // token by token, with the features of one query and one key in scratch.
  //   S += phi(k) v^T,  z += phi(k),  n = S^T phi(q)      (the kernel)
  //   b += ||phi(k)||,  o = n / d,  d = z . phi(q) kept away from 0 by
  //   ||phi(q)|| b                                        (here)
  void AttendOutside(MixerBlock& block, const Segment& segment, int64_t layer,
                     int64_t head, int worker) const {
    const int64_t width = form_.d_feature();
    float* query = block.Scratch(worker);
    float* key = query + RowStride(width);
    float* S = segment.state->Tensor(layer, kSums) + head * width * d_value_;
    float* z = segment.state->Tensor(layer, kKeySums) + head * width;
    SerialExecutor serial;
    for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
      float* out = Out(block, r, head);
      form_.Map(Query(block, r, head), query);
      form_.Map(Key(block, r, head), key);
      LinearAttentionPrefill(
          form_.plain_options(), HeadView(query, 1, width, width),
          HeadView(key, 1, width, width),
          HeadView(Value(block, r, head), 1, d_value_, d_value_), S, z,
          HeadView(out, 1, d_value_, d_value_), serial);
      float bound = 0.0f;
      if (form_.norm_sums()) {
        float* sum = segment.state->Tensor(layer, kNormSums) + head;
        *sum += NormOfRow(key, width);
        bound = NormOfRow(query, width) * *sum;
      }
      form_.Divide(DotRow(query, z, width), bound, d_value_, out);
    }
  }

  // o_i = phi(q_i)^T S / phi(q_i)^T z over all keys (Katharopoulos et al. 2020,
  // eq. (5)-(6)). Rotation after the feature map: the numerator uses rotated
  // features, the denominator plain ones.
  void ReadAll(MixerBlock& block, const Segment& segment, int64_t head,
               int worker) const {
    const int64_t row = segment.row, count = segment.count;
    const int64_t stride = block.in.stride;
    const HeadRows queries = {Query(block, row, head), stride, count};
    const HeadRows keys = {Key(block, row, head), stride, count};
    const HeadRows values = {Value(block, row, head), stride, count};
    const HeadRows out = {Out(block, row, head), block.out.stride, count};
    float* S = block.Scratch(worker);
    float* z = S + s_floats_;
    float* scratch = S + sums_floats_;
    if (!turned_) {
      float norm_sum = 0.0f;
      BuildLinearMemory(form_, keys, values, d_key_, d_value_, S, z, &norm_sum,
                        scratch);
      ReadLinearMemory(form_, {S, z, norm_sum}, queries, out, d_value_,
                       scratch);
      return;
    }
    BuildLinearMemory(plain_, keys, values, d_key_, d_value_, S, z, nullptr,
                      scratch);
    ReadLinearMemory(plain_, {S, z, 0.0f}, queries, out, d_value_, scratch);
    std::fill_n(z, d_key_, 0.0f);
    const int64_t at = head * d_key_;
    for (int64_t i = 0; i < count; ++i) {
      AddToRow(block.extra[row + i] + key_width_ + at, d_key_, z);
    }
    for (int64_t i = 0; i < count; ++i) {
      form_.Divide(DotRow(block.extra[row + i] + at, z, d_key_), 0.0f, d_value_,
                   out[i]);
    }
  }

  const LinearForm form_, plain_;  // plain: of rotated features
  const bool exact_, turned_;      // turned: rotated after the feature map
  const int64_t s_floats_, sums_floats_;  // of S; of S and z
  int64_t build_floats_ = 0;              // after them in a worker's scratch
};

bool Runs(const FeatureMapTraits& map) { return map.elementwise || map.pairs; }

std::optional<Error> Check(const ModelConfig& layer) {
  const FeatureMapTraits& map = Traits(LinearKeys(layer).feature_map);
  if (Runs(map)) return std::nullopt;
  std::string names;
  for (const FeatureMapTraits& row : kFeatureMaps) {
    if (Runs(row)) names += StrCat(names.empty() ? "" : ", ", row.name);
  }
  return FormatError("config.json: feature_map",
                     names + " (what this runtime can run)", map.name);
}

std::unique_ptr<RuntimeMixer> NewLinear(const ModelConfig& layer,
                                        MixerTensors& tensors) {
  return std::make_unique<Linear>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> linear::RuntimeMixers() {
  return {{"linear", Check, NewLinear, MakeLinearCross}};
}

}  // namespace tarn::mixers
