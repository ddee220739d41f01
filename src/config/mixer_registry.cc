// The registry of mixers: the built-in rows, and those that a program adds.
#include <deque>
#include <mutex>
#include <string_view>

#include "config/fields.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"

namespace tarn {
namespace {

// Rows are only ever added, and a deque does not move them.
struct Registry {
  ForkHeldMutex turn;
  std::deque<MixerSpec> rows;

  Registry() {
    for (MixerSpec& spec : BuiltinMixers()) rows.push_back(std::move(spec));
  }
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

AttentionKind RegisterMixer(const MixerSpec& spec) {
  if (spec.name == nullptr || spec.family == nullptr || !spec.weights) {
    throw ArgumentError("RegisterMixer: spec", "a name, a family and weights",
                        spec.name == nullptr ? "no name" : Quoted(spec.name));
  }
  if (spec.can.recurrent != (spec.state != nullptr)) {
    throw ArgumentError("RegisterMixer: spec.state",
                        spec.can.recurrent ? "the state of a recurrent mixer"
                                           : "none without a recurrent form",
                        spec.state != nullptr ? "one" : "none");
  }
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  for (const MixerSpec& row : registry.rows) {
    if (std::string_view(row.name) == spec.name) {
      throw ArgumentError("RegisterMixer: spec.name", "a name of its own",
                          Quoted(spec.name));
    }
  }
  MixerSpec row = spec;
  if (!row.keys.empty()) {
    AddOwnFields(row.family, row.keys);
    row.sections.push_back(row.family);
  }
  registry.rows.push_back(std::move(row));
  return static_cast<AttentionKind>(registry.rows.size() - 1);
}

const MixerSpec& Spec(AttentionKind kind) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  const auto index = static_cast<size_t>(kind);
  if (index >= registry.rows.size()) {
    throw ArgumentError("attention", "a registered mixer",
                        StrCat("number ", index));
  }
  return registry.rows[index];
}

std::vector<const char*> MixerNames() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  std::vector<const char*> names;
  for (const MixerSpec& row : registry.rows) names.push_back(row.name);
  return names;
}

const char* Name(AttentionKind kind) { return Spec(kind).name; }

}  // namespace tarn
