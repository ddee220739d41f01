#include "train/options/command_line.h"

#include <gtest/gtest.h>

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
  // The cause stands before what follows from it.
  EXPECT_TRUE(Contains(
      Refusal([] { ParseCommandLine({"stray", "--batchs", "3", "--lr"}); }),
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
    EXPECT_TRUE(Contains(message, "want N")) << message;
  }
  EXPECT_TRUE(
      Contains(Refusal([] { ParseCommandLine({"--data"}); }), "--data"));
}

TEST(CommandLineTest, WordsStayAsTheyWereWritten) {
  const CommandLine line = ParseCommandLine(
      {"--data=[a,b]", "/x", "a b", "-", "--out", "[o]", "--lr", "1", "--lr",
       "2", "--layers", "linear,local:local_context=8", "--held-out", ""});
  const Given want = {{"data", "[a,b]"},
                      {"data", "/x"},
                      {"data", "a b"},
                      {"data", "-"},
                      {"out", "[o]"},
                      {"lr", "1"},
                      {"lr", "2"},
                      {"layers", "linear,local:local_context=8"},
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
    EXPECT_EQ(Contains(help, "  " + FlagName(name) + " VALUE"), !data_decide)
        << name;
  }
  EXPECT_TRUE(Contains(help, "--data FILE ..."));
  EXPECT_TRUE(Contains(help, "[0.002]"));
  EXPECT_TRUE(Contains(help, "Examples"));
}

}  // namespace
}  // namespace tarn::train
