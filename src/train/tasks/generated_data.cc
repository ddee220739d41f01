#include "train/tasks/generated_data.h"

#include "core/error.h"
#include "core/hash.h"

namespace tarn::train {
namespace {

// Different numbers for the same seed and step need a new version.
constexpr uint64_t kGeneratorVersion = 1;
constexpr double kMostRepeated = 1e-3;

void CheckVariety(const TrainOptions& options, const Generator& generator) {
  const double rows = static_cast<double>(options.schedule.steps) *
                      static_cast<double>(options.accumulate) *
                      static_cast<double>(options.batch);
  const double share = generator.RepeatedShare(rows);
  if (share <= kMostRepeated) return;
  throw ArgumentError(
      "--symbols, --pairs, --seq-len",
      "rows so many that at most 0.1 % of those held out occur in training",
      StrCat("up to ", 100 * share, " %"));
}

void Want(bool holds, const char* flag, const std::string& wanted,
          const std::string& given) {
  if (!holds) throw ArgumentError(flag, wanted + " with --generator", given);
}

}  // namespace

GeneratedData::GeneratedData(const TrainOptions& options)
    : generator(options.generator, options.seq_len),
      kind(options.generator.kind),
      seq_len(options.seq_len),
      held_out(options.eval_windows) {}

std::string GeneratedData::Describe() const {
  return StrCat("rows of ", seq_len, " tokens made by '", Name(kind), "', ",
                generator.vocab_size(), " token ids; ", held_out,
                " others held out");
}

uint64_t GeneratedData::fingerprint() const { return Mix(kGeneratorVersion); }

void CheckGeneratorOptions(const TrainOptions& options) {
  const bool ids = options.model.tokenizer == TokenizerKind::kIds;
  if (options.generator.kind == GeneratorKind::kNone) {
    if (!ids) return;
    throw ArgumentError("--generator", "a generator for --tokenizer ids",
                        "none");
  }
  Want(options.data.empty(), "--data", "nothing",
       options.data.empty() ? "" : options.data[0]);
  Want(options.held_out.empty(), "--held-out", "nothing", options.held_out);
  Want(options.model.task == Task::kLm, "task", "lm", Name(options.model.task));
  Want(options.records == RecordMode::kAuto, "--records", "auto", "another");
  Want(options.long_every == 0, "--long-every", "0",
       StrCat(options.long_every));
  Want(ids, "--tokenizer", "'ids'",
       StrCat("'", Name(options.model.tokenizer), "'"));
  Generator(options.generator, options.seq_len);  // checks its sizes
}

std::unique_ptr<TaskData> MakeGeneratedData(TrainOptions& options,
                                            const std::string& model_dir) {
  auto data = std::make_unique<GeneratedData>(options);
  CheckVariety(options, data->generator);
  if (model_dir.empty()) {
    options.model.vocab_size = data->generator.vocab_size();
  } else if (options.model.vocab_size != data->generator.vocab_size()) {
    throw ArgumentError("--symbols",
                        StrCat("the ", options.model.vocab_size,
                               " token ids of the model in ", model_dir),
                        StrCat(data->generator.vocab_size()));
  }
  return data;
}

}  // namespace tarn::train
