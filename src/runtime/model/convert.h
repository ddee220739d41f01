// Model directories written from others: a published one as tarn's own, and
// back. Weights pass through a few MiB of memory; files appear by rename, the
// configuration last, so that a directory with one is complete. A conversion
// that was interrupted or killed continues where it stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "importers/model_files.h"
#include "weights/weight_file.h"
#include "weights/weight_source.h"

namespace tarn {

struct ConvertOptions {
  StoredWeights stored = StoredWeights::kAsTheyAre;
  /// Whether a model that is in the folder may be replaced.
  bool overwrite = false;
  /// As WeightFileOptions has it; the first call says where a conversion that
  /// was interrupted continues.
  std::function<bool(uint64_t done, uint64_t total)> progress = nullptr;
  /// Names the build: one continues what itself began.
  std::string build;
  /// Weights are put on the disk, and a conversion continues, in steps of this
  /// many bytes.
  uint64_t step = 16 << 20;
};

struct Converted {
  std::string model_type;                        // of the published side
  uint64_t tensors = 0, numbers = 0, bytes = 0;  // of the weights written
  std::vector<std::string> files;                // names, config.json last
  /// A file that was left out, and why; empty: none.
  std::string left_out;
};

/// Writes DIR/config.json, model.safetensors, the tokenizer's files, the chat
/// template and generation_config.json of the published model `from`, under
/// tarn's names. Weights are those that OpenNamedWeights gives, bit for bit
/// unless `stored` rounds them. Throws FormatError for what cannot be imported
/// or is tarn's own, files that `from` lacks included, ArgumentError for a
/// folder `dir` that holds files and may not be overwritten or is `from`,
/// IoError, also where another conversion writes into `dir`, and kInterrupted.
/// A failure leaves `dir` as it was, but for two partial files after
/// kInterrupted: the same call with the same files in `from` continues in them.
Converted ImportModel(const ModelPath& from, const std::string& dir,
                      const ConvertOptions& options);

/// Weights to write, and a text that says what they are made by.
struct ChangedWeights {
  std::shared_ptr<const WeightSource> weights;
  std::string key;
};
using ChangeWeights = std::function<ChangedWeights(
    std::shared_ptr<const WeightSource> weights, const ModelConfig& config)>;

/// The same from any model, tarn's own or published, with what `change` makes
/// of its weights.
Converted CopyModel(const ModelPath& from, const std::string& dir,
                    const ConvertOptions& options, const ChangeWeights& change);

/// The way back: the model `from`, tarn's own or published, as a directory that
/// transformers opens. type: the published type; empty: the first that has the
/// configuration (importers/publish.h). One published tensor is in memory at a
/// time. Throws as ImportModel, and what Publish returns.
Converted ExportModel(const ModelPath& from, const std::string& dir,
                      const std::string& type, const ConvertOptions& options);

/// The types that ExportModel writes.
std::vector<std::string> ExportedModelTypes();

/// The model `from` as one GGUF file, which llama.cpp runs. numbers: how
/// matrices are stored, a word of ExportedNumbers. Throws as ExportModel; a
/// file that is there counts as a model, and an interrupted call leaves one
/// partial file. options.stored is not read.
Converted ExportGguf(const ModelPath& from, const std::string& path,
                     const std::string& numbers, const ConvertOptions& options);

/// "stored", "f32", ...
std::vector<std::string> ExportedNumbers();

}  // namespace tarn
