// Architectures of GGUF files. A file is opened as the directory that it was
// converted from: a row turns its keys into the config.json of a published
// type, and its tensors into those of that type with what llama.cpp's converter
// changed undone; the importers of that type do the rest. The same row written
// backwards makes files that llama.cpp runs.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/files/text_files.h"
#include "importers/gguf/keys.h"
#include "importers/gguf/tensors.h"
#include "importers/importer.h"
#include "weights/gguf/gguf_writer.h"

namespace tarn {

/// A published model that becomes a file: its config.json, and the same as
/// tarn reads it.
struct GgufExport {
  const nlohmann::json& published;
  const ModelConfig& config;
};

/// One value of general.architecture. Functions throw FormatError.
struct GgufArchitecture {
  const char* name;
  /// The config.json, `model_type` first, of the type that the file was
  /// converted from. vocab_size is there already; all keys must be read or
  /// ignored.
  void (*config)(GgufKeys& from, PublishedKeys& to);
  /// The tensors. config: of that config.json, finished. Run in both
  /// directions.
  void (*tensors)(const ModelConfig& config, GgufTensors& tensors);
  /// The way back: published types that are written as this architecture, in
  /// the order in which they are tried, and the keys of `A.` (block_count ...),
  /// named whole. It refuses what llama.cpp cannot run.
  std::vector<const char*> types = {};
  void (*keys)(const GgufExport& from, GgufKeyList& to) = nullptr;
  /// Whether models of these types are of this architecture, where another has
  /// some of them; null: all are.
  bool (*fits)(const ModelConfig& config) = nullptr;
};

/// The rows of all files.
const std::vector<GgufArchitecture>& GgufArchitectures();

std::vector<GgufArchitecture> GgufLlamaRows();     // llama.cc
std::vector<GgufArchitecture> GgufMambaRows();     // mamba.cc
std::vector<GgufArchitecture> GgufQwenRows();      // qwen_hybrid.cc
std::vector<GgufArchitecture> GgufFalconRows();    // falcon_h1.cc
std::vector<GgufArchitecture> GgufGraniteRows();   // granite_hybrid.cc
std::vector<GgufArchitecture> GgufRwkvRows();      // rwkv7.cc
std::vector<GgufArchitecture> GgufNemotronRows();  // nemotron_h.cc
std::vector<GgufArchitecture> GgufLfmRows();       // lfm2.cc
std::vector<GgufArchitecture> GgufJambaRows();     // jamba.cc
std::vector<GgufArchitecture> GgufKimiRows();      // kimi_linear.cc

}  // namespace tarn
