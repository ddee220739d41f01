#include "importers/gguf/gguf_model.h"

#include <optional>
#include <utility>

#include "core/text.h"
#include "importers/directory.h"
#include "importers/gguf/architecture.h"
#include "importers/gguf/text_keys.h"
#include "weights/gguf/gguf_source.h"

namespace tarn {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kEmbedding = "token_embd.weight";

const GgufArchitecture& RowFor(const GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  const std::string& name = file.Text(kKey);
  std::string known;
  for (const GgufArchitecture& row : GgufArchitectures()) {
    if (name == row.name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw FormatError(file.Where(kKey), "one of " + known, Quoted(name));
}

// Files in parts lack the tensors of the others.
void RequireWhole(const GgufFile& file) {
  constexpr const char* kKey = "split.count";
  if (!file.Has(kKey)) return;
  const int64_t parts = file.Integer(kKey, 0, INT32_MAX);
  if (parts <= 1) return;
  throw FormatError(file.Where(kKey),
                    "a file that is whole (llama-gguf-split --merge makes one)",
                    StrCat("one of ", parts, " parts"));
}

// Rows of the embedding, which the key and a tokenizer may not contradict.
int64_t RowsOfEmbedding(GgufKeys& keys) {
  const std::vector<int64_t>& shape = keys.ShapeOf(kEmbedding);
  const int64_t rows = shape.size() == 2 ? shape[0] : 0;
  if (keys.Integer("vocab_size", 0, INT32_MAX, rows) != rows) {
    keys.Refuse("vocab_size", StrCat("the rows of ", kEmbedding, ", ", rows),
                "another number");
  }
  return rows;
}

std::string ConfigOf(const GgufArchitecture& row, const GgufFile& file,
                     const WeightSource& weights) {
  GgufKeys keys(file, weights);
  PublishedKeys config;
  config["model_type"] = row.name;
  config["vocab_size"] = RowsOfEmbedding(keys);
  row.config(keys, config);
  keys.RequireAllRead();
  return config.dump(2) + "\n";
}

}  // namespace

const std::vector<GgufArchitecture>& GgufArchitectures() {
  static const std::vector<GgufArchitecture> all = [] {
    std::vector<GgufArchitecture> rows;
    for (const auto& some :
         {GgufLlamaRows(), GgufMambaRows(), GgufQwenRows(), GgufFalconRows(),
          GgufGraniteRows(), GgufRwkvRows(), GgufNemotronRows(), GgufLfmRows(),
          GgufJambaRows(), GgufKimiRows()}) {
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }();
  return all;
}

GgufModel::GgufModel(std::shared_ptr<const GgufFile> file)
    : file_(std::move(file)),
      weights_(GgufWeights(file_)),
      row_(&RowFor(*file_)) {
  RequireWhole(*file_);
  config_ = ConfigOf(*row_, *file_, *weights_);
}

Result<std::shared_ptr<const GgufModel>> GgufModel::Open(
    const std::string& path, bool use_mmap) {
  Result<GgufFile> file = GgufFile::Open(path, use_mmap);
  if (!file.ok()) return file.error();
  try {
    return std::shared_ptr<const GgufModel>(new GgufModel(
        std::make_shared<const GgufFile>(std::move(file).Take())));
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

bool GgufModel::Has(const std::string& name) const {
  if (name == kConfigName) return true;
  for (const GgufText& text : GgufTexts()) {
    if (name == text.name) return text.has(*file_);
  }
  return false;
}

Result<std::string> GgufModel::Read(const std::string& name,
                                    uint64_t max_bytes) const {
  if (!Has(name)) {
    return IoError(Where(name), "keys that stand for such a file", "none");
  }
  try {
    std::string contents = config_;
    for (const GgufText& text : GgufTexts()) {
      if (name == text.name) contents = text.text(*file_);
    }
    if (contents.size() <= max_bytes) return contents;
    return FormatError(Where(name), StrCat("at most ", max_bytes, " bytes"),
                       StrCat(contents.size()));
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

Result<VocabularyKeys> GgufModel::Vocabulary() const {
  if (!HasVocabulary()) return TextFiles::Vocabulary();
  try {
    return VocabularyOf(*file_);
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

Result<std::shared_ptr<const WeightSource>> GgufModel::Weights() const {
  const Result<ModelConfig> config = ImportConfig(config_, kConfigName);
  if (!config.ok()) return InFolder(path(), config.error());
  try {
    GgufTensors tensors = GgufTensors::OfFile(weights_);
    row_->tensors(config.value(), tensors);
    tensors.RequireAllRead();
    return tensors.Published(path());
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

}  // namespace tarn
