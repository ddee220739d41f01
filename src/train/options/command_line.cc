#include "train/options/command_line.h"

#include <algorithm>

#include "core/error.h"
#include "data/pairs/edit_distance.h"

namespace tarn::train {
namespace {

struct Flag {
  std::string name, metavar, help;
};

// Flags outside the two tables. An empty metavar marks a switch.
const std::vector<Flag>& RunFlags() {
  static const std::vector<Flag> flags = {
      {"data", "FILE...", "what to learn, any number; - is standard input"},
      {"held_out", "FILE", "judge by this file instead of a part of the data"},
      {"out", "DIR", "where model, checkpoints and log go"},
      {"preset", "NAME", "start from a named set of options (below)"},
      {"config", "FILE", "take the model from a config.json"},
      {"init", "DIR", "go on from the weights of a model"},
      {"resume", "", "go on from DIR/checkpoint, to the bit"},
      {"overwrite", "", "start anew where DIR holds a run"},
      {"quiet", "", "no progress, only the final figures"},
  };
  return flags;
}

// Vocabulary, classes and the size of images follow from the data.
bool IsModelFlag(const ConfigKey& key) {
  const std::string_view name = key.name;
  return name != "format_version" && name != "vocab_size" &&
         name != "n_classes" && !name.starts_with("image_");
}

// Every flag in the order of the help text.
std::vector<Flag> AllFlags() {
  std::vector<Flag> flags = RunFlags();
  for (const OptionInfo& option : OptionTable()) {
    flags.push_back({option.name, option.metavar, option.help});
  }
  for (const ConfigKey& key : ConfigKeys()) {
    if (IsModelFlag(key)) flags.push_back({key.name, "VALUE", key.help});
  }
  return flags;
}

[[noreturn]] void RefuseFlag(const std::string& flag) {
  std::string nearest;
  size_t least = SIZE_MAX;
  for (const Flag& known : AllFlags()) {
    const size_t distance = EditDistance(flag, FlagName(known.name));
    if (distance < least) least = distance, nearest = FlagName(known.name);
  }
  // Further away than half its letters is no suggestion.
  const bool near = least <= flag.size() / 2;
  throw ArgumentError(
      "unknown flag " + flag +
      (near ? " (did you mean " + nearest + "?)" : " (see --help)"));
}

void AddLines(std::string& text, const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    std::string line = "  " + FlagName(flag.name);
    if (!flag.metavar.empty()) line += " " + flag.metavar;
    // Help starts in one column, on the next line where a flag is too long.
    constexpr size_t kColumn = 34;
    if (line.size() + 2 > kColumn) {
      text += line + "\n";
      line.clear();
    }
    line.resize(kColumn, ' ');
    text += line + flag.help + "\n";
  }
}

}  // namespace

CommandLine ParseCommandLine(const std::vector<std::string>& arguments) {
  const std::vector<Flag> flags = AllFlags();
  CommandLine line;
  const auto is_flag = [](const std::string& text) {
    return text.size() > 2 && text.compare(0, 2, "--") == 0;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    if (flag == "--help" || flag == "-h") {
      line.help = true;
      continue;
    }
    if (!is_flag(flag)) {
      throw ArgumentError("argument \"" + flag +
                          "\": want a flag (texts follow --data)");
    }
    std::vector<std::string> values;
    if (const size_t equals = flag.find('='); equals != std::string::npos) {
      values.push_back(flag.substr(equals + 1));
      flag.resize(equals);
    }
    const auto known =
        std::find_if(flags.begin(), flags.end(), [&](const Flag& candidate) {
          return FlagName(candidate.name) == flag;
        });
    if (known == flags.end()) RefuseFlag(flag);
    if (known->metavar.empty()) {
      if (!values.empty()) throw ArgumentError(flag, "no value", values[0]);
      line.given.emplace_back(known->name, "");
      continue;
    }
    // Only --data takes several; "-" and negative numbers are values.
    const bool many = known->name == "data";
    while (i + 1 < arguments.size() && !is_flag(arguments[i + 1]) &&
           arguments[i + 1] != "-h" && (many || values.empty())) {
      values.push_back(arguments[++i]);
    }
    if (values.empty()) throw ArgumentError(flag, known->metavar, "nothing");
    for (std::string& value : values) {
      line.given.emplace_back(known->name, std::move(value));
    }
  }
  return line;
}

std::string HelpText(const std::string& program) {
  const TrainOptions defaults;
  std::string text =
      "Trains a model on text: a language model; with --arch encoder or "
      "--task classify\na classifier, on lines \"label TAB text\"; with --arch "
      "seq2seq on lines\n\"source TAB "
      "target\"; with --task image on images as sequences of bytes, in files"
      "\nof MNIST's (IDX) or CIFAR-10's binary form, plain, .gz or .zst."
      "\n\nUsage: " +
      program + " --data FILE... --out DIR [flags]\n\n";
  AddLines(text, RunFlags());
  text += "\nTraining\n";
  std::vector<Flag> lines;
  for (const OptionInfo& option : OptionTable()) {
    const std::string value = option.get(defaults);
    lines.push_back({option.name, option.metavar,
                     option.help + (value.empty() ? "" : " [" + value + "]")});
  }
  AddLines(text, lines);
  text += "\nModel (the keys of config.json)\n";
  lines.clear();
  for (const ConfigKey& key : ConfigKeys()) {
    if (IsModelFlag(key)) lines.push_back({key.name, "VALUE", key.help});
  }
  AddLines(text, lines);
  text += "\nPresets\n";
  for (const Preset& preset : Presets()) {
    std::string line = StrCat("  ", preset.name);
    line.resize(16, ' ');
    text += line + preset.help + "\n";
  }
  text += "\nExamples\n  " + program +
          " --data book.txt --out models/book --steps 2000\n  " + program +
          " --out models/book --resume\n  zcat texts/*.gz | " + program +
          " --data - --out models/all --preset small\n  " + program +
          " --init models/all --data letters.txt --out models/letters\n  " +
          program +
          " --arch encoder --data label-text.tsv --out models/classes\n  " +
          program +
          " --arch seq2seq --data source-target.tsv --held-out test.tsv "
          "--out models/pairs\n  " +
          program +
          " --preset images-small --data train-images-idx3-ubyte.gz "
          "--out models/images\n\n"
          "Exit status: 0 done, 1 failure, 2 usage or impossible sizes, 3 bad "
          "data or\nmodel file, 130 interrupted (Ctrl-C saves first).\n";
  return text;
}

}  // namespace tarn::train
