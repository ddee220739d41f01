// The registry of feed-forward parts, filled like that of mixers.
#include <deque>
#include <mutex>

#include "config/feed_forward_spec.h"
#include "config/fields.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"

namespace tarn {
namespace {

// Rows are only ever added, and a deque does not move them.
struct PartRegistry {
  ForkHeldMutex turn;
  std::deque<FeedForwardSpec> rows;
};

PartRegistry& PartRows() {
  static PartRegistry registry;
  return registry;
}

FeedForwardKind AddPart(const FeedForwardSpec& spec, bool added) {
  if (spec.name == nullptr || !spec.weights) {
    throw ArgumentError("RegisterFeedForward: spec", "a name and weights",
                        spec.name == nullptr ? "no name" : Quoted(spec.name));
  }
  PartRegistry& registry = PartRows();
  const std::lock_guard lock(registry.turn);
  for (const FeedForwardSpec& row : registry.rows) {
    if (std::string_view(row.name) == spec.name) {
      throw ArgumentError("RegisterFeedForward: spec.name", "a new name",
                          Quoted(spec.name));
    }
  }
  AddOwnFields(spec.name, spec.keys, added);
  registry.rows.push_back(spec);
  return static_cast<FeedForwardKind>(registry.rows.size() - 1);
}

}  // namespace

void AddBuiltinFeedForwards() {
  for (const FeedForwardSpec& row : BuiltinFeedForwards()) {
    AddPart(row, /*added=*/false);
  }
}

FeedForwardKind RegisterFeedForward(const FeedForwardSpec& spec) {
  EnsureBuiltins();
  return AddPart(spec, /*added=*/true);
}

const FeedForwardSpec& Spec(FeedForwardKind kind) {
  EnsureBuiltins();
  PartRegistry& registry = PartRows();
  const std::lock_guard lock(registry.turn);
  const auto index = static_cast<size_t>(kind);
  if (index >= registry.rows.size()) {
    throw ArgumentError("feed_forward", "a registered part",
                        StrCat("number ", index));
  }
  return registry.rows[index];
}

FeedForwardKind FeedForwardOf(std::string_view name) {
  const std::vector<const char*> names = FeedForwardNames();
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<FeedForwardKind>(i);
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  RefuseKey("feed_forward", "one of " + known, Quoted(name));
}

std::vector<const char*> FeedForwardNames() {
  EnsureBuiltins();
  PartRegistry& registry = PartRows();
  const std::lock_guard lock(registry.turn);
  std::vector<const char*> names;
  for (const FeedForwardSpec& row : registry.rows) names.push_back(row.name);
  return names;
}

const char* Name(FeedForwardKind kind) { return Spec(kind).name; }

}  // namespace tarn
