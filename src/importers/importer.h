// Models that others published, opened as they are: a directory in Hugging
// Face's form becomes a configuration and a view of its weights. Each type of
// model has one file here; a row of the table is all that others see of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "importers/published_config.h"
#include "importers/tensor_map.h"

namespace tarn {

/// What an importer writes into a config.json: key by key, in order.
using PublishedKeys = nlohmann::ordered_json;

/// One type of published model. All functions throw FormatError.
struct Importer {
  const char* model_type;  // of config.json
  /// The configuration, not finished yet; all keys are read or ignored.
  ModelConfig (*config)(PublishedConfig& published);
  /// The tensors of the finished configuration.
  void (*tensors)(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to);
  /// The way back, which not all types have: the class that reads the model,
  /// and the keys of a configuration. It writes what the type can express and
  /// refuses nothing: reading the keys again must give the configuration.
  /// `tensors` must then give the shapes of what it cuts.
  const char* architecture = nullptr;
  void (*publish)(const ModelConfig& config, PublishedKeys& to) = nullptr;
};

/// The rows of all files.
const std::vector<Importer>& Importers();

/// The tensors of a Mamba-2 mixer but those of its norm, under `own`, from
/// those under `theirs`: what every hybrid with such layers has. config: as the
/// layer sees it.
void AddMamba2(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to);

/// Rotary positions: rope_parameters of transformers 5, or the keys of 4.
void ReadRotary(PublishedConfig& from, ModelConfig& config);
/// The same keys, as transformers 5 writes them.
void PublishRotary(const ModelConfig& config, PublishedKeys& to);
/// The tensors of a softmax mixer in Llama's form. config: as the layer sees
/// it.
void AddSoftmax(const ModelConfig& config, const std::string& own,
                const std::string& theirs, PublishedTensors& from,
                ImportedTensors& to);

std::vector<Importer> SoftmaxImporters();  // llama.cc
std::vector<Importer> MambaImporters();    // mamba.cc
std::vector<Importer> GraniteImporters();  // granite_hybrid.cc

}  // namespace tarn
