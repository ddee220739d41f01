#include "train/tasks/task_data.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "runtime/model/files.h"
#include "train/tasks/generated_data.h"
#include "train/tasks/image_data.h"
#include "train/tasks/speech_data.h"

namespace tarn::train {
namespace {

Tokenizer ReadTokenizer(const TrainOptions& options) {
  Result<Tokenizer> tokenizer = OpenTokenizerFile(options.tokenizer_file);
  if (!tokenizer.ok()) {
    throw FormatError(StrCat("--tokenizer-file ", options.tokenizer_file, ": ",
                             tokenizer.error().what()));
  }
  if (tokenizer.value().kind() != options.model.tokenizer) {
    throw ArgumentError("--tokenizer",
                        StrCat("'", Name(tokenizer.value().kind()),
                               "', the type of ", options.tokenizer_file),
                        StrCat("'", Name(options.model.tokenizer), "'"));
  }
  return std::move(tokenizer).value();
}

// The tokenizer of the model the run starts from, or of a file.
Tokenizer GivenTokenizer(const TrainOptions& options,
                         const std::string& model_dir) {
  if (model_dir.empty()) return ReadTokenizer(options);
  Result<Tokenizer> tokenizer = Tokenizer::Open(model_dir, options.model);
  if (!tokenizer.ok()) throw FormatError(tokenizer.error().what());
  return std::move(tokenizer).value();
}

// At most `limit` examples, evenly spaced.
std::vector<Pair> Thinned(const std::vector<Pair>& pairs, int64_t limit) {
  const auto size = static_cast<int64_t>(pairs.size());
  if (size <= limit) return pairs;
  std::vector<Pair> some;
  for (int64_t i = 0; i < limit; ++i) some.push_back(pairs[i * size / limit]);
  return some;
}

// The head of every description: "2 texts, 1000 bytes: ".
std::string FilesText(int64_t files, uint64_t bytes) {
  return StrCat(files, files == 1 ? " text, " : " texts, ", bytes, " bytes: ");
}

// Both readers take tokenizer and labels from the model in `model_dir`, where
// the run starts from one; otherwise from the data, and the vocabulary with
// them.
std::unique_ptr<TaskData> ReadText(TrainOptions& options,
                                   const std::string& model_dir,
                                   const std::string& spool_dir) {
  auto data = std::make_unique<TextData>();
  data->files = std::make_unique<TextFiles>(
      InputFiles(options), spool_dir,
      options.records == RecordMode::kFasta ? TextForm::kFasta
                                            : TextForm::kPlain);
  const TextFiles& files = *data->files;
  data->split =
      SplitRecords(files, options.records, options.held_out.empty() ? 0 : 1);
  const bool given = !model_dir.empty() || !options.tokenizer_file.empty();
  Tokenizer tokenizer = given ? GivenTokenizer(options, model_dir)
                              : BuildTokenizer(files, options.model.tokenizer);
  if (given) CheckCovered(files, tokenizer);
  data->corpus =
      std::make_unique<Corpus>(files, data->split, std::move(tokenizer),
                               options.seq_len, options.eval_windows);
  if (model_dir.empty()) {
    options.model.vocab_size = data->corpus->tokenizer().vocab_size();
  }
  return data;
}

std::unique_ptr<TaskData> ReadExamples(TrainOptions& options,
                                       const std::string& model_dir,
                                       const std::string& spool_dir) {
  const bool classify = options.model.task == Task::kClassify;
  const TextFiles files(InputFiles(options), spool_dir);
  const PairSplit split =
      ReadPairs(files, options.held_out.empty() ? 0 : 1, classify,
                {options.text_column, options.label_column});
  auto data = std::make_unique<PairData>();
  data->files = files.files();
  data->bytes = files.bytes();
  data->file_hash = split.fingerprint;
  data->training_count = static_cast<int64_t>(split.training.size());
  data->held_out_count = static_cast<int64_t>(split.held_out.size());
  data->duplicates = split.duplicates;
  data->overlapping = split.overlapping;
  data->tokenizer = !model_dir.empty() || !options.tokenizer_file.empty()
                        ? GivenTokenizer(options, model_dir)
                        : BuildPairTokenizer(
                              files, split, options.model.tokenizer, !classify);
  if (classify) {
    data->labels = model_dir.empty()
                       ? Labels(files, split)
                       : Labels::Open(model_dir, options.model.n_classes);
    options.model.n_classes = data->labels->size();
  }
  const Labels* labels = classify ? &*data->labels : nullptr;
  data->training = std::make_unique<Examples>(
      files, split.training, data->tokenizer, labels, options.seq_len);
  data->held_out = std::make_unique<Examples>(
      files, Thinned(split.held_out, options.eval_windows), data->tokenizer,
      labels, options.seq_len);
  if (model_dir.empty()) {
    options.model.vocab_size = data->tokenizer.vocab_size();
  }
  return data;
}

}  // namespace

std::string TextData::Describe() const {
  return FilesText(files->files(), files->bytes()) +
         StrCat(split.records, " records (", split.duplicates,
                " duplicates dropped), ", split.held_out_records,
                " held out; training on ", corpus->training_bytes(),
                " bytes, held out ", corpus->held_out_bytes(),
                corpus->covers_held_out() ? "" : " (evaluated in part)");
}

std::string PairData::Describe() const {
  std::string line =
      FilesText(files, bytes) + StrCat(training_count, " examples to learn (",
                                       duplicates, " duplicates and ",
                                       overlapping, " held out dropped), ",
                                       held_out_count, " held out");
  if (held_out->size() < held_out_count) {
    line += StrCat(" (", held_out->size(), " evaluated)");
  }
  if (labels) line += StrCat("; ", labels->size(), " labels");
  return line;
}

std::vector<std::string> InputFiles(const TrainOptions& options) {
  std::vector<std::string> paths = options.data;
  if (!options.held_out.empty()) {
    paths.insert(paths.begin(), options.held_out);
  }
  return paths;
}

void CheckInputs(const TrainOptions& options) {
  // A folder serves as an archive does: its contents are checked on reading.
  std::error_code error;
  if (options.model.task == Task::kCtc &&
      std::filesystem::is_directory(options.data[0], error)) {
    return;
  }
  const std::vector<std::string> paths = InputFiles(options);
  if (options.model.task == Task::kImage &&
      std::count(paths.begin(), paths.end(), "-") > 0) {
    throw ArgumentError("--data", "files of images", "standard input (-)");
  }
  CheckReadable(paths);
  if (!options.tokenizer_file.empty()) CheckReadable({options.tokenizer_file});
}

std::unique_ptr<TaskData> ReadTaskData(TrainOptions& options,
                                       const std::string& model_dir,
                                       const std::string& spool_dir) {
  switch (options.model.task) {
    case Task::kDerived:
    case Task::kLm:
      if (options.generator.kind != GeneratorKind::kNone) {
        return MakeGeneratedData(options, model_dir);
      }
      return ReadText(options, model_dir, spool_dir);
    case Task::kClassify:
    case Task::kSeq2seq:
      return ReadExamples(options, model_dir, spool_dir);
    case Task::kImage:
      return ReadImageData(options, model_dir);
    case Task::kCtc:
      return ReadSpeech(options);
  }
  throw ArgumentError("task", "a task of this version", "another");
}

}  // namespace tarn::train
