#include "train/options/options.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "train/options/command_line.h"
#include "data/pairs/edit_distance.h"
#include "core/test_util.h"
#include "train/run/plan.h"
#include "train/run/state.h"

namespace tarn::train {
namespace {

using std::string_view_literals::operator""sv;

// The message of the ArgumentError that `call` throws; empty: it throws none.
template <typename F>
std::string Refusal(F call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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

const Given kBase = {{"data", "/x"}, {"out", "/o"}};

Given With(Given more) {
  more.insert(more.begin(), kBase.begin(), kBase.end());
  return more;
}

TEST(BuildOptionsTest, EveryOptionReadsBackItsOwnText) {
  const TrainOptions options = BuildOptions(
      With({{"lr", "0.1"}, {"schedule", "step"}, {"decay_at", "3,9"}}));
  for (const OptionInfo& option : OptionTable()) {
    TrainOptions copy;
    option.set(copy, option.get(options));
    EXPECT_EQ(option.get(copy), option.get(options)) << option.name;
  }
  EXPECT_EQ(options.schedule.decay_at, (std::vector<int64_t>{3, 9}));
}

TEST(BuildOptionsTest, RangesAndWordsAreChecked) {
  const Given bad = {
      {"batch", "0"},      {"batch", "1e3"},  {"batch", "4x"},
      {"seq_len", "-1"},   {"lr", "nan"},     {"lr", "inf"},
      {"lr", "-1"},        {"clip", ""},      {"optimizer", "sgd"},
      {"schedule", "exp"}, {"seed", "-1"},    {"threads", "2000"},
      {"d_model", "many"}, {"positions", "?"}, {"device", "gpu"},
      {"device", "cuda:1"}, {"precision", "fp16"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      BuildOptions(With({{n, v}}));
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << name << ": " << message;
  }
  EXPECT_NE(Refusal([] { BuildOptions({{"data", "/x"}}); }), "");
  EXPECT_NE(Refusal([] { BuildOptions(With({{"preset", "huge"}})); }), "");
  EXPECT_NE(Refusal([] { BuildOptions(With({{"schedule", "step"}})); }), "");
  EXPECT_NE(Refusal([] {
              BuildOptions(With({{"data", "-"}, {"data", "-"}}));
            }),
            "");
  EXPECT_NE(Refusal([] {
              BuildOptions(With({{"resume", ""}, {"overwrite", ""}}));
            }),
            "");
  EXPECT_NE(Refusal([] {
              BuildOptions(With({{"d_model", "30"}, {"n_heads", "4"}}));
            }),
            "");
}

TEST(BuildOptionsTest, PresetsHoldAndFlagsBeatThem) {
  for (const Preset& preset : Presets()) {
    const bool generated = std::any_of(
        preset.options.begin(), preset.options.end(),
        [](const auto& option) { return option.first == "generator"; });
    Given given = With({{"preset", preset.name}});
    if (generated) {
      // Both is refused.
      EXPECT_THROW(BuildOptions(given), ArgumentError);
      std::erase_if(given, [](const auto& one) { return one.first == "data"; });
    }
    EXPECT_NO_THROW(BuildOptions(given)) << preset.name;
  }
  const TrainOptions options =
      BuildOptions({{"out", "x"}, {"batch", "3"}, {"preset", "copy-task"}});
  EXPECT_EQ(options.batch, 3);
  EXPECT_EQ(options.optimizer, OptimizerKind::kRAdam);
  EXPECT_EQ(options.model.d_key, 32);
}

TEST(BuildOptionsTest, ImagesRefuseWhatTheirDataDecide) {
  const Given image = {{"task", "image"}};
  EXPECT_EQ(BuildOptions(With(image)).model.n_mixtures, 10);
  const Given bad = {{"seq_len", "783"},
                     {"long_every", "2"},
                     {"records", "block"},
                     {"eval_metric", "accuracy"},
                     {"pool", "0"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      BuildOptions(With({{"task", "image"}, {n, v}}));
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << name << ": " << message;
  }
  EXPECT_TRUE(Contains(Refusal([] {
                         BuildOptions(With({{"pool", "2"}}));
                       }),
                       "--pool"));
}

TEST(BuildOptionsTest, PositionTableFollowsTheTrainingLength) {
  EXPECT_EQ(BuildOptions(With({{"seq_len", "77"}})).model.max_positions, 77);
  EXPECT_EQ(BuildOptions(With({{"seq_len", "77"}, {"max_positions", "99"}}))
                .model.max_positions,
            99);
  EXPECT_EQ(BuildOptions(
                With({{"seq_len", "77"}, {"batch", "4"}, {"long_every", "3"}}))
                .model.max_positions,
            308);
}

TEST(BuildOptionsTest, PatternsOfLayers) {
  const Given hybrid = With({{"layers", "linear,aft-full"}, {"seq_len", "77"}});
  const TrainOptions options = BuildOptions(hybrid);
  EXPECT_EQ(LayersText(options.model), "linear,aft-full");
  EXPECT_EQ(options.model.max_sequence_length, 77);
  EXPECT_TRUE(Contains(Refusal([] {
                         BuildOptions(With({{"attention", "full"},
                                            {"layers", "linear,full"}}));
                       }),
                       "--attention"));
  // One mixer for all layers takes the place of a file's pattern.
  const TemporaryFolder dir;
  const std::string path =
      dir.Write("config.json", ConfigToJson(options.model));
  const ModelConfig plain =
      BuildOptions(With({{"config", path}, {"attention", "full"}})).model;
  EXPECT_EQ(LayersText(plain), "full");
  EXPECT_EQ(LayersText(BuildOptions(With({{"config", path}})).model),
            "linear,aft-full");
}

TEST(BuildOptionsTest, ModelFileBelowFlags) {
  const TemporaryFolder dir;
  ModelConfig config;
  config.d_model = 64;
  config.n_layers = 3;
  FinishConfig(config);
  const std::string path = dir.Write("config.json", ConfigToJson(config));
  const TrainOptions as_is = BuildOptions(With({{"config", path}}));
  EXPECT_EQ(as_is.model, config);
  const TrainOptions wider =
      BuildOptions(With({{"config", path}, {"d_model", "128"}}));
  EXPECT_EQ(wider.model.n_layers, 3);
  // The file gives its sizes; a flag of 0 works one out anew.
  EXPECT_EQ(wider.model.d_key, 16);
  EXPECT_EQ(wider.model.d_ff, 256);
  const TrainOptions anew = BuildOptions(With({{"config", path},
                                               {"d_model", "128"},
                                               {"d_key", "0"},
                                               {"d_value", "0"},
                                               {"d_ff", "0"}}));
  EXPECT_EQ(anew.model.d_key, 32);
  EXPECT_EQ(anew.model.d_ff, 512);
  // What hangs on the kind of model and is no size follows its flags.
  EXPECT_EQ(
      BuildOptions(With({{"config", path}, {"arch", "encoder"}})).model.task,
      Task::kClassify);
  EXPECT_EQ(BuildOptions(With({{"config", path}, {"attention", "full"}}))
                .model.cross_attention,
            CrossAttention::kFull);
  // --init: the model is that of the folder, dropout apart.
  EXPECT_EQ(BuildOptions(With({{"init", dir.path()}, {"dropout", "0.5"}}))
                .model.d_model,
            64);
  EXPECT_NE(Refusal([&] {
              BuildOptions(With({{"init", dir.path()}, {"d_model", "32"}}));
            }),
            "");
  dir.Write("config.json", "{}");
  EXPECT_THROW(BuildOptions(With({{"config", path}})), FormatError);
  EXPECT_THROW(BuildOptions(With({{"config", dir / "none"}})), FormatError);
}

TEST(BuildOptionsTest, SizesThatAreGivenAreNotWorkedOut) {
  // 512 is also what d_model = 128 would give by itself.
  const Given sizes = {{"d_ff", "512"}, {"d_model", "128"}};
  for (const Given& given : {sizes, Given(sizes.rbegin(), sizes.rend())}) {
    EXPECT_EQ(BuildOptions(With(given)).model.d_ff, 512);
  }
  Given preset = {{"preset", "small"}};  // of width 256
  preset.push_back(sizes.front());
  EXPECT_EQ(BuildOptions(With(preset)).model.d_ff, 512);
  EXPECT_EQ(BuildOptions(With({{"preset", "speech-small"}, {"d_model", "96"}}))
                .model.d_ff,
            384);
  const TemporaryFolder dir;
  ModelConfig config;
  config.d_model = 128;
  config.d_ff = 512;
  FinishConfig(config);
  const std::string path = dir.Write("config.json", ConfigToJson(config));
  EXPECT_EQ(BuildOptions(With({{"config", path}, {"d_model", "256"}}))
                .model.d_ff,
            512);
  EXPECT_EQ(BuildOptions(With({{"config", path},
                               {"d_model", "256"},
                               {"d_ff", "1024"}}))
                .model.d_ff,
            1024);
}

TEST(BuildOptionsTest, LayersNormsAndFeedForwardParts) {
  const Given hybrid = {{"layers", "linear,local:local_context=8,full"},
                        {"n_layers", "6"},
                        {"norm_kind", "rms"},
                        {"feed_forward", "swiglu"}};
  const TrainOptions options = BuildOptions(With(hybrid));
  const ModelConfig& model = options.model;
  EXPECT_EQ(LayersText(model), "linear,local:local_context=8,full");
  EXPECT_EQ(LayerView(model, 4).attention, AttentionKind::kLocal);
  EXPECT_EQ(model.norm_kind, NormKind::kRms);
  EXPECT_EQ(model.feed_forward, FeedForwardKind::kSwiglu);
  EXPECT_FALSE(HasPositionTable(model));
  ModelConfig tables = model;
  tables.attention = AttentionKind::kAftFull;
  tables.layers.clear();
  EXPECT_TRUE(HasPositionTable(tables));
  // A checkpoint keeps them.
  TrainState state;
  state.options = options;
  EXPECT_EQ(TrainStateFromJson(TrainStateToJson(state)).options.model, model);

  const TemporaryFolder dir;
  const std::string path = dir.Write("config.json", ConfigToJson(model));
  EXPECT_EQ(BuildOptions(With({{"config", path}})).model, model);
  // A pattern and one kind for all layers replace each other.
  EXPECT_EQ(LayersText(BuildOptions(With({{"config", path},
                                          {"attention", "full"}}))
                           .model),
            "full");
  EXPECT_EQ(LayersText(BuildOptions(With({{"config", path},
                                          {"layers", "full,linear"}}))
                           .model),
            "full,linear");
  EXPECT_NE(Refusal([&] {
              BuildOptions(With({{"init", dir.path()}, {"attention", "full"}}));
            }),
            "");
  const Given bad = {{"layers", "linear,"},
                     {"layers", "linear,fast"},
                     {"layers", "linear:topk=3"},
                     {"norm_kind", "batch"},
                     {"feed_forward", "glu"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      BuildOptions(With({{n, v}}));
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << value << ": " << message;
  }
  EXPECT_TRUE(Contains(Refusal([] {
                         BuildOptions(With({{"attention", "full"},
                                            {"layers", "linear,full"}}));
                       }),
                       "--attention"));
  EXPECT_NO_THROW(BuildOptions(
      With({{"attention", "linear"}, {"layers", "linear,full"}})));
}

TEST(BuildOptionsTest, TablesAndMemoryCountEveryLayer) {
  const Given mixed = {{"layers", "linear,aft-full"}, {"seq_len", "77"}};
  EXPECT_EQ(BuildOptions(With(mixed)).model.max_sequence_length, 77);
  const auto need = [](const char* layers) {
    return MemoryEstimate(
        BuildOptions(With({{"layers", layers}, {"n_layers", "2"}})));
  };
  EXPECT_GT(need("linear,full"), need("linear"));
  EXPECT_EQ(need("linear,full"), need("full,linear"));
  EXPECT_NEAR(need("linear,full"), (need("linear") + need("full")) / 2, 1);
}

TEST(BuildOptionsTest, PresetsOfThePaperAreItsCode) {
  for (const char* name : {"mnist", "cifar10", "copy-task"}) {
    const ModelConfig model =
        BuildOptions({{"out", "x"}, {"preset", name}}).model;
    EXPECT_EQ(model.activation, Activation::kRelu) << name;
    EXPECT_EQ(model.dropout, 0.1) << name;
    EXPECT_EQ(model.norm, Norm::kPost) << name;
  }
}

TEST(ResumeOptionsTest, TheSameModelInOtherWords) {
  // Keys that nobody reads and patterns of one kind leave no trace.
  const Given given = {{"layers", "linear,linear"},
                       {"topk", "7"},
                       {"d_ff", "0"},
                       {"n_layers", "2"}};
  const TrainOptions saved = BuildOptions(With(given));
  EXPECT_NO_THROW(ResumeOptions(saved, With(given)));
  EXPECT_NO_THROW(ResumeOptions(saved, {{"attention", "linear"}}));
  const Given bad = {{"layers", "linear,full"}, {"norm_kind", "rms"},
                     {"feed_forward", "swiglu"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      ResumeOptions(saved, {{"topk", "7"}, {n, v}});
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << message;
  }
  const Given pattern =
      With({{"layers", "linear,local:local_context=8"}, {"n_layers", "2"}});
  const TrainOptions hybrid = BuildOptions(pattern);
  EXPECT_NO_THROW(ResumeOptions(hybrid, pattern));
  EXPECT_TRUE(Contains(
      Refusal([&] { ResumeOptions(hybrid, {{"attention", "linear"}}); }),
      "--attention"));
}

TEST(ResumeOptionsTest, RefusesWhatWouldChangeTheBits) {
  const TrainOptions saved =
      BuildOptions(With({{"lr", "0.1"}, {"threads", "2"}, {"d_model", "64"}}));
  const auto resume = [&](const Given& given) {
    return ResumeOptions(saved, given);
  };
  // The same again, or what is free to change.
  EXPECT_EQ(resume({{"lr", "1e-1"},
                    {"d_model", "64"},
                    {"threads", "2"},
                    {"checkpoint_every", "3"}})
                .checkpoint_every,
            3);
  const Given bad = {
      {"lr", "0.2"},       {"batch", "9"},       {"seed", "1"},
      {"threads", "1"},    {"d_model", "32"},    {"dropout", "0.5"},
      {"steps", "7"},      {"records", "block"}, {"init", "/m"},
      {"accumulate", "2"}, {"norm", "post"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      resume({{n, v}});
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << name << ": " << message;
  }
}

// Another precision is other arithmetic from the first step on, like another
// batch. Another device is the same arithmetic in another order.
TEST(ResumeOptionsTest, ADeviceMayChangeAPrecisionMayNot) {
  const TrainOptions saved =
      BuildOptions(With({{"device", "cuda"}, {"precision", "bf16"}}));
  EXPECT_EQ(DeviceName(saved.device), "cuda");
  EXPECT_EQ(PrecisionName(saved.precision), "bf16");
  const TrainOptions same = ResumeOptions(saved, {});
  EXPECT_EQ(same.device, Device::kCuda);
  EXPECT_EQ(same.precision, Precision::kBF16);
  EXPECT_EQ(ResumeOptions(saved, {{"device", "cpu"}}).device, Device::kCpu);
  const std::string message =
      Refusal([&] { ResumeOptions(saved, {{"precision", "f32"}}); });
  EXPECT_TRUE(Contains(message, "--precision: want bf16")) << message;
}

TEST(PlanRunTest, ADeviceThatIsNotHereIsRefusedBeforeAnyWork) {
  const TemporaryFolder dir;
  const Given given = {{"generator", "copy"}, {"seq_len", "32"},
                       {"d_model", "8"},      {"n_heads", "2"},
                       {"out", dir / "out"},  {"device", "cuda"}};
  try {
    PlanRun(given);
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.where(), "--device");
    EXPECT_EQ(error.given(), "cuda");
    EXPECT_TRUE(Contains(error.wanted(), "cpu")) << error.wanted();
  }
  EXPECT_EQ(dir.FileCount(), 0u);
  const RunPlan plan = PlanRun(given, {.cuda = true});
  EXPECT_EQ(plan.state.options.device, Device::kCuda);
  EXPECT_EQ(plan.began_on, Device::kCpu);  // nothing was made yet
}

// What a step needs beside the weights lies in the device's own memory.
TEST(PlanRunTest, ActivationsElsewhereAreNotThisMachinesMemory) {
  const auto need = [](const char* device, const char* batch) {
    return MemoryEstimate(
        BuildOptions(With({{"device", device}, {"batch", batch}})));
  };
  EXPECT_GT(need("cpu", "64"), need("cpu", "8"));
  EXPECT_EQ(need("cuda", "64"), need("cuda", "8"));
  EXPECT_GT(need("cuda", "8"), 0);
}

TEST(ResumeOptionsTest, PatternsAreComparedByWhatTheyMean) {
  const TrainOptions saved = BuildOptions(With({{"layers", "linear,full"}}));
  for (const char* same : {"linear,full", "linear:feature_map=elu1,full"}) {
    EXPECT_EQ(ResumeOptions(saved, {{"layers", same}}).model, saved.model);
  }
  for (const char* other : {"full,linear", "linear", "linear,full,full"}) {
    const std::string message =
        Refusal([&] { ResumeOptions(saved, {{"layers", other}}); });
    EXPECT_TRUE(Contains(message, "--layers")) << other << ": " << message;
  }
  const TrainOptions alike = BuildOptions(With({{"layers", "full,full"}}));
  EXPECT_EQ(ResumeOptions(alike, {{"layers", "full,full"}}).model, alike.model);
}

TEST(ResumeOptionsTest, MoreStepsUnlessTheyShapeTheRates) {
  const TrainOptions cosine = BuildOptions(kBase);
  EXPECT_THROW(ResumeOptions(cosine, {{"steps", "5000"}}), ArgumentError);
  const TrainOptions constant = BuildOptions(With({{"schedule", "constant"}}));
  EXPECT_EQ(ResumeOptions(constant, {{"steps", "5000"}}).schedule.steps, 5000);
  EXPECT_THROW(ResumeOptions(constant, {{"steps", "5"}}), ArgumentError);
}

TEST(ResumeOptionsTest, TheSameCommandLineWithAPresetAndFlagsThatBeatIt) {
  const Given given = With({{"preset", "tiny"}, {"batch", "3"}, {"lr", "0.5"}});
  const TrainOptions saved = BuildOptions(given);
  EXPECT_EQ(saved.batch, 3);
  EXPECT_EQ(ResumeOptions(saved, given).batch, 3);
  EXPECT_THROW(ResumeOptions(saved, With({{"preset", "tiny"}, {"lr", "0.5"}})),
               ArgumentError);
}

TEST(TrainStateTest, ReadsBackWhatWasWritten) {
  TrainState state;
  state.options = BuildOptions(With({{"lr", "0.0012345678901234567"},
                                     {"seed", "18446744073709551615"},
                                     {"attention", "full"}}));
  state.step = 41;
  state.elapsed_s = 1.0 / 3;
  state.cpu_s = 2.0 / 3;
  state.plateau = {2, 3, 1.0 / 7};
  state.log_bytes = 12345;
  state.fingerprint = 0xFEDCBA9876543210;
  state.best_held_out = 2.7182818284590452;
  state.best_step = 40;
  const std::string json = TrainStateToJson(state);
  const TrainState read = TrainStateFromJson(json);
  EXPECT_EQ(TrainStateToJson(read), json);
  EXPECT_EQ(OptionTexts(read.options), OptionTexts(state.options));
  EXPECT_EQ(read.options.model, state.options.model);
  EXPECT_EQ(read.fingerprint, state.fingerprint);
  EXPECT_EQ(read.cpu_s, state.cpu_s);
  EXPECT_EQ(read.plateau.looks, 2);
  EXPECT_EQ(read.plateau.drops, 3);
  EXPECT_EQ(read.plateau.best, 1.0 / 7);
  EXPECT_EQ(read.best_held_out, state.best_held_out);
  EXPECT_FALSE(read.last_held_out.has_value());
}

TEST(TrainStateTest, ReadsCheckpointsFromBeforeDevicesAndPlateaus) {
  TrainState state;
  state.options =
      BuildOptions(With({{"device", "cuda"}, {"precision", "bf16"}}));
  std::string json = TrainStateToJson(state);
  EXPECT_EQ(TrainStateFromJson(json).options.device, Device::kCuda);
  EXPECT_EQ(TrainStateFromJson(json).options.precision, Precision::kBF16);
  for (const char* key :
       {"cpu_s", "plateau_looks", "plateau_drops", "plateau_best", "device",
        "precision"}) {
    const size_t at = json.find(StrCat("  \"", key, "\""));
    ASSERT_NE(at, std::string::npos) << key;
    json.erase(at, json.find('\n', at) + 1 - at);
  }
  const TrainState read = TrainStateFromJson(json);
  EXPECT_EQ(read.cpu_s, 0);
  EXPECT_EQ(read.plateau.drops, 0);
  EXPECT_EQ(read.options.device, Device::kCpu);
  EXPECT_EQ(read.options.precision, Precision::kF32);
}

TEST(TrainStateTest, RefusesBrokenText) {
  TrainState state;
  state.options = BuildOptions(kBase);
  const std::string json = TrainStateToJson(state);
  EXPECT_NO_THROW(TrainStateFromJson(json));
  for (size_t length = 0; length + 2 < json.size(); length += 7) {
    EXPECT_THROW(TrainStateFromJson(json.substr(0, length)), FormatError);
  }
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THROW(TrainStateFromJson(changed("\"step\": 0", "\"step\": -1")),
               FormatError);
  EXPECT_THROW(TrainStateFromJson(changed("\"batch\"", "\"bath\"")),
               FormatError);
  EXPECT_THROW(TrainStateFromJson(
                   changed("\"fingerprint\": \"0\"", "\"fingerprint\": \"x\"")),
               FormatError);
}

}  // namespace
}  // namespace tarn::train
