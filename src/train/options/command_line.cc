#include "train/options/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "core/error.h"
#include "data/pairs/edit_distance.h"

namespace tarn::train {
namespace {

struct Flag {
  std::string name, metavar, help;
  std::string wanted = {};  // what it takes, in words; empty: see metavar
  std::string value = {};   // where it is not given; empty: none
};

// The bound is more files than a command line holds, and low enough that the
// parser takes a name such as "[a,b]" unchanged.
constexpr int kMostFiles = 1 << 20;
constexpr size_t kHelpColumn = 34;
constexpr size_t kHelpWidth = 62;  // of the text in that column

// Flags outside the two tables. An empty metavar marks a switch.
const std::vector<Flag>& RunFlags() {
  static const std::vector<Flag> flags = {
      {"data", "FILE ...",
       "training data, one or more files; - is standard input"},
      {"held_out", "FILE", "data for evaluation, instead of a part of --data"},
      {"out", "DIR", "folder for the model, its checkpoints and its log"},
      {"preset", "NAME", "named set of options, listed below"},
      {"config", "FILE", "config.json of the model, with all its sizes"},
      {"init", "DIR", "model whose weights the run starts from"},
      {"resume", "", "continue from the checkpoint in --out, bit for bit"},
      {"overwrite", "", "replace an existing run in --out"},
      {"quiet", "", "show only the final figures, no progress"},
      {"ranks", "N", "processes on this machine, started as torchrun does",
       "a whole number from 1 to 1024", "1"},
      {"backend", "auto|gloo|nccl", "communication library of several ranks",
       "", "auto"},
      {"timeout", "SECONDS", "time until an unresponsive rank ends the run",
       "a number from 1 to 1000000", "600"},
      {"sequence_parallel", "P", "ranks that share each row of a decoder",
       "a divisor of --ranks", "1"},
      {"shard_optimizer", "",
       "each rank keeps its part of the optimiser's state"},
  };
  return flags;
}

// Vocabulary, classes and the size of images follow from the data.
bool IsModelFlag(const ConfigKey& key) {
  const std::string_view name = key.name;
  return name != "format_version" && name != "vocab_size" &&
         name != "n_classes" && !name.starts_with("image_");
}

// Where `tarn train` has another value than a config.json without the key.
std::string ValueOf(const ConfigKey& key) {
  const std::string_view name = key.name;
  if (name == "max_positions" || name == "max_sequence_length") {
    return "the longest row";
  }
  if (name == "input_dim") return "0, in ctc 40";
  return key.value;
}

std::vector<Flag> ModelFlags() {
  std::vector<Flag> flags;
  for (const ConfigKey& key : ConfigKeys()) {
    if (!IsModelFlag(key)) continue;
    flags.push_back(
        {key.name, key.metavar, key.help, key.wanted, ValueOf(key)});
  }
  return flags;
}

std::vector<Flag> TrainingFlags() {
  const TrainOptions defaults;
  std::vector<Flag> flags;
  for (const OptionInfo& option : OptionTable()) {
    flags.push_back({option.name, option.metavar, option.help, option.wanted,
                     option.get(defaults)});
  }
  return flags;
}

// Breaks a text between words into lines of the help's right column.
std::string Wrapped(const std::string& text) {
  std::string lines;
  size_t width = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t size = end - begin;
    if (width > 0) {
      const bool fits = width + 1 + size <= kHelpWidth;
      lines += fits ? ' ' : '\n';
      width = fits ? width + 1 : 0;
    }
    lines.append(text, begin, size);
    width += size;
    begin = end + 1;
  }
  return lines;
}

// What it is, the values it takes unless the metavar lists them, its default.
std::string HelpOf(const Flag& flag) {
  std::string text = flag.help;
  if (!flag.wanted.empty() && flag.wanted != flag.metavar) {
    text += " (" + flag.wanted + ")";
  }
  if (!flag.value.empty()) text += " [" + flag.value + "]";
  return Wrapped(text);
}

// "0.9 million parameters", of the model that the preset's options make.
std::string SizeText(const Preset& preset) {
  const auto count = static_cast<double>(PresetParameters(preset));
  char text[64];
  if (count < 1e5) {
    std::snprintf(text, sizeof text, "%.0f thousand", 1e-3 * count);
  } else {
    std::snprintf(text, sizeof text, "%.2f million", 1e-6 * count);
  }
  return text;
}

std::string Footer(const std::string& program) {
  std::string text =
      "Each line ends with the allowed values (in parentheses) and the default "
      "[in\nsquare brackets].\n\nPresets, with the number of parameters of "
      "their "
      "models:\n";
  for (const Preset& preset : Presets()) {
    std::string line = StrCat("  ", preset.name);
    line.resize(16, ' ');
    text += line + SizeText(preset) + ", " + preset.help + "\n";
  }
  return text + "\nExamples:\n  " + program +
         " --data book.txt --out models/book --preset mamba2 --steps 2000\n  " +
         program +
         " --data book.txt --out models/stops --eval-every 50 --patience 3\n "
         " " +
         program + " --out models/book --resume\n  zcat texts/*.gz | " +
         program + " --data - --out models/all --preset small\n  " + program +
         " --init models/all --data letters.txt --out models/letters\n  " +
         program +
         " --data book.txt --out models/hybrid --layers linear,full \\\n"
         "    --norm-kind rms --feed-forward swiglu\n  " +
         program +
         " --arch encoder --data label-text.tsv --out models/classes\n  " +
         program +
         " --arch encoder --data reviews.csv --label-column stars "
         "--out models/stars\n  " +
         program +
         " --arch seq2seq --data source-target.tsv --held-out test.tsv "
         "--out models/pairs\n  " +
         program +
         " --preset images-small --data train-images-idx3-ubyte.gz "
         "--out models/images\n\n"
         "Exit status: 0 done, 1 failure, 2 usage or impossible sizes, 3 bad "
         "data or\nmodel file, 130 interrupted (Ctrl-C saves first).\n";
}

// The parser over the three tables. It only collects words: their meaning and
// their ranges are left to the tables.
class Parser {
 public:
  explicit Parser(const std::string& program)
      : app_(
            "Trains a model: by default a language model on text. --arch "
            "encoder or --task\nclassify trains a classifier on lines \"label "
            "TAB text\" or CSV files with columns\nlabel and text; --arch "
            "seq2seq trains on lines \"source TAB target\" or columns\nsource "
            "and target; --task image on images as sequences of bytes, in "
            "MNIST's (IDX)\nor CIFAR-10's binary format. Files may be "
            "compressed (.gz, .zst).",
            program) {
    app_.set_help_flag("-h,--help", "this text")->group("Run");
    app_.get_formatter()->column_width(kHelpColumn);
    app_.allow_extras();
    Add("Run", RunFlags());
    Add("Training", TrainingFlags());
    Add("Model (the keys of config.json)", ModelFlags());
  }

  std::string Help() {
    app_.footer(Footer(app_.get_name()));
    return app_.help();
  }

  CommandLine Parse(std::vector<std::string> words) {
    // The parser takes them from the back.
    const std::string last = words.empty() ? "" : words.back();
    std::reverse(words.begin(), words.end());
    CommandLine line;
    try {
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
      line.help = true;
      return line;
    } catch (const CLI::ParseError& error) {
      RefuseExtras();
      for (const auto& [option, flag] : flags_) {
        if (FlagName(flag.name) == last) RefuseNothing(flag);
      }
      throw ArgumentError(error.what());
    }
    std::map<const CLI::Option*, size_t> read;
    for (const CLI::Option* option : app_.parse_order()) {
      const Flag& flag = flags_.at(option);
      const std::string& value = option->results().at(read[option]++);
      const bool is_switch = flag.metavar.empty();
      // The parser takes the next word for a value, whatever it is.
      if (!is_switch && (value.starts_with("--") || value == "-h")) {
        RefuseNothing(flag);
      }
      line.given.emplace_back(flag.name, is_switch ? "" : value);
    }
    RefuseExtras();
    return line;
  }

 private:
  void Add(const std::string& group, const std::vector<Flag>& flags) {
    for (const Flag& flag : flags) {
      CLI::Option* option =
          flag.metavar.empty()
              ? app_.add_flag_callback(
                        FlagName(flag.name), [] {}, HelpOf(flag))
                    ->disable_flag_override()
              : app_.add_option(
                    FlagName(flag.name),
                    [](const CLI::results_t&) { return true; }, HelpOf(flag));
      if (!flag.metavar.empty()) {
        // Given twice, the last one counts: see BuildOptions.
        option->option_text(flag.metavar)->take_all();
      }
      if (flag.name == "data") option->expected(1, kMostFiles);
      option->group(group);
      flags_[option] = flag;
    }
  }

  [[noreturn]] static void RefuseNothing(const Flag& flag) {
    const bool words = flag.wanted.empty() || flag.wanted == flag.metavar;
    throw ArgumentError(FlagName(flag.name), words ? flag.metavar : flag.wanted,
                        "nothing");
  }

  // Rejects what the parser knows no place for; a misspelt flag is reported
  // before the words that follow it.
  void RefuseExtras() const {
    const std::vector<std::string> extras = app_.remaining();
    for (const std::string& word : extras) {
      if (word.size() > 1 && word[0] == '-') {
        RefuseFlag(word.substr(0, word.find('=')));
      }
    }
    if (extras.empty()) return;
    throw ArgumentError("argument \"" + extras.front() +
                        "\": want a flag (texts follow --data)");
  }

  [[noreturn]] void RefuseFlag(const std::string& word) const {
    std::string nearest;
    size_t least = SIZE_MAX;
    for (const CLI::Option* option : app_.get_options()) {
      const std::string known = option->get_name();
      const size_t distance = EditDistance(word, known);
      if (distance < least) least = distance, nearest = known;
    }
    // A flag further away than half the word's letters is not suggested.
    const bool near = least <= word.size() / 2;
    throw ArgumentError(
        "unknown flag " + word +
        (near ? " (did you mean " + nearest + "?)" : " (see --help)"));
  }

  CLI::App app_;
  std::map<const CLI::Option*, Flag> flags_;
};

}  // namespace

CommandLine ParseCommandLine(const std::vector<std::string>& arguments) {
  return Parser("tarn train").Parse(arguments);
}

std::string HelpText(const std::string& program) {
  return Parser(program).Help();
}

}  // namespace tarn::train
