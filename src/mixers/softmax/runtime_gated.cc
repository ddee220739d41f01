// The runtime half of mixers/softmax/form.h.
#include <algorithm>
#include <cmath>
#include <utility>

#include "mixers/softmax/form.h"
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/rotary/rotary.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "mixers/softmax/runtime.h"

namespace tarn::mixers {
namespace {

enum Tensor : int64_t { kKeys, kValues };  // of the spec's state

// A share, and a task, is a head of keys with the heads of queries that read it.
class GatedSoftmax final : public RuntimeMixer {
 public:
  GatedSoftmax(const ModelConfig& layer, MixerTensors& tensors)
      : s_(layer),
        scale_(static_cast<float>(
            1.0 / std::sqrt(static_cast<double>(layer.d_key)))) {
    std::vector<std::string> names = {"query_projection", "key_projection",
                                      "value_projection"};
    std::vector<int64_t> rows = {s_.queries(), s_.keys(), s_.values()};
    if (s_.gated) {
      names.push_back("gate_projection");
      rows.push_back(s_.outputs());
    }
    in_ = tensors.Stack(names, rows, s_.d_model, /*biases=*/false);
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.outputs(),
                         /*biases=*/false);
    if (s_.normed) {
      query_norm_ = tensors.Vector("query_norm.weight");
      key_norm_ = tensors.Vector("key_norm.weight");
    }
    norm_ = {.groups = 1, .width = s_.d_key, .eps = layer.norm_eps};
  }

  // The scores of a row. Grows when the cache does, not from token to token.
  int64_t WorkerFloats(const MixerBlock& block) const override {
    int64_t most = 0;
    for (const Segment& s : block.segments) {
      most = std::max(most, s.state != nullptr ? s.state->capacity() : 0);
    }
    return RowStride(most);
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t rows_each = (block.rows() + segments - 1) / segments;
    const int64_t longest =
        *std::max_element(block.positions.begin(), block.positions.end());
    block.ForTasks(
        segments * s_.key_heads,
        s_.group() * rows_each *
            (longest * (s_.d_key + s_.d_value) / 16 + 200),
        [&](int64_t task, int worker) {
          Attend(block, block.segments[static_cast<size_t>(task / s_.key_heads)],
                 layer, task % s_.key_heads, worker);
        });
  }

  int64_t shares() const override { return s_.key_heads; }
  void Step(MixerBlock& block, int64_t layer, int64_t begin, int64_t end,
            int worker) const override {
    for (int64_t share = begin; share < end; ++share) {
      Attend(block, block.segments.front(), layer, share, worker);
    }
  }
  const void* Reads(const SequenceState& state, int64_t layer,
                    int64_t share) const override {
    return state.Row(layer, kKeys, share);
  }

 private:
  // A head's query or key: normalised, and its first channels turned.
  void Prepare(const MixerBlock& block, int64_t row,
               const std::vector<float>& weight, float* x) const {
    if (s_.normed) {
      GatedNormRow(norm_, x, nullptr, weight.data(), nullptr, x);
    }
    if (s_.rotary == 0) return;
    const float* cos = block.places[row];
    RotateRow(cos, cos + s_.rotary / 2, 1, s_.rotary, x);
  }

  void Attend(MixerBlock& block, const Segment& segment, int64_t layer,
              int64_t key_head, int worker) const {
    SequenceState& state = *segment.state;
    float* keys = state.Row(layer, kKeys, key_head);
    float* values = state.Row(layer, kValues, key_head);
    for (int64_t i = 0; i < segment.count; ++i) {
      float* in = block.in[segment.row + i] + s_.queries();
      float* key = in + key_head * s_.d_key;
      Prepare(block, segment.row + i, key_norm_, key);
      const int64_t at = state.position + i;
      std::copy_n(key, s_.d_key, keys + at * s_.d_key);
      std::copy_n(in + s_.keys() + key_head * s_.d_value, s_.d_value,
                  values + at * s_.d_value);
    }
    const int64_t first = key_head * s_.group();
    for (int64_t head = first; head < first + s_.group(); ++head) {
      for (int64_t i = 0; i < segment.count; ++i) {
        const int64_t row = segment.row + i;
        float* query = block.in[row] + head * s_.d_key;
        float* out = block.out[row] + head * s_.d_value;
        Prepare(block, row, query_norm_, query);
        const KeyValueCache cache = {
            keys, values, s_.d_key, s_.d_value,
            block.positions[static_cast<size_t>(row)] + 1, s_.d_key,
            s_.d_value};
        SoftmaxAttentionStep(query, cache, scale_, block.Scratch(worker), out);
        if (s_.gated) Gate(block, row, head, out);
      }
    }
  }

  void Gate(const MixerBlock& block, int64_t row, int64_t head,
            float* out) const {
    float* gate = block.in[row] + s_.queries() + s_.keys() + s_.values() +
                  head * s_.d_value;
    SigmoidRow(gate, s_.d_value, gate);
    for (int64_t i = 0; i < s_.d_value; ++i) out[i] *= gate[i];
  }

  const GatedSoftmaxSizes s_;
  const float scale_;
  std::vector<float> query_norm_, key_norm_;  // [K]
  GatedNormOptions norm_;
};

std::unique_ptr<RuntimeMixer> Make(const ModelConfig& layer,
                                   MixerTensors& tensors) {
  return std::make_unique<GatedSoftmax>(layer, tensors);
}

}  // namespace

RuntimeMixerRow GatedSoftmaxRuntimeMixer() {
  return {kGatedSoftmax, nullptr, Make};
}

}  // namespace tarn::mixers
