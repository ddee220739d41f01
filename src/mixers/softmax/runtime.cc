#include "mixers/softmax/runtime.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/softmax_attention/softmax_attention.h"
#include "mixers/common/runtime_attention.h"

namespace tarn::mixers {
namespace {

enum Tensor : int64_t { kKeys, kValues };  // of KeyValueCacheState

class Full final : public RuntimeAttention {
 public:
  Full(const ModelConfig& layer, MixerTensors& tensors)
      : RuntimeAttention(layer, tensors),
        scale_(static_cast<float>(
            1.0 / std::sqrt(static_cast<double>(layer.d_key)))) {}

  // The scores of a row. Grows when the cache does, not from token to token.
  int64_t WorkerFloats(const MixerBlock& block) const override {
    int64_t most = 0;
    for (const Segment& s : block.segments) {
      most = std::max(most,
                      s.state != nullptr ? s.state->capacity() : s.count);
    }
    return RowStride(most);
  }

  // Every row attends to the keys up to its own, those of its block included.
  // A task is one head of one segment: its keys stay in the cache from row to
  // row.
  void Mix(MixerBlock& block, int64_t layer) const override {
    Rotate(block);
    const int64_t longest = *std::max_element(block.positions.begin(),
                                              block.positions.end());
    ForHeads(block, longest, [&](const Segment& segment, int64_t head,
                                 int worker) {
      AttendHead(block, segment, layer, head, worker);
    });
  }

  void MixSequences(MixerBlock& block) const override {
    Rotate(block);
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    ForHeads(block, block.rows() / segments,
             [&](const Segment& segment, int64_t head, int worker) {
               AttendAll(block, segment, head, worker);
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
    return state.Row(layer, kKeys, share);
  }

 private:
  // The segment's rows, each over the keys up to its own.
  void AttendHead(MixerBlock& block, const Segment& segment, int64_t layer,
                  int64_t head, int worker) const {
    SequenceState& state = *segment.state;
    float* keys = state.Row(layer, kKeys, head);
    float* values = state.Row(layer, kValues, head);
    for (int64_t i = 0; i < segment.count; ++i) {
      const int64_t at = state.position + i;
      std::copy_n(Key(block, segment.row + i, head), d_key_,
                  keys + at * d_key_);
      std::copy_n(Value(block, segment.row + i, head), d_value_,
                  values + at * d_value_);
    }
    // Several rows read the keys repeatedly, a single row goes on to the next
    // head.
    const bool streams = segment.count == 1;
    const float* next =
        head + 1 < heads_ ? std::as_const(state).Row(layer, kKeys, head + 1)
                          : nullptr;
    for (int64_t i = 0; i < segment.count; ++i) {
      const int64_t row = segment.row + i;
      SoftmaxAttentionStep(
          Query(block, row, head),
          {keys, values, d_key_, d_value_, block.positions[static_cast<size_t>(
                                               row)] + 1,
           d_key_, d_value_, streams, next},
          scale_, block.Scratch(worker), Out(block, row, head));
    }
  }

  void AttendAll(MixerBlock& block, const Segment& segment, int64_t head,
                 int worker) const {
    if (segment.count == 0) return;
    const KeyValueCache cache = {
        Key(block, segment.row, head), Value(block, segment.row, head),
        block.in.stride,               block.in.stride,
        segment.count,                 d_key_,
        d_value_};
    for (int64_t row = segment.row; row < segment.row + segment.count; ++row) {
      SoftmaxAttentionStep(Query(block, row, head), cache, scale_,
                           block.Scratch(worker), Out(block, row, head));
    }
  }

  const float scale_;
};

std::unique_ptr<RuntimeMixer> MakeFull(const ModelConfig& layer,
                                       MixerTensors& tensors) {
  return std::make_unique<Full>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> softmax::RuntimeMixers() {
  return {{"full", nullptr, MakeFull, MakeSoftmaxCross},
          LocalRuntimeMixer(),
          GatedSoftmaxRuntimeMixer()};
}

}  // namespace tarn::mixers
