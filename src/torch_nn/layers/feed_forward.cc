#include "torch_nn/layers/feed_forward.h"

#include <mutex>
#include <string_view>

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"

namespace tarn::nn {
namespace {

// Rows are only ever added.
struct FeedForwardRegistry {
  ForkHeldMutex turn;
  std::vector<FeedForwardRow> rows = BuiltinFeedForwardRows();

  const FeedForwardRow* Find(std::string_view name) const {
    for (const FeedForwardRow& row : rows) {
      if (name == row.name) return &row;
    }
    return nullptr;
  }
};

FeedForwardRegistry& FeedForwardModules() {
  static FeedForwardRegistry registry;
  return registry;
}

}  // namespace

void RegisterTorchFeedForward(const FeedForwardRow& row) {
  // The name of a part, which lives as long as the program; throws for others.
  const char* name = Spec(FeedForwardOf(row.name)).name;
  FeedForwardRegistry& registry = FeedForwardModules();
  const std::lock_guard lock(registry.turn);
  if (row.make == nullptr || registry.Find(name) != nullptr) {
    throw ArgumentError("RegisterTorchFeedForward: row",
                        "a factory and a unique name", Quoted(name));
  }
  registry.rows.push_back({name, row.make});
}

std::unique_ptr<FeedForward> MakeFeedForward(torch::nn::Module& owner,
                                             const ModelConfig& layer,
                                             const MixerPlace& place) {
  if (!FeedForwardState(layer).empty() && !place.causal) {
    throw ArgumentError("feed_forward",
                        "a part without a state in a stack that sees later "
                        "tokens",
                        Name(layer.feed_forward));
  }
  FeedForwardFactory make = nullptr;
  {
    FeedForwardRegistry& registry = FeedForwardModules();
    const std::lock_guard lock(registry.turn);
    const FeedForwardRow* row = registry.Find(Name(layer.feed_forward));
    if (row != nullptr) make = row->make;
  }
  if (make == nullptr) {
    throw ArgumentError("feed_forward", "a part with a module",
                        Name(layer.feed_forward));
  }
  return make(owner, layer, place);
}

}  // namespace tarn::nn
