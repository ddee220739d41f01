#include "train/options/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "data/pairs/edit_distance.h"
#include "train/options/test_util.h"

namespace tarn::train {
namespace {

using std::string_view_literals::operator""sv;

TEST(CommandLineTest, ReadsFlagsListsAndSwitches) {
  const CommandLine line =
      ParseCommandLine({"--data", "a", "b", "-", "--lr=0.1", "--d-model", "64",
                        "--resume", "--seq-len", "-3"});
  const Given want = {{"data", "a"},    {"data", "b"},     {"data", "-"},
                      {"lr", "0.1"},    {"d_model", "64"}, {"resume", ""},
                      {"seq_len", "-3"}};
  EXPECT_EQ(line.given, want);
  EXPECT_FALSE(line.help);
  EXPECT_TRUE(ParseCommandLine({"-h"}).help);
}

TEST(CommandLineTest, UnknownFlagsNameTheNearest) {
  EXPECT_TRUE(Contains(Refusal([] {
                         ParseCommandLine({"--batchs", "3"});
                       }),
                       "did you mean --batch?"));
  EXPECT_TRUE(Contains(Refusal([] { ParseCommandLine({"--dmodel=3"}); }),
                       "did you mean --d-model?"));
  EXPECT_TRUE(
      Contains(Refusal([] { ParseCommandLine({"--xyzzyplugh"}); }), "--help"));
  EXPECT_NE(Refusal([] { ParseCommandLine({"book.txt"}); }), "");
  // The cause is printed before what follows from it.
  EXPECT_TRUE(Contains(Refusal([] {
                         ParseCommandLine({"stray", "--batchs", "3", "--lr"});
                       }),
                       "did you mean --batch?"));
  EXPECT_TRUE(Contains(Refusal([] { ParseCommandLine({"-x"}); }), "-x"));
  EXPECT_NE(Refusal([] { ParseCommandLine({"--resume=yes"}); }), "");
  EXPECT_NE(Refusal([] { ParseCommandLine({"--vocab-size", "9"}); }), "");
}

TEST(CommandLineTest, FlagsWithoutTheirValueSayWhatTheyWant) {
  const std::vector<std::vector<std::string>> cases = {
      {"--steps"}, {"--steps", "--out", "x"}, {"--out", "x", "--steps", "-h"}};
  for (const auto& words : cases) {
    const std::string message = Refusal([&] { ParseCommandLine(words); });
    EXPECT_TRUE(Contains(message, "--steps")) << message;
    EXPECT_TRUE(Contains(message, "want a whole number from 1 to")) << message;
  }
  EXPECT_TRUE(
      Contains(Refusal([] { ParseCommandLine({"--data"}); }), "--data"));
}

TEST(CommandLineTest, WordsStayAsTheyWereWritten) {
  const CommandLine line = ParseCommandLine(
      {"--data=[a,b]", "/x", "a b", "-", "--out", "[o]", "--lr", "1", "--lr",
       "2", "--layers", "linear,local:local_context=8", "--held-out", ""});
  const Given want = {
      {"data", "[a,b]"}, {"data", "/x"},
      {"data", "a b"},   {"data", "-"},
      {"out", "[o]"},    {"lr", "1"},
      {"lr", "2"},       {"layers", "linear,local:local_context=8"},
      {"held_out", ""}};
  EXPECT_EQ(line.given, want);
}

TEST(CommandLineTest, EditDistance) {
  EXPECT_EQ(EditDistance(""sv, "abc"sv), 3u);
  EXPECT_EQ(EditDistance("kitten"sv, "sitting"sv), 3u);
  EXPECT_EQ(EditDistance("same"sv, "same"sv), 0u);
}

TEST(CommandLineTest, HelpNamesEveryFlagAndPreset) {
  const std::string help = HelpText("tarn train");
  for (const OptionInfo& option : OptionTable()) {
    EXPECT_TRUE(Contains(help, FlagName(option.name))) << option.name;
  }
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(Contains(help, StrCat("\n  ", preset.name, " ")));
  }
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string_view name = key.name;
    const bool data_decide = name == "vocab_size" || name == "n_classes" ||
                             name.starts_with("image_");
    EXPECT_EQ(Contains(help, StrCat("  ", FlagName(name), " ", key.metavar)),
              !data_decide)
        << name;
  }
  EXPECT_FALSE(Contains(help, "VALUE"));
  EXPECT_TRUE(Contains(help, "--data FILE ..."));
  EXPECT_TRUE(Contains(help, "[0.002]"));
  EXPECT_TRUE(Contains(help, "Examples"));
}

// What help says about a flag, with single spaces; empty: it has no such flag.
std::string Entry(const std::string& help, std::string_view name) {
  const size_t at = help.find(StrCat("\n  ", FlagName(name), " "));
  if (at == std::string::npos) return "";
  const size_t end =
      std::min(help.find("\n  --", at + 1), help.find("\n\n", at));
  std::string text;
  for (const char c : help.substr(at, end - at)) {
    const bool space = c == ' ' || c == '\n';
    if (!space || (!text.empty() && text.back() != ' '))
      text += space ? ' ' : c;
  }
  return text;
}

// A refusal and the help say the same: "want an integer from 1 to 65536".
TEST(CommandLineTest, HelpHasTheWordsOfTheErrorsAndEveryDefault) {
  const std::string help = HelpText("tarn train");
  for (const OptionInfo& option : OptionTable()) {
    const std::string shown = Entry(help, option.name);
    EXPECT_TRUE(Contains(shown, option.wanted)) << shown;
    const std::string value = option.get(TrainOptions());
    EXPECT_EQ(Contains(shown, "[" + value + "]"), !value.empty()) << shown;
    // The option itself says so.
    const std::string message = Refusal([&] {
      TrainOptions options;
      option.set(options, "no such value");
    });
    if (!message.empty() && !Contains(option.wanted, " each")) {
      EXPECT_TRUE(Contains(message, option.wanted)) << message;
    }
  }
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string_view name = key.name;
    const std::string shown = Entry(help, name);
    if (shown.empty()) continue;  // the data decide it
    EXPECT_TRUE(Contains(shown, key.wanted)) << shown;
    ModelConfig config;
    const std::string message =
        Refusal([&] { SetConfigField(config, name, "no such value"); });
    if (name != "layers") {
      EXPECT_TRUE(Contains(message, "want " + key.wanted)) << message;
    }
  }
}

// What is in square brackets makes the run that giving nothing makes.
TEST(CommandLineTest, DefaultsOfHelpAreThoseOfARun) {
  const std::string help = HelpText("tarn train");
  const ModelConfig plain = BuildOptions(kBase).model;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.value.empty()) continue;
    if (Entry(help, key.name).empty()) continue;
    const ModelConfig given = BuildOptions(With({{key.name, key.value}})).model;
    const std::string_view name = key.name;
    if (name == "max_positions") {
      EXPECT_NE(given.max_positions, plain.max_positions);
    } else {
      EXPECT_EQ(given, plain) << name;
    }
  }
}

TEST(CommandLineTest, PresetsShowTheSizesOfTheirModels) {
  const std::string help = HelpText("tarn train");
  for (const Preset& preset : Presets()) {
    const int64_t count = PresetParameters(preset);
    char size[64];
    if (count < 100000) {
      std::snprintf(size, sizeof size, "%.0f thousand", 1e-3 * double(count));
    } else {
      std::snprintf(size, sizeof size, "%.2f million", 1e-6 * double(count));
    }
    std::string line = StrCat("\n  ", preset.name);
    line.resize(17, ' ');
    EXPECT_TRUE(Contains(help, StrCat(line, size, ", ", preset.help))) << line;
    EXPECT_FALSE(Contains(preset.help, "illion")) << preset.name;
    EXPECT_FALSE(Contains(preset.help, "thousand")) << preset.name;
  }
  // The demo's own model file: 256 bytes, 128 numbers each.
  EXPECT_TRUE(Contains(help, "demo          0.99 million"));
}

TEST(CommandLineTest, LinesOfHelpFitATerminal) {
  std::istringstream help(HelpText("tarn train"));
  for (std::string line; std::getline(help, line);) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

}  // namespace
}  // namespace tarn::train
