#include "train/options/options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "config/mixer_spec.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/file.h"
#include "train/run/metrics.h"
#include "train/tasks/generated_data.h"

namespace tarn::train {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;
// Numbers in a frame of speech by default.
constexpr int64_t kMelBands = 40;

// The processors that this process may use, shared with the other ranks of this
// machine: torchrun says how many there are.
int64_t ThreadsOfThisRank() {
  int64_t ranks = 1;
  if (const char* here = std::getenv("LOCAL_WORLD_SIZE")) {
    ranks = std::max(1, std::atoi(here));
  }
  return std::max<int64_t>(1, DefaultThreads() / ranks);
}

bool IsModelKey(std::string_view name) {
  const auto& keys = ConfigKeys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const ConfigKey& key) { return name == key.name; });
}

const std::string* Find(const Given& given, std::string_view name) {
  // The last one counts, as usual on command lines.
  for (auto it = given.rbegin(); it != given.rend(); ++it) {
    if (it->first == name) return &it->second;
  }
  return nullptr;
}

std::string Absolute(const std::string& path) {
  if (path.empty() || path == "-") return path;
  return std::filesystem::absolute(path).lexically_normal().string();
}

ModelConfig ReadConfig(const std::string& path) {
  // A missing file that the user named is bad data, not a full disk.
  Result<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) throw FormatError(text.error().what());
  Result<ModelConfig> config = ConfigFromJson(text.value());
  if (!config.ok()) throw FormatError(path + ": " + config.error().what());
  return config.value();
}

// Options with a place of their own; false when `name` is not one of them.
bool SetSpecial(TrainOptions& options, const std::string& name,
                const std::string& value) {
  if (name == "data") {
    options.data.push_back(Absolute(value));
  } else if (name == "held_out") {
    options.held_out = Absolute(value);
  } else if (name == "out") {
    options.out = value;
  } else if (name == "init") {
    options.init = Absolute(value);
  } else if (name == "resume") {
    options.resume = true;
  } else if (name == "overwrite") {
    options.overwrite = true;
  } else if (name == "quiet") {
    options.quiet = true;
  } else if (name == "shard_optimizer") {
    options.shard_optimizer = true;
  } else {
    // The last three are the business of who starts the processes.
    return name == "config" || name == "preset" || name == "ranks" ||
           name == "backend" || name == "timeout" ||
           name == "sequence_parallel";
  }
  return true;
}

void Set(TrainOptions& options, const std::string& name,
         const std::string& value) {
  if (SetSpecial(options, name, value)) return;
  if (const OptionInfo* option = FindOption(name)) {
    option->set(options, value);
    return;
  }
  try {
    SetConfigField(options.model, name, value);
  } catch (const ArgumentError& error) {
    throw ArgumentError(FlagName(name), error.wanted(), error.given());
  }
}

const Preset* FindPreset(const std::string& name) {
  std::string names;
  for (const Preset& preset : Presets()) {
    if (name == preset.name) return &preset;
    names += (names.empty() ? "" : "|") + std::string(preset.name);
  }
  throw ArgumentError("--preset", names, "\"" + name + "\"");
}

// The preset's options, then those given: a flag overrides a preset. What it
// overrides is left out, since a resumed run is held to every value given.
Given Expand(const Given& given) {
  const std::string* preset = Find(given, "preset");
  Given all = preset == nullptr ? Given() : FindPreset(*preset)->options;
  std::erase_if(all, [&](const auto& option) {
    return Find(given, option.first) != nullptr;
  });
  all.insert(all.end(), given.begin(), given.end());
  return all;
}

// The flags of the model that are among `given`, on top of `model`: the last
// one of a name counts. Values that depend on the kind of model, except sizes,
// are derived again where a flag changes the kind. A kind of attention and a
// pattern of layers say the same thing: a flag for one replaces the earlier
// value of the other.
void SetModelFlags(TrainOptions& options, const Given& given) {
  const std::string* attention = Find(given, "attention");
  const std::string* layers = Find(given, "layers");
  ModelConfig& model = options.model;
  const ModelConfig below = model;
  if (attention != nullptr) model.layers.clear();
  for (const auto& [name, value] : given) {
    if (IsModelKey(name)) Set(options, name, value);
  }
  if (attention != nullptr && layers != nullptr &&
      *attention != Name(model.layers.front().attention)) {
    throw ArgumentError("--attention",
                        StrCat("'", Name(model.layers.front().attention),
                               "', the first of --layers, or no --attention"),
                        StrCat("'", *attention, "'"));
  }
  if (model.arch != below.arch) {
    if (Find(given, "task") == nullptr) model.task = Task::kDerived;
    if (Find(given, "n_decoder_layers") == nullptr) model.n_decoder_layers = 0;
  }
  const bool same_mixers =
      model.attention == below.attention && model.layers == below.layers;
  if (!same_mixers && Find(given, "cross_attention") == nullptr) {
    model.cross_attention = kDerivedMixer;
  }
}

// A model file ranks below the flags and gives every size it holds: no size is
// derived again because a flag changed another, only where its own flag is 0.
// Options of a preset rank below the file, so that only those that say how to
// train are left of them.
const Given& ModelFlags(const Given& given, const Given& expanded) {
  const bool file =
      Find(expanded, "config") != nullptr || Find(expanded, "init") != nullptr;
  return file ? given : expanded;
}

// With --init the model is fixed; only what acts in training may change.
void CheckInitKeeps(const ModelConfig& was, const TrainOptions& now) {
  ModelConfig same = now.model;
  CopyTrainingKeys(was, same);
  if (same == was) return;
  throw ArgumentError("--init", "no model flags except dropout",
                      "flags that change the model in " + now.init);
}

// Classes are counted in the data, which also give the size of images; until
// then both are as small as possible.
void OpenClasses(ModelConfig& model) {
  if (model.task == Task::kImage && model.image_height == 0) {
    model.image_height = model.image_width = model.image_channels = 1;
  }
  const bool classify =
      model.task == Task::kClassify ||
      (model.task == Task::kDerived && model.arch == Arch::kEncoder);
  const bool ctc = model.task == Task::kCtc;
  if (!classify && !ctc) model.n_classes = 0;
  if ((classify || ctc) && model.n_classes == 0) model.n_classes = 2;
  if (ctc && model.input_dim == 0) model.input_dim = kMelBands;
}

// Tokens in the longest row of training; a target is read with the line end
// before it.
int64_t LongestRow(const TrainOptions& options) {
  return options.seq_len * (options.long_every > 0 ? options.batch : 1) +
         (options.model.arch == Arch::kSeq2seq ? 1 : 0);
}

// Tables with a row for each position reach as far as the longest row.
void ExtendPositions(TrainOptions& options, const Given& given) {
  ModelConfig& model = options.model;
  const int64_t longest = LongestRow(options);
  if (Find(given, "max_positions") == nullptr) model.max_positions = longest;
  for (const char* key : PositionKeys(model)) {
    if (Find(given, key) == nullptr) SetKey(model, key, longest);
  }
}

// Generated tokens are numbers, not text: the tokenizer follows.
void SetGeneratedTokenizer(TrainOptions& options, const Given& given) {
  if (options.generator.kind == GeneratorKind::kNone) return;
  if (Find(given, "tokenizer") != nullptr) return;
  options.model.tokenizer = TokenizerKind::kIds;
}

// Recordings are one set, split by speaker.
void CheckSpeechOptions(const TrainOptions& options) {
  if (options.model.task == Task::kCtc) {
    if (options.data.size() > 1 ||
        (!options.data.empty() && options.data[0] == "-")) {
      throw ArgumentError("--data", "one folder or archive for task 'ctc'",
                          options.data.size() > 1 ? "more" : "-");
    }
    if (!options.held_out.empty()) {
      throw ArgumentError("--held-out", "--held-out-speakers for task 'ctc'",
                          options.held_out);
    }
    return;
  }
  const auto refuse = [](const char* flag) {
    throw ArgumentError(flag, "task 'ctc'", "another task");
  };
  if (!options.held_out_speakers.empty()) refuse("--held-out-speakers");
  if (!options.test_speakers.empty()) refuse("--test-speakers");
  if (options.join_frames != 0) refuse("--join-frames");
  if (options.augment != 0) refuse("--augment");
}

// Columns are those of labels and of targets.
void CheckColumns(const TrainOptions& options) {
  const Task task = options.model.task;
  if (task == Task::kClassify || task == Task::kSeq2seq) return;
  const auto refuse = [&](const char* flag, const std::string& name) {
    if (name.empty()) return;
    throw ArgumentError(flag,
                        "a task with labels or targets (--arch encoder, --task "
                        "classify or --arch seq2seq)",
                        StrCat("task '", Name(task), "'"));
  };
  refuse("--text-column", options.text_column);
  refuse("--label-column", options.label_column);
}

// Options for running text alone are rejected where examples are read.
void CheckTaskOptions(const TrainOptions& options) {
  MetricOf(options);
  CheckColumns(options);
  CheckGeneratorOptions(options);
  if (options.pool != 1 && options.model.task != Task::kImage) {
    throw ArgumentError("--pool", "1 unless the task is 'image'",
                        StrCat(options.pool));
  }
  CheckSpeechOptions(options);
  if (options.model.task == Task::kLm) return;
  const std::string task = StrCat(" for task '", Name(options.model.task), "'");
  if (options.long_every != 0) {
    throw ArgumentError("--long-every", "0" + task, StrCat(options.long_every));
  }
  if (options.records != RecordMode::kAuto) {
    throw ArgumentError("--records", "auto" + task, "another");
  }
}

// A run that cannot stop early before its last step was asked for something
// else.
void CheckPatience(const TrainOptions& options) {
  const int64_t patience = options.patience;
  if (patience == 0) return;
  const ScheduleOptions& schedule = options.schedule;
  const int64_t most = (schedule.steps - 1) / options.eval_every - 1;
  if (patience > most) {
    throw ArgumentError(
        "--patience",
        StrCat(most > 0 ? StrCat("at most ", most) : "0", " with --eval-every ",
               options.eval_every, " and --steps ", schedule.steps,
               ", or a smaller --eval-every"),
        StrCat(patience));
  }
  if (schedule.schedule == Schedule::kPlateau &&
      patience <= schedule.decay_patience) {
    throw ArgumentError(
        "--patience",
        StrCat("more than --decay-patience ", schedule.decay_patience,
               ", so that the rate falls before the run stops"),
        StrCat(patience));
  }
}

// Images are as long as their data say, and their tables follow.
void CheckPositions(const TrainOptions& options) {
  const ModelConfig& model = options.model;
  if (model.task == Task::kImage || !model.HasAttention()) return;
  const int64_t longest = LongestRow(options);
  const auto check = [&](const char* flag, int64_t rows) {
    if (rows >= longest) return;
    throw ArgumentError(
        flag, StrCat("at least ", longest, ", the tokens of the longest row"),
        StrCat(rows));
  };
  if (model.positions == Positions::kLearned) {
    check("--max-positions", model.max_positions);
  }
  for (const char* key : PositionKeys(model)) {
    check(FlagName(key).c_str(), KeyOf<int64_t>(model, key));
  }
}

void Check(const TrainOptions& options) {
  if (options.out.empty()) {
    throw ArgumentError("--out", "a directory", "nothing");
  }
  if (options.resume && options.overwrite) {
    throw ArgumentError("--resume", "--resume or --overwrite", "both");
  }
  if (std::count(options.data.begin(), options.data.end(), "-") +
          (options.held_out == "-" ? 1 : 0) >
      1) {
    throw ArgumentError("--data", "standard input (-) once", "twice");
  }
  const TokenizerKind kind = options.model.tokenizer;
  const bool from_file = kind == TokenizerKind::kBpe ||
                         kind == TokenizerKind::kUnigram ||
                         kind == TokenizerKind::kWorld;
  if (from_file && options.tokenizer_file.empty() && options.init.empty()) {
    throw ArgumentError("--tokenizer-file",
                        StrCat("the file of a '", Name(kind), "' tokenizer"),
                        "nothing");
  }
  if (!from_file && !options.tokenizer_file.empty()) {
    throw ArgumentError("--tokenizer",
                        "'bpe', 'unigram' or 'world' with --tokenizer-file",
                        StrCat("'", Name(kind), "'"));
  }
  if (options.schedule.schedule == Schedule::kStep &&
      options.schedule.decay_at.empty()) {
    throw ArgumentError("--decay-at", "the steps at which the rate falls",
                        "nothing");
  }
  CheckPatience(options);
  CheckTaskOptions(options);
  CheckPositions(options);
}

// Takes from the model of a run what the data decided.
void TakeFromData(const ModelConfig& saved, const Given& given,
                  ModelConfig& model) {
  model.vocab_size = saved.vocab_size;
  model.n_classes = saved.n_classes;
  if (saved.task != Task::kImage) return;
  model.image_height = saved.image_height;
  model.image_width = saved.image_width;
  model.image_channels = saved.image_channels;
  if (Find(given, "max_positions") == nullptr) {
    model.max_positions = saved.max_positions;
  }
  for (const char* key : PositionKeys(saved)) {
    if (Find(given, key) == nullptr) {
      SetKey(model, key, KeyOf<int64_t>(saved, key));
    }
  }
}

// Whether flags on top of `model` give the model of the run.
bool GivesModel(const ModelConfig& saved, const ModelConfig& model,
                const Given& flags) {
  TrainOptions now;
  now.model = model;
  SetModelFlags(now, flags);
  try {
    FinishConfig(now.model);
  } catch (const ArgumentError&) {
    return false;
  }
  return now.model == saved;
}

// A resumed run may repeat the options of its model but not change them. They
// are compared finished: unused keys make no difference.
void CheckSameModel(const ModelConfig& saved, const Given& given,
                    const Given& flags) {
  ModelConfig model = saved;
  const std::string* config = Find(given, "config");
  if (config != nullptr) {
    model = ReadConfig(*config);
    TakeFromData(saved, flags, model);
  }
  if (GivesModel(saved, model, flags)) return;
  for (const auto& [name, value] : flags) {
    if (!IsModelKey(name) || GivesModel(saved, saved, {{name, value}})) {
      continue;
    }
    throw ArgumentError(FlagName(name), "the value the run began with", value);
  }
  throw ArgumentError("--config", "the model the run began with", "another");
}

}  // namespace

std::vector<const char*> PositionKeys(const ModelConfig& model) {
  std::vector<const char*> keys;
  for (const AttentionKind kind : MixersOf(model)) {
    const char* key = Spec(kind).positions_key;
    if (key != nullptr) keys.push_back(key);
  }
  return keys;
}

TrainOptions BuildOptions(const Given& given) {
  const Given all = Expand(given);
  const std::string* config = Find(all, "config");
  const std::string* init = Find(all, "init");
  if (config != nullptr && init != nullptr) {
    throw ArgumentError("--config", "--config or --init", "both");
  }
  TrainOptions options;
  const Given& flags = ModelFlags(given, all);
  if (config != nullptr) options.model = ReadConfig(*config);
  if (init != nullptr) options.model = ReadConfig(*init + "/config.json");
  const ModelConfig was = options.model;
  for (const auto& [name, value] : all) {
    if (!IsModelKey(name)) Set(options, name, value);
  }
  SetModelFlags(options, flags);
  if (config == nullptr && init == nullptr) {
    ExtendPositions(options, all);
    SetGeneratedTokenizer(options, all);
  }
  // The classes are opened for checks only: the data decide them and the
  // vocabulary.
  OpenClasses(options.model);
  FinishConfig(options.model);
  if (init != nullptr) CheckInitKeeps(was, options);
  const std::string* seq_len = Find(all, "seq_len");
  if (options.model.task == Task::kImage && seq_len != nullptr) {
    throw ArgumentError("--seq-len", "none for images, whose size the data say",
                        *seq_len);
  }
  if (options.threads == 0) options.threads = ThreadsOfThisRank();
  Check(options);
  return options;
}

int64_t PresetParameters(const Preset& preset) {
  Given given = {{"preset", preset.name}, {"out", "-"}};
  if (Find(preset.options, "generator") == nullptr) {
    given.emplace_back("data", "FILE");
  }
  return ParameterCount(BuildOptions(given).model);
}

// Given options go on top of the saved ones; of one that is given twice the
// last counts, as at the beginning of a run.
TrainOptions ResumeOptions(const TrainOptions& saved, const Given& given) {
  TrainOptions options = saved;
  options.data.clear();
  const Given all = Expand(given);
  for (const auto& [name, value] : all) Set(options, name, value);
  if (options.threads == 0) options.threads = saved.threads;
  for (const auto& [name, value] : all) {
    const OptionInfo* info = FindOption(name);
    if (info == nullptr) continue;
    // More steps continue the same run unless the rates depend on their number.
    const bool frozen =
        info->changes_bits &&
        !(name == "steps" && saved.schedule.schedule != Schedule::kCosine &&
          options.schedule.steps >= saved.schedule.steps);
    if (frozen && info->get(options) != info->get(saved)) {
      throw ArgumentError(FlagName(name),
                          info->get(saved) + " as the run began with",
                          info->get(options));
    }
  }
  CheckSameModel(saved.model, all, ModelFlags(given, all));
  if (Find(all, "init") != nullptr && options.init != saved.init) {
    throw ArgumentError("--init",
                        saved.init.empty() ? "none, as the run began"
                                           : saved.init + " as the run began",
                        options.init);
  }
  if (options.data.empty()) options.data = saved.data;
  options.model = saved.model;
  options.resume = true;
  Check(options);
  return options;
}

}  // namespace tarn::train
