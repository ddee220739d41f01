// Attention over a window of the last tokens: a state of fixed size.
#include <algorithm>
#include <cmath>

#include "kernels/softmax_attention/softmax_attention.h"
#include "mixers/common/runtime_attention.h"
#include "mixers/softmax/runtime.h"
#include "mixers/softmax/spec.h"

namespace tarn::mixers {
namespace {

enum Tensor : int64_t { kKeys, kValues };  // of LocalState

// Query i sees the keys j with -floor(c / 2) <= j - i < ceil(c / 2), c = local_context.
// Those of a decoder, up to its own, lie in slots: that of token j is j modulo their number.
// Softmax does not depend on the order of keys.
class Local final : public RuntimeAttention {
 public:
  Local(const ModelConfig& layer, MixerTensors& tensors)
      : RuntimeAttention(layer, tensors),
        before_(KeyOf<int64_t>(layer, "local_context") / 2),
        after_((KeyOf<int64_t>(layer, "local_context") + 1) / 2),
        slots_(LocalSlots(layer)),
        scale_(static_cast<float>(
            1.0 / std::sqrt(static_cast<double>(layer.d_key)))) {}

  // The scores of a row.
  int64_t WorkerFloats(const MixerBlock&) const override {
    return RowStride(before_ + std::max<int64_t>(after_, 1));
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    Rotate(block);
    ForHeads(block, before_ + after_,
             [&](const Segment& segment, int64_t head, int worker) {
      AttendHead(block, segment, layer, head, worker);
    });
  }

  void MixSequences(MixerBlock& block) const override {
    Rotate(block);
    ForHeads(block, before_ + after_,
             [&](const Segment& segment, int64_t head, int worker) {
      AttendAround(block, segment, head, worker);
    });
  }

  void Step(MixerBlock& block, int64_t layer, int64_t begin, int64_t end,
            int worker) const override {
    for (int64_t head = begin; head < end; ++head) {
      if (rotary_) RotateHead(block, 0, head);
      AttendHead(block, block.segments.front(), layer, head, worker);
    }
  }

  const void* Reads(const SequenceState& state, int64_t layer,
                    int64_t share) const override {
    return state.Tensor(layer, kKeys) + share * slots_ * d_key_;
  }

 private:
  // The segment's rows in turn: each takes its slot, then reads all that are filled.
  void AttendHead(MixerBlock& block, const Segment& segment, int64_t layer,
                  int64_t head, int worker) const {
    SequenceState& state = *segment.state;
    float* keys = state.Tensor(layer, kKeys) + head * slots_ * d_key_;
    float* values = state.Tensor(layer, kValues) + head * slots_ * d_value_;
    for (int64_t i = 0; i < segment.count; ++i) {
      const int64_t row = segment.row + i;
      const int64_t at = state.position + i;
      std::copy_n(Key(block, row, head), d_key_, keys + at % slots_ * d_key_);
      std::copy_n(Value(block, row, head), d_value_,
                  values + at % slots_ * d_value_);
      SoftmaxAttentionStep(Query(block, row, head),
                           {keys, values, d_key_, d_value_,
                            std::min(at + 1, slots_), d_key_, d_value_},
                           scale_, block.Scratch(worker),
                           Out(block, row, head));
    }
  }

  void AttendAround(MixerBlock& block, const Segment& segment, int64_t head,
                    int worker) const {
    for (int64_t i = 0; i < segment.count; ++i) {
      const int64_t first = std::max<int64_t>(i - before_, 0);
      const int64_t end = std::min(i + after_, segment.count);
      SoftmaxAttentionStep(
          Query(block, segment.row + i, head),
          {Key(block, segment.row + first, head),
           Value(block, segment.row + first, head), block.in.stride,
           block.in.stride, end - first, d_key_, d_value_},
          scale_, block.Scratch(worker), Out(block, segment.row + i, head));
    }
  }

  const int64_t before_, after_, slots_;
  const float scale_;
};

std::unique_ptr<RuntimeMixer> MakeLocal(const ModelConfig& layer,
                                        MixerTensors& tensors) {
  return std::make_unique<Local>(layer, tensors);
}

}  // namespace

RuntimeMixerRow LocalRuntimeMixer() { return {"local", nullptr, MakeLocal}; }

}  // namespace tarn::mixers
