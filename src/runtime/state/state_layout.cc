#include "runtime/state/state_layout.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "config/feed_forward_form.h"
#include "config/layer_counts.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// Floats of a tensor's numbers, all or those of a token, in its type.
int64_t FloatsOf(const StatePlace& place, int64_t numbers) {
  if (place.numbers == 0) return numbers;
  return numbers / place.numbers * CacheRowWords(place.type, place.numbers);
}

}  // namespace

StateLayout::StateLayout(const ModelConfig& config, CacheType cache)
    : outputs(config.Outputs()),
      cross(config.arch == Arch::kSeq2seq),
      cache(cache) {
  for (int64_t i = 0; i < DecoderLayers(config); ++i) {
    const ModelConfig view = LayerView(config, i);
    std::vector<StatePlace>& places = layers.emplace_back();
    for (StateTensor& tensor : LayerState(view)) {
      StatePlace place;
      if (tensor.rounds && cache != CacheType::kF32) {
        place.type = cache;
        place.numbers = tensor.shape.back();
      }
      if (tensor.ring() > 0) {  // [rows, ring, W]
        tensor.shape.insert(tensor.shape.begin() + 1, tensor.ring());
        tensor.grows = false;
      }
      place.width = FloatsOf(place, tensor.elements());
      if (tensor.grows) {
        place.rows = tensor.shape.front();
        place.offset = token_floats;
        token_floats += place.width;
        place.width /= place.rows;
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

bool StateLayout::rounds() const {
  const auto rounded = [](const StatePlace& place) {
    return place.numbers > 0;
  };
  return std::any_of(layers.begin(), layers.end(), [&](const auto& places) {
    return std::any_of(places.begin(), places.end(), rounded);
  });
}

bool StateLayout::operator==(const StateLayout& other) const {
  const auto value = [](const StateLayout& l) {
    return std::tie(l.layers, l.branches, l.first_branch, l.outputs,
                    l.fixed_floats, l.token_floats, l.cross, l.cache);
  };
  return value(*this) == value(other);
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
