// Everything a run needs, checked, before its first step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/corpus.h"
#include "train/examples.h"
#include "train/run_folder.h"
#include "train/train_state.h"

namespace tarn::train {

/// What a language model learns from.
struct TextData {
  RecordSplit split;
  std::unique_ptr<Corpus> corpus;
};

/// What the other tasks learn from.
struct PairData {
  Tokenizer tokenizer;
  std::optional<Labels> labels;  // classes
  std::unique_ptr<Examples> training, held_out;
  int64_t training_count = 0, held_out_count = 0;  // as the files have them
  int64_t duplicates = 0, overlapping = 0;         // dropped
};

struct RunPlan {
  RunFolder folder;
  FileDescriptor lock;  // of the folder
  TrainState state;     // step 0, or that of the checkpoint
  bool from_checkpoint = false;
  std::unique_ptr<TextFiles> files;  // the held-out file first, if any
  // One of the two, as the task wants.
  std::unique_ptr<TextData> text;
  std::unique_ptr<PairData> pairs;

  const Tokenizer& tokenizer() const {
    return text ? text->corpus->tokenizer() : pairs->tokenizer;
  }
  /// The contents of labels.json; empty: the model has none.
  std::string LabelsJson() const {
    return pairs && pairs->labels ? pairs->labels->ToJson() : "";
  }
};

/// Checks options, then inputs, then the output folder, then sizes, and reads
/// the text. Throws as Train does; no model or checkpoint has changed then
/// (with --overwrite, the old run is removed as the last thing).
RunPlan PlanRun(const Given& given);

/// One line on the data of a plan, for people.
std::string DescribeData(const RunPlan& plan);

/// Bytes of memory a run will need, roughly: weights, gradients, optimiser
/// state, and the activations of one forward pass.
double MemoryEstimate(const TrainOptions& options);

}  // namespace tarn::train
