// The registry of mixers' modules, by the names of src/config/mixer_spec.h.
#pragma once

#include <memory>
#include <vector>

#include "torch_nn/mixers/mixer.h"

namespace tarn::nn {

/// Makes the module of a layer; layer and place as Mixer takes them.
using MixerFactory = std::shared_ptr<Mixer> (*)(const ModelConfig& layer,
                                                MixerPlace place);

struct MixerRow {
  const char* name;
  MixerFactory make;
};

/// Adds the module of a mixer that RegisterMixer has made known. Throws
/// ArgumentError for a name that no mixer has, for one whose module is already
/// registered, and for a null factory. Thread-safe; call it before a model
/// needs the mixer.
void RegisterTorchMixer(const char* name, MixerFactory factory);

/// The module of layer.attention. Throws ArgumentError for a mixer without one.
std::shared_ptr<Mixer> MakeMixer(const ModelConfig& layer,
                                 MixerPlace place = {});

/// The rows that every build has: what the folders of mixers define, listed by
/// the build.
std::vector<MixerRow> BuiltinMixerRows();

}  // namespace tarn::nn
