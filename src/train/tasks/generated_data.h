// The rows of --generator as the data of a run.
#pragma once

#include <memory>
#include <string>

#include "data/generated/generator.h"
#include "train/tasks/task_data.h"

namespace tarn::train {

/// Generated rows; as many are held out as --eval-windows says.
struct GeneratedData final : TaskData {
  explicit GeneratedData(const TrainOptions& options);

  Generator generator;
  GeneratorKind kind;
  int64_t seq_len, held_out;

  std::string Describe() const override;
  std::string TokenizerJson() const override {
    return Tokenizer::Ids(generator.vocab_size()).ToJson();
  }
  /// A hash of the generator's version: seed and sizes are options of the run,
  /// which a resumed run must repeat anyway.
  uint64_t fingerprint() const override;
};

/// Refuses options that a generated run has no use for: data, tokenizers,
/// tasks other than language models. Throws ArgumentError naming the flag.
void CheckGeneratorOptions(const TrainOptions& options);

/// Sets options.model.vocab_size for a new model; a model to start from must
/// have that of the generator. Throws ArgumentError for sizes that do not fit,
/// and where more than one held-out row in 1,000 would be expected among the
/// training rows.
std::unique_ptr<TaskData> MakeGeneratedData(TrainOptions& options,
                                            const std::string& model_dir);

}  // namespace tarn::train
