// What a run learns from: one class per task, with one interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pairs/examples.h"
#include "data/text/corpus.h"
#include "train/options/options.h"

namespace tarn::train {

/// The data of a run, read and split. Immutable after reading, thread-safe. An
/// objective knows the kind of its task (DataOf).
class TaskData {
 public:
  virtual ~TaskData() = default;
  /// One line for people: what was read, how much of it is held out.
  virtual std::string Describe() const = 0;
  /// The contents of tokenizer.json and labels.json in the model directory;
  /// empty: the model has none.
  virtual std::string TokenizerJson() const = 0;
  virtual std::string LabelsJson() const { return ""; }
  /// A hash of everything read: a run continues only with the same data.
  virtual uint64_t fingerprint() const = 0;
};

/// The data as the kind T. Throws std::bad_cast for another kind, a mistake of
/// this program.
template <typename T>
const T& DataOf(const TaskData& data) {
  return dynamic_cast<const T&>(data);
}

/// What a language model learns from.
struct TextData final : TaskData {
  std::unique_ptr<TextFiles> files;  // the held-out file first, if any
  RecordSplit split;
  std::unique_ptr<Corpus> corpus;

  std::string Describe() const override;
  std::string TokenizerJson() const override {
    return corpus->tokenizer().ToJson();
  }
  uint64_t fingerprint() const override { return split.fingerprint; }
};

/// Examples of two fields: labels, or targets.
struct PairData final : TaskData {
  int64_t files = 0;
  uint64_t bytes = 0;  // of all files
  Tokenizer tokenizer;
  std::optional<Labels> labels;  // classes
  std::unique_ptr<Examples> training, held_out;
  int64_t training_count = 0, held_out_count = 0;  // as the files have them
  int64_t duplicates = 0, overlapping = 0;         // dropped
  uint64_t file_hash = 0;

  std::string Describe() const override;
  std::string TokenizerJson() const override { return tokenizer.ToJson(); }
  std::string LabelsJson() const override {
    return labels ? labels->ToJson() : "";
  }
  uint64_t fingerprint() const override { return file_hash; }
};

/// Every file of the run; the one held out whole is first.
std::vector<std::string> InputFiles(const TrainOptions& options);

/// The cheap checks that come before any output is made: that inputs are given
/// and can be opened. Throws ArgumentError or FormatError.
void CheckInputs(const TrainOptions& options);

/// Reads the data of options.model.task and sets what they decide in `options`:
/// vocabulary, classes, sizes of a row. model_dir: of the model the run starts
/// from, whose tokenizer and labels are taken instead; empty: a new one.
/// spool_dir: for copies of what is piped in. Throws ArgumentError, FormatError
/// or IoError.
std::unique_ptr<TaskData> ReadTaskData(TrainOptions& options,
                                       const std::string& model_dir,
                                       const std::string& spool_dir);

}  // namespace tarn::train
