#include "runtime/mixer/mixer.h"

#include <deque>
#include <mutex>
#include <string_view>

#include "core/fork.h"
#include "core/text.h"
#include "runtime/mixer/parallel.h"

namespace tarn {
namespace {

// Rows are only ever added, and a deque does not move them.
struct Registry {
  ForkHeldMutex turn;
  std::deque<RuntimeMixerRow> rows;

  Registry() {
    const std::vector<RuntimeMixerRow> all = BuiltinRuntimeMixers();
    // In the order of the registry of mixers, which lists and messages follow.
    for (const char* name : MixerNames()) {
      for (const RuntimeMixerRow& row : all) {
        if (std::string_view(row.name) == name) rows.push_back(row);
      }
    }
  }
  const RuntimeMixerRow* Find(const std::string& name) const {
    for (const RuntimeMixerRow& row : rows) {
      if (name == row.name) return &row;
    }
    return nullptr;
  }
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

void RuntimeMixer::MixSequences(MixerBlock&) const {
  throw ArgumentError("attention", "a mixer that reads whole sequences",
                      "one that is causal");
}

void RegisterRuntimeMixer(const RuntimeMixerRow& row) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  if (row.name == nullptr || row.make == nullptr ||
      registry.Find(row.name) != nullptr) {
    throw ArgumentError("RegisterRuntimeMixer: row",
                        "a factory and a unique name",
                        row.name == nullptr ? "no name" : Quoted(row.name));
  }
  registry.rows.push_back(row);
}

const RuntimeMixerRow* FindRuntimeMixer(const std::string& name) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  return registry.Find(name);
}

std::unique_ptr<RuntimeMixer> MakeRuntimeMixer(const ModelConfig& layer,
                                               MixerTensors& tensors) {
  if (!layer.branches.empty()) return MakeParallelRuntime(layer, tensors);
  return FindRuntimeMixer(Name(layer.attention))->make(layer, tensors);
}

std::vector<const char*> RuntimeMixerNames() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  std::vector<const char*> names;
  for (const RuntimeMixerRow& row : registry.rows) names.push_back(row.name);
  return names;
}

}  // namespace tarn
