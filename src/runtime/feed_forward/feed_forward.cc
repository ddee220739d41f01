#include "runtime/feed_forward/feed_forward.h"

#include <deque>
#include <mutex>

#include "core/fork.h"
#include "core/text.h"

namespace tarn {
namespace {

// Rows are only ever added, and a deque does not move them.
struct FeedForwardRegistry {
  ForkHeldMutex turn;
  std::deque<RuntimeFeedForwardRow> rows;

  FeedForwardRegistry() {
    for (const auto& builtin :
         {PlainFeedForwards(), ChannelMixFeedForwards(), MoeFeedForwards()}) {
      rows.insert(rows.end(), builtin.begin(), builtin.end());
    }
  }
  const RuntimeFeedForwardRow* Find(const std::string& name) const {
    for (const RuntimeFeedForwardRow& row : rows) {
      if (name == row.name) return &row;
    }
    return nullptr;
  }
};

FeedForwardRegistry& FeedForwardRegistered() {
  static FeedForwardRegistry registry;
  return registry;
}

}  // namespace

void RegisterRuntimeFeedForward(const RuntimeFeedForwardRow& row) {
  FeedForwardRegistry& registry = FeedForwardRegistered();
  const std::lock_guard lock(registry.turn);
  if (row.name == nullptr || row.make == nullptr ||
      registry.Find(row.name) != nullptr) {
    throw ArgumentError("RegisterRuntimeFeedForward: row",
                        "a factory and a unique name",
                        row.name == nullptr ? "no name" : Quoted(row.name));
  }
  registry.rows.push_back(row);
}

const RuntimeFeedForwardRow* FindRuntimeFeedForward(const std::string& name) {
  FeedForwardRegistry& registry = FeedForwardRegistered();
  const std::lock_guard lock(registry.turn);
  return registry.Find(name);
}

std::vector<const char*> RuntimeFeedForwardNames() {
  FeedForwardRegistry& registry = FeedForwardRegistered();
  const std::lock_guard lock(registry.turn);
  std::vector<const char*> names;
  for (const RuntimeFeedForwardRow& row : registry.rows) {
    names.push_back(row.name);
  }
  return names;
}

}  // namespace tarn
