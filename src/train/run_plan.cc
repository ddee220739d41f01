#include "train/run_plan.h"

#include <unistd.h>

#include "core/error.h"
#include "train/folder.h"

namespace tarn::train {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

int64_t Parameters(const ModelConfig& config) {
  int64_t count = 0;
  for (const auto& [name, shape] : WeightShapes(config)) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    count += elements;
  }
  return count;
}

void CheckMemory(const TrainOptions& options) {
  const double machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double need = MemoryEstimate(options);
  if (need <= machine) return;
  throw ArgumentError(
      "sizes (--batch, --seq-len, --d-model, --n-layers)",
      StrCat("at most ", machine / kGiB, " GiB, this machine's memory"),
      StrCat("about ", need / kGiB, " GiB"));
}

std::string OutOf(const Given& given) {
  std::string out;
  for (const auto& [name, value] : given) {
    if (name == "out") out = value;
  }
  if (out.empty()) throw ArgumentError("--out", "a directory", "nothing");
  return out;
}

bool Has(const Given& given, const char* wanted) {
  for (const auto& [name, value] : given) {
    if (name == wanted) return true;
  }
  return false;
}

// Resuming a folder that holds nothing yet begins the run: a process may have
// been killed before its first checkpoint.
TrainState StartState(const RunFolder& folder, const Given& given,
                      bool* from_checkpoint) {
  TrainState state;
  *from_checkpoint = Has(given, "resume") && HoldsCheckpoint(folder);
  if (*from_checkpoint) {
    RecoverFolder(folder.checkpoint());
    RecoverFolder(folder.best());
    state = ReadState(folder);
    state.options = ResumeOptions(state.options, given);
    state.options.out = folder.path;
    return state;
  }
  state.options = BuildOptions(given);
  if (state.options.data.empty()) {
    throw ArgumentError(
        "--data", "one text or more",
        state.options.resume
            ? "nothing, and " + folder.path + " holds no checkpoint to resume"
            : "nothing");
  }
  if (HoldsRun(folder) && !state.options.resume && !state.options.overwrite) {
    throw ArgumentError("--out",
                        "a folder without a run, --resume or --overwrite",
                        folder.path + ", which holds a run");
  }
  return state;
}

// Every file of the run; the one held out whole stands first.
std::vector<std::string> InputFiles(const TrainOptions& options) {
  std::vector<std::string> paths = options.data;
  if (!options.held_out.empty()) {
    paths.insert(paths.begin(), options.held_out);
  }
  return paths;
}

Tokenizer ReadTokenizer(const TrainOptions& options) {
  Result<Tokenizer> tokenizer = Tokenizer::OpenFile(options.tokenizer_file);
  if (!tokenizer.ok()) {
    throw FormatError(StrCat("--tokenizer-file ", options.tokenizer_file, ": ",
                             tokenizer.error().what()));
  }
  if (tokenizer.value().kind() != options.model.tokenizer) {
    throw ArgumentError("--tokenizer",
                        StrCat("'", Name(tokenizer.value().kind()),
                               "', the kind of ", options.tokenizer_file),
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

// Both readers take tokenizer and labels from the model in `model_dir`, where
// the run starts from one; otherwise from the data, and the vocabulary with
// them. They return the fingerprint of the data.
uint64_t ReadText(RunPlan& plan, const std::string& model_dir) {
  TrainOptions& options = plan.state.options;
  plan.text = std::make_unique<TextData>();
  plan.text->split = SplitRecords(*plan.files, options.records,
                                  options.held_out.empty() ? 0 : 1);
  const bool given = !model_dir.empty() || !options.tokenizer_file.empty();
  Tokenizer tokenizer =
      given ? GivenTokenizer(options, model_dir)
            : BuildTokenizer(*plan.files, options.model.tokenizer);
  if (given) CheckCovered(*plan.files, tokenizer);
  plan.text->corpus = std::make_unique<Corpus>(
      *plan.files, plan.text->split, std::move(tokenizer), options.seq_len,
      options.eval_windows);
  return plan.text->split.fingerprint;
}

uint64_t ReadExamples(RunPlan& plan, const std::string& model_dir) {
  TrainOptions& options = plan.state.options;
  const bool classify = options.model.task == Task::kClassify;
  const TextFiles& files = *plan.files;
  const PairSplit split =
      ReadPairs(files, options.held_out.empty() ? 0 : 1, classify);
  plan.pairs = std::make_unique<PairData>();
  PairData& data = *plan.pairs;
  data.training_count = static_cast<int64_t>(split.training.size());
  data.held_out_count = static_cast<int64_t>(split.held_out.size());
  data.duplicates = split.duplicates;
  data.overlapping = split.overlapping;
  data.tokenizer = !model_dir.empty() || !options.tokenizer_file.empty()
                       ? GivenTokenizer(options, model_dir)
                       : BuildPairTokenizer(files, split,
                                            options.model.tokenizer, !classify);
  if (classify) {
    data.labels = model_dir.empty()
                      ? Labels(files, split)
                      : Labels::Open(model_dir, options.model.n_classes);
    options.model.n_classes = data.labels->size();
  }
  const Labels* labels = classify ? &*data.labels : nullptr;
  data.training = std::make_unique<Examples>(
      files, split.training, data.tokenizer, labels, options.seq_len);
  data.held_out = std::make_unique<Examples>(
      files, Thinned(split.held_out, options.eval_windows), data.tokenizer,
      labels, options.seq_len);
  return split.fingerprint;
}

}  // namespace

double MemoryEstimate(const TrainOptions& options) {
  const ModelConfig& model = options.model;
  const double rows =
      static_cast<double>(options.batch) * static_cast<double>(options.seq_len);
  const double heads = static_cast<double>(model.n_heads);
  const double width = static_cast<double>(model.d_model);
  // Floats a token that autograd keeps: norms, projections, both halves of
  // the feed-forward part; logits, their softmax and its gradient.
  double layer = 8 * width +
                 3 * heads * static_cast<double>(model.d_key + model.d_value) +
                 3 * static_cast<double>(model.d_ff);
  if (model.attention == AttentionKind::kFull) {
    layer += 3 * heads * static_cast<double>(options.seq_len);
  }
  const double layers =
      static_cast<double>(model.n_layers + model.n_decoder_layers);
  const double token =
      layers * layer + 3 * static_cast<double>(model.vocab_size);
  // Weights, gradients and two running means.
  return 4 * (4 * static_cast<double>(Parameters(model)) + rows * token);
}

RunPlan PlanRun(const Given& given) {
  RunPlan plan;
  plan.folder.path = OutOf(given);
  plan.state = StartState(plan.folder, given, &plan.from_checkpoint);
  TrainOptions& options = plan.state.options;
  CheckMemory(options);
  CheckReadable(InputFiles(options));
  if (!options.tokenizer_file.empty()) CheckReadable({options.tokenizer_file});
  MakeWritableFolder(plan.folder.path);
  plan.lock = LockRun(plan.folder);
  RemoveLeftovers(plan.folder.path);
  const int64_t weights = 4 * Parameters(options.model);
  // Old and new checkpoint (weights and two means), last and best model.
  CheckFreeSpace(plan.folder.path, static_cast<uint64_t>(10 * weights));

  // From here on it takes time: everything cheap has been checked.
  plan.files =
      std::make_unique<TextFiles>(InputFiles(options), plan.folder.path);
  const std::string model_dir =
      plan.from_checkpoint ? plan.folder.path : options.init;
  const uint64_t fingerprint = options.model.task == Task::kLm
                                   ? ReadText(plan, model_dir)
                                   : ReadExamples(plan, model_dir);
  if (plan.from_checkpoint && fingerprint != plan.state.fingerprint) {
    throw FormatError("data", "the text the run began with", "another text");
  }
  plan.state.fingerprint = fingerprint;
  if (model_dir.empty()) {
    options.model.vocab_size = plan.tokenizer().vocab_size();
    FinishConfig(options.model);
    CheckMemory(options);
  }
  if (!plan.from_checkpoint) RemoveRun(plan.folder);
  return plan;
}

std::string DescribeData(const RunPlan& plan) {
  const TextFiles& files = *plan.files;
  std::string line =
      StrCat(files.files(), files.files() == 1 ? " text, " : " texts, ",
             files.bytes(), " bytes: ");
  if (plan.text) {
    const RecordSplit& split = plan.text->split;
    const Corpus& corpus = *plan.text->corpus;
    return line +
           StrCat(split.records, " records (", split.duplicates,
                  " duplicates dropped), ", split.held_out_records,
                  " held out; training on ", corpus.training_bytes(),
                  " bytes, held out ", corpus.held_out_bytes(),
                  corpus.covers_held_out() ? "" : " (looked at in part)");
  }
  const PairData& data = *plan.pairs;
  line += StrCat(data.training_count, " examples to learn (", data.duplicates,
                 " duplicates and ", data.overlapping, " held out dropped), ",
                 data.held_out_count, " held out");
  if (data.held_out->size() < data.held_out_count) {
    line += StrCat(" (", data.held_out->size(), " looked at)");
  }
  if (data.labels) line += StrCat("; ", data.labels->size(), " labels");
  return line;
}

}  // namespace tarn::train
