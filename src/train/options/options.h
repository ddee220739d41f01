// The options of `tarn train`: one table gives names, defaults, help, ranges
// and text forms; command line, presets and checkpoints all go through it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "data/generated/generator.h"
#include "data/text/records.h"
#include "train/options/schedule.h"

namespace tarn::train {

enum class OptimizerKind { kAdamW, kRAdam };
/// Where the arithmetic of a run is done: "cpu", "cuda".
enum class Device { kCpu, kCuda };
/// What products are computed in: "f32", or "bf16" by torch's autocast.
/// Weights, losses, sums and states are float32 either way.
enum class Precision { kF32, kBF16 };
/// The metric on held-out data: "auto", "loss", "accuracy", "error".
enum class EvalMetric { kAuto, kLoss, kAccuracy, kError };

struct TrainOptions {
  ModelConfig model;
  // What is read and written.
  std::vector<std::string> data;  // "-" is standard input
  std::string held_out;           // file, or empty: a part of the data
  std::string out;                // directory
  std::string init;               // model directory to start from, or empty
  std::string tokenizer_file;     // of kinds bpe and world; or empty
  RecordMode records = RecordMode::kAuto;
  std::string text_column, label_column;  // of CSV files; or empty
  GeneratorOptions generator;             // generated rows instead
  int64_t pool = 1;  // images: side of the blocks that become a pixel
  // ctc: names with commas between, frames, strength of augmentation.
  std::string held_out_speakers, test_speakers;
  int64_t join_frames = 0;
  double augment = 0;
  // How it is learned.
  int64_t batch = 8;         // rows of a forward pass
  int64_t accumulate = 1;    // forward passes of an update
  int64_t seq_len = 128;     // tokens predicted a row; images: set by the data
  int64_t long_every = 0;    // updates from one long row to the next; 0: never
  ScheduleOptions schedule;  // lr, warm-up, steps
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double weight_decay = 0.01;
  double clip = 1.0;  // gradient norm; 0: off
  uint64_t seed = 0;
  int64_t threads = 0;  // 0: all the process may use
  Device device = Device::kCpu;
  Precision precision = Precision::kF32;
  // What is kept and shown.
  int64_t checkpoint_every = 500;  // steps
  int64_t eval_every = 500;
  int64_t eval_windows = 4096;  // or examples; at most, evenly spaced
  EvalMetric eval_metric = EvalMetric::kAuto;
  int64_t patience = 0;         // evaluations without a better one; 0: no limit
  int64_t sample_every = 1000;  // 0: never
  bool resume = false, overwrite = false, quiet = false;
  // Each rank keeps its part of the optimiser's state. No bits depend on it but
  // those of the sums' order.
  bool shard_optimizer = false;
};

/// An option as given: its name in words of config.json ("d_model") and text.
using Given = std::vector<std::pair<std::string, std::string>>;

/// One line of the table. Options of the model come from ConfigKeys().
struct OptionInfo {
  const char* name;  // "seq_len": flag --seq-len
  const char* metavar;
  const char* help;
  bool changes_bits;  // a resumed run must have the value it began with
  std::string (*get)(const TrainOptions&);
  void (*set)(TrainOptions&, std::string_view);  // throws ArgumentError
  std::string wanted;                            // in the words of its errors
};
const std::vector<OptionInfo>& OptionTable();
/// Null when there is none.
const OptionInfo* FindOption(std::string_view name);

/// "d_model" -> "--d-model", as messages name options.
std::string FlagName(std::string_view name);

/// A named set of options. Presets are options like those of a command line.
struct Preset {
  const char* name;
  const char* help;  // without the model's size: see PresetParameters
  Given options;
};
const std::vector<Preset>& Presets();
/// Weights of a preset's model, before data decide its vocabulary and classes.
int64_t PresetParameters(const Preset& preset);

/// Options from what a command line gave: defaults, then --preset, then the
/// model of --config FILE or --init DIR, then the rest of `given`. Sizes that
/// none of these gives, or gives as 0, are derived; a model file gives all of
/// its sizes. A learned position table has a row for each token of the longest
/// training row unless max_positions is given. The vocabulary and the number of
/// classes stay open (the data decide them) except with --init. Throws
/// ArgumentError naming the flag, and FormatError or IoError for a model file
/// that cannot be used.
TrainOptions BuildOptions(const Given& given);

/// "cpu" or "cuda", "f32" or "bf16".
std::string DeviceName(Device device);
std::string PrecisionName(Precision precision);

/// The keys that say for how many positions the layers' mixers have weights.
std::vector<const char*> PositionKeys(const ModelConfig& model);

/// The options a checkpoint was written with, and `given` on top: throws
/// ArgumentError naming the first that would change the bits of the run.
TrainOptions ResumeOptions(const TrainOptions& saved, const Given& given);

/// Every option that a checkpoint keeps, as text, in table order; the model is
/// kept apart as JSON.
Given OptionTexts(const TrainOptions& options);

}  // namespace tarn::train
