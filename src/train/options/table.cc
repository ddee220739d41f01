#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "train/options/options.h"

namespace tarn::train {
namespace {

// Sizes beyond this are mistakes; products of three stay below 2^63.
constexpr int64_t kMaxCount = int64_t{1} << 20;
constexpr int64_t kMaxSteps = int64_t{1} << 40;

template <typename T>
bool Parse(std::string_view text, T& value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

[[noreturn]] void Refuse(const char* name, const std::string& wanted,
                         std::string_view given) {
  throw ArgumentError(FlagName(name), wanted, "\"" + std::string(given) + "\"");
}

std::string CountWanted(int64_t least, int64_t most) {
  return StrCat("a whole number from ", least, " to ", most);
}

int64_t Count(const char* name, std::string_view text, int64_t least,
              int64_t most) {
  int64_t value = 0;
  if (!Parse(text, value) || value < least || value > most) {
    Refuse(name, CountWanted(least, most), text);
  }
  return value;
}

std::string RealWanted(double least, double most) {
  return StrCat("a number from ", least, " to ", most);
}

double Real(const char* name, std::string_view text, double least,
            double most) {
  double value = 0;
  // from_chars reads "nan" and "inf": the comparison refuses both.
  if (!Parse(text, value) || !(value >= least && value <= most)) {
    Refuse(name, RealWanted(least, most), text);
  }
  return value;
}

// The shortest text that reads back as the same double.
std::string Text(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
std::string Text(int64_t value) { return std::to_string(value); }

std::vector<std::string> SplitAt(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t end; !text.empty();) {
    end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Index of `text` in a list of words "a|b|c", the order of the enum.
int Word(const char* name, const char* words, std::string_view text) {
  const std::vector<std::string> all = SplitAt(words, '|');
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == text) return static_cast<int>(i);
  }
  Refuse(name, words, text);
}

std::string WordAt(const char* words, int index) {
  return SplitAt(words, '|')[index];
}

constexpr char kSeedWanted[] = "a whole number from 0 to 2^64 - 1";
constexpr char kSchedules[] = "constant|cosine|step|plateau";
constexpr char kOptimizers[] = "adamw|radam";
constexpr char kRecordModes[] = "auto|fortune|block|fasta";
constexpr char kGenerators[] = "none|copy|mqar";
constexpr char kSwitch[] = "false|true";
constexpr char kMetrics[] = "auto|loss|accuracy|error";
constexpr char kDevices[] = "cpu|cuda";
constexpr char kPrecisions[] = "f32|bf16";

}  // namespace

// Entries are terse on purpose: a macro gives each its getter and setter.
#define TARN_COUNT(name, field, least, most, bits, help)              \
  OptionInfo {                                                        \
    name, "N", help, bits,                                            \
        [](const TrainOptions& o) { return Text(int64_t{o.field}); }, \
        [](TrainOptions& o, std::string_view text) {                  \
          o.field = Count(name, text, least, most);                   \
        },                                                            \
        CountWanted(least, most)                                      \
  }
#define TARN_REAL(name, field, least, most, help)            \
  OptionInfo {                                               \
    name, "X", help, true,                                   \
        [](const TrainOptions& o) { return Text(o.field); }, \
        [](TrainOptions& o, std::string_view text) {         \
          o.field = Real(name, text, least, most);           \
        },                                                   \
        RealWanted(least, most)                              \
  }
#define TARN_NAMES(name, field, help)                                   \
  OptionInfo {                                                          \
    name, "A[,B...]", help, true,                                       \
        [](const TrainOptions& o) { return o.field; },                  \
        [](TrainOptions& o, std::string_view text) { o.field = text; }, \
        "names separated by commas"                                     \
  }
#define TARN_NAME(name, field, help)                                         \
  OptionInfo {                                                               \
    name, "NAME", help, true, [](const TrainOptions& o) { return o.field; }, \
        [](TrainOptions& o, std::string_view text) { o.field = text; },      \
        "a name in the header"                                               \
  }
#define TARN_WORD(name, field, words, bits, help)                            \
  OptionInfo {                                                               \
    name, words, help, bits,                                                 \
        [](const TrainOptions& o) {                                          \
          return WordAt(words, static_cast<int>(o.field));                   \
        },                                                                   \
        [](TrainOptions& o, std::string_view text) {                         \
          o.field = static_cast<decltype(o.field)>(Word(name, words, text)); \
        },                                                                   \
        words                                                                \
  }

const std::vector<OptionInfo>& OptionTable() {
  static const std::vector<OptionInfo> table = {
      OptionInfo{
          "tokenizer_file", "FILE",
          "tokenizer of --tokenizer bpe or world, from `tarn tokenize`", true,
          [](const TrainOptions& o) { return o.tokenizer_file; },
          [](TrainOptions& o, std::string_view text) {
            o.tokenizer_file = text;
            if (text.empty()) return;
            o.tokenizer_file =
                std::filesystem::absolute(text).lexically_normal().string();
          },
          "a file"},
      TARN_WORD(
          "records", records, kRecordModes, true,
          "how the text is split: at lines \"%\", or into 2 KiB blocks; fasta: "
          "the letters of genomes, in blocks"),
      TARN_NAME("text_column", text_column,
                "CSV: column of the text (or source); default: \"text\" "
                "(\"source\")"),
      TARN_NAME("label_column", label_column,
                "CSV: column of the label (or target); default: \"label\" "
                "(\"target\")"),
      TARN_WORD("generator", generator.kind, kGenerators, true,
                "generated rows instead of --data: a string and its copy, or "
                "keys and values to be recalled"),
      TARN_COUNT(
          "symbols", generator.symbols, 0, kMaxCount, true,
          "copy: symbols without the separator, 0 means 10; mqar: size of "
          "the vocabulary, half keys and half values, 0 means 8192"),
      TARN_COUNT("pairs", generator.pairs, 1, kMaxCount, true,
                 "mqar: pairs of key and value, at most seq-len / 4"),
      TARN_REAL(
          "mqar_power", generator.power, 0, 1,
          "mqar: a key is repeated at position i with p(i) ~ i^(X - 1); 1: "
          "uniformly"),
      TARN_WORD("mqar_distract", generator.distract, kSwitch, true,
                "mqar: fill free positions with random tokens instead of 0"),
      TARN_COUNT("pool", pool, 1, 4096, true,
                 "images: replace N x N pixels by their mean"),
      TARN_NAMES(
          "held_out_speakers", held_out_speakers,
          "ctc: speakers whose error selects the best model; default: the "
          "last one"),
      TARN_NAMES(
          "test_speakers", test_speakers,
          "ctc: speakers who are also evaluated but do not select a model"),
      TARN_COUNT("join_frames", join_frames, 0, kMaxCount, true,
                 "ctc: join recordings up to this many frames; 0: do not join"),
      TARN_REAL(
          "augment", augment, 0, 1,
          "ctc: strength of changes of voice, speed and noise, and of masks; "
          "0: none"),
      TARN_COUNT("batch", batch, 1, kMaxCount, true, "rows of a forward pass"),
      TARN_COUNT("accumulate", accumulate, 1, kMaxCount, true,
                 "forward passes whose gradients are added for one update"),
      TARN_COUNT("seq_len", seq_len, 1, kMaxCount, true,
                 "tokens of a row; longest text of an example"),
      TARN_COUNT("long_every", long_every, 0, kMaxCount, true,
                 "every N-th update is one row of batch x seq_len tokens, so "
                 "that the model stays stable beyond seq_len; 0: never"),
      // With a cosine the number of steps shapes every rate: see
      // ResumeOptions.
      TARN_COUNT("steps", schedule.steps, 1, kMaxSteps, true, "updates"),
      TARN_REAL("lr", schedule.lr, 0, 1e38, "highest learning rate"),
      TARN_REAL(
          "lr_min", schedule.lr_min, 0, 1e38,
          "learning rate at the end of a cosine, lowest rate of a plateau"),
      TARN_WORD("schedule", schedule.schedule, kSchedules, true,
                "schedule of the learning rate, after warm-up"),
      TARN_COUNT("warmup", schedule.warmup, 0, kMaxSteps, true,
                 "warm-up steps"),
      OptionInfo{"decay_at", "N[,N...]",
                 "steps after which --schedule step lowers the rate", true,
                 [](const TrainOptions& o) {
                   std::string text;
                   for (int64_t at : o.schedule.decay_at) {
                     text += (text.empty() ? "" : ",") + Text(at);
                   }
                   return text;
                 },
                 [](TrainOptions& o, std::string_view text) {
                   o.schedule.decay_at.clear();
                   for (const std::string& at : SplitAt(text, ',')) {
                     o.schedule.decay_at.push_back(
                         Count("decay_at", at, 1, kMaxSteps));
                   }
                 },
                 CountWanted(1, kMaxSteps) + " each"},
      TARN_REAL("decay_factor", schedule.decay_factor, 0, 1,
                "factor by which steps and plateaus multiply the rate"),
      TARN_COUNT("decay_patience", schedule.decay_patience, 1, kMaxSteps, true,
                 "evaluations in a row without a new best, after which "
                 "--schedule plateau lowers the rate"),
      TARN_WORD(
          "optimizer", optimizer, kOptimizers, true,
          "optimiser; radam is the paper's and clips each tensor's gradient"),
      TARN_REAL("weight_decay", weight_decay, 0, 1e6, "decoupled weight decay"),
      TARN_REAL("clip", clip, 0, 1e38, "largest gradient norm; 0: off"),
      OptionInfo{"seed", "N", "seed of initial weights, windows and dropout",
                 true,
                 [](const TrainOptions& o) { return std::to_string(o.seed); },
                 [](TrainOptions& o, std::string_view text) {
                   if (!Parse(text, o.seed)) {
                     Refuse("seed", kSeedWanted, text);
                   }
                 },
                 kSeedWanted},
      TARN_COUNT("threads", threads, 0, 1024, true,
                 "threads; 0: all that the process may use"),
      // A run may continue on another device, which sums in another order; the
      // log shows it.
      TARN_WORD("device", device, kDevices, false,
                "device of the run; a resumed run may change it"),
      TARN_WORD("precision", precision, kPrecisions, true,
                "bf16: products in bfloat16, by torch's autocast; weights, "
                "losses, held-out evaluations and files stay float32"),
      TARN_COUNT("checkpoint_every", checkpoint_every, 1, kMaxSteps, false,
                 "steps between checkpoints"),
      TARN_COUNT("eval_every", eval_every, 1, kMaxSteps, true,
                 "steps between held-out evaluations"),
      TARN_COUNT("eval_windows", eval_windows, 1, kMaxSteps, true,
                 "largest number of held-out windows, examples or images to "
                 "evaluate"),
      TARN_WORD(
          "eval_metric", eval_metric, kMetrics, true,
          "metric that selects the best model; auto: accuracy of classes, "
          "error rate of decoded tokens, loss of text"),
      // It ends a run without changing a step of it, so a resumed run may
      // change it.
      TARN_COUNT("patience", patience, 0, kMaxSteps, false,
                 "stop after N evaluations in a row without a new best; 0: run "
                 "all steps"),
      TARN_COUNT("sample_every", sample_every, 0, kMaxSteps, false,
                 "steps between samples of the model's output; 0: none"),
  };
  return table;
}

#undef TARN_COUNT
#undef TARN_NAME
#undef TARN_NAMES
#undef TARN_REAL
#undef TARN_WORD

std::string DeviceName(Device device) {
  return WordAt(kDevices, static_cast<int>(device));
}

std::string PrecisionName(Precision precision) {
  return WordAt(kPrecisions, static_cast<int>(precision));
}

const OptionInfo* FindOption(std::string_view name) {
  for (const OptionInfo& option : OptionTable()) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

std::string FlagName(std::string_view name) {
  std::string flag = "--" + std::string(name);
  for (char& c : flag) c = c == '_' ? '-' : c;
  return flag;
}

Given OptionTexts(const TrainOptions& options) {
  Given texts;
  for (const OptionInfo& option : OptionTable()) {
    texts.emplace_back(option.name, option.get(options));
  }
  texts.emplace_back("init", options.init);
  texts.emplace_back("held_out", options.held_out);
  return texts;
}

}  // namespace tarn::train
