#include "torch_nn/mixers/registry.h"

#include <map>
#include <mutex>
#include <string>

#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"
#include "torch_nn/mixers/parallel.h"

namespace tarn::nn {
namespace {

struct Registry {
  ForkHeldMutex turn;
  std::map<std::string, MixerFactory> factories;

  Registry() {
    for (const MixerRow& row : BuiltinMixerRows()) {
      factories[row.name] = row.make;
    }
  }
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

void RegisterTorchMixer(const char* name, MixerFactory factory) {
  if (name == nullptr || factory == nullptr) {
    throw ArgumentError("RegisterTorchMixer: factory", "a name and a factory",
                        name == nullptr ? "no name" : Quoted(name));
  }
  bool known = false;
  for (const char* mixer : MixerNames()) known |= std::string(mixer) == name;
  if (!known) {
    throw ArgumentError("RegisterTorchMixer: name",
                        "a mixer that RegisterMixer has made known",
                        Quoted(name));
  }
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  if (!registry.factories.emplace(name, factory).second) {
    throw ArgumentError("RegisterTorchMixer: name",
                        "a mixer without a module so far", Quoted(name));
  }
}

std::shared_ptr<Mixer> MakeMixer(const ModelConfig& layer, MixerPlace place) {
  if (!layer.branches.empty()) return MakeParallelMixer(layer, place);
  Registry& registry = TheRegistry();
  MixerFactory make = nullptr;
  {
    const std::lock_guard lock(registry.turn);
    const auto found = registry.factories.find(Name(layer.attention));
    if (found != registry.factories.end()) make = found->second;
  }
  if (make == nullptr) {
    throw ArgumentError("attention",
                        "a mixer with a module (RegisterTorchMixer)",
                        Quoted(Name(layer.attention)));
  }
  return make(layer, place);
}

}  // namespace tarn::nn
