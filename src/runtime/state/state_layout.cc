#include "runtime/state/state_layout.h"

#include "config/feed_forward_form.h"
#include "config/layer_counts.h"
#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

StateLayout::StateLayout(const ModelConfig& config)
    : outputs(config.Outputs()), cross(config.arch == Arch::kSeq2seq) {
  for (int64_t i = 0; i < DecoderLayers(config); ++i) {
    const ModelConfig view = LayerView(config, i);
    std::vector<StatePlace>& places = layers.emplace_back();
    for (StateTensor& tensor : LayerState(view)) {
      if (tensor.kept > 0) {  // a ring of that many tokens: [rows, kept, W]
        tensor.shape.insert(tensor.shape.begin() + 1, tensor.kept);
        tensor.grows = false;
      }
      StatePlace place;
      place.width = tensor.elements();
      if (tensor.grows) {
        place.rows = tensor.shape.front();
        place.width /= place.rows;
        place.offset = token_floats;
        token_floats += tensor.elements();
      } else {
        place.offset = fixed_floats;
        fixed_floats += PaddedFloats(place.width);
      }
      place.tensor = std::move(tensor);
      places.push_back(std::move(place));
    }
    first_branch.push_back(static_cast<int64_t>(branches.size()));
    auto next = places.begin();
    for (const ModelConfig& branch : view.branches) {
      const auto& state = Spec(branch.attention).state;
      const size_t count = state == nullptr ? 0 : state(branch).size();
      const auto end = next + static_cast<int64_t>(count);
      branches.emplace_back(next, end);
      next = end;
    }
  }
}

int64_t StateLayout::FixedBytes() const {
  int64_t floats = 0;
  for (const auto& layer : layers) {
    for (const StatePlace& place : layer) {
      if (!place.tensor.grows) floats += place.width;
    }
  }
  return floats * kFloatBytes;
}

int64_t StateLayout::BytesPerToken() const {
  return token_floats * kFloatBytes;
}

}  // namespace tarn
