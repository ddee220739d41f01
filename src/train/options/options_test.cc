#include "train/options/options.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "train/options/test_util.h"
#include "train/run/plan.h"
#include "train/run/state.h"

namespace tarn::train {
namespace {

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
      {"batch", "0"},       {"batch", "1e3"},     {"batch", "4x"},
      {"seq_len", "-1"},    {"lr", "nan"},        {"lr", "inf"},
      {"lr", "-1"},         {"clip", ""},         {"optimizer", "sgd"},
      {"schedule", "exp"},  {"seed", "-1"},       {"threads", "2000"},
      {"d_model", "many"},  {"positions", "?"},   {"device", "gpu"},
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

TEST(BuildOptionsTest, APatienceThatCannotEndTheRunIsRefused) {
  const auto refusal = [](Given given) {
    return Refusal([&] { BuildOptions(With(std::move(given))); });
  };
  // The first evaluation is the best there is, so N more end the run.
  const Given frequent = {{"steps", "100"}, {"eval_every", "10"}};
  Given given = frequent;
  given.emplace_back("patience", "8");
  EXPECT_EQ(refusal(given), "");
  given.emplace_back("patience", "9");
  EXPECT_TRUE(Contains(refusal(given), "--patience: want at most 8"))
      << refusal(given);
  EXPECT_TRUE(Contains(refusal({{"patience", "1"}, {"steps", "1000"}}),
                       "want 0 with --eval-every 500 and --steps 1000"));
  given = frequent;
  given.insert(
      given.end(),
      {{"schedule", "plateau"}, {"decay_patience", "3"}, {"patience", "3"}});
  EXPECT_TRUE(Contains(refusal(given), "more than --decay-patience 3"))
      << refusal(given);
  given.emplace_back("patience", "4");
  EXPECT_EQ(refusal(given), "");
}

TEST(BuildOptionsTest, PresetsHoldAndFlagsBeatThem) {
  for (const Preset& preset : Presets()) {
    const bool generated = std::any_of(
        preset.options.begin(), preset.options.end(),
        [](const auto& option) { return option.first == "generator"; });
    Given given = With({{"preset", preset.name}});
    if (generated) {
      // Giving both is refused.
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

// The millions of the help, to its one digit.
TEST(BuildOptionsTest, RecurrentPresetsHaveAboutAMillionParameters) {
  const std::map<std::string, double> sizes = {
      {"gdn", 0.9},        {"kda", 0.9},    {"mamba2", 0.9},
      {"retnet", 0.9},     {"gla", 0.9},    {"deltanet", 0.9},
      {"hgrn2", 0.9},      {"rwkv7", 1.0},  {"rwkv6", 1.0},
      {"lightning", 0.9},  {"hybrid", 0.9}, {"mamba1", 1.0},
      {"lfm2", 0.9},       {"rg-lru", 0.9}, {"mlstm", 0.9},
      {"norm-linear", 0.9}};
  for (const auto& [name, size] : sizes) {
    const TrainOptions options = BuildOptions(With({{"preset", name}}));
    const std::map<std::string, std::string> mixed = {
        {"hybrid", "gdn,gdn,gdn,gated-full"},
        {"lfm2",
         "short-conv,short-conv,short-conv,gated-full:output_gate=false"}};
    EXPECT_EQ(LayersText(options.model),
              mixed.contains(name) ? mixed.at(name) : name);
    const double millions =
        1e-6 * static_cast<double>(ParameterCount(options.model));
    EXPECT_NEAR(millions, size, 0.05) << name;
  }
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

TEST(BuildOptionsTest, PositionTablesHoldTheLongestRow) {
  const auto refused = [](const Given& given) {
    return Refusal([&] { BuildOptions(With(given)); });
  };
  const Given learned = {{"positions", "learned"}, {"seq_len", "77"}};
  const auto with = [&](const Given& more) {
    Given all = learned;
    all.insert(all.end(), more.begin(), more.end());
    return refused(all);
  };
  EXPECT_EQ(with({{"max_positions", "77"}}), "");
  EXPECT_EQ(with({{"max_positions", "76"}}),
            "--max-positions: want at least 77, the tokens of the longest row, "
            "got 76");
  // A target is read with the line end before it; a long row holds a batch.
  EXPECT_NE(with({{"arch", "seq2seq"}, {"max_positions", "77"}}), "");
  EXPECT_NE(
      with({{"long_every", "2"}, {"batch", "3"}, {"max_positions", "77"}}), "");
  EXPECT_EQ(refused({{"positions", "rotary"},
                     {"seq_len", "77"},
                     {"max_positions", "76"}}),
            "");
  EXPECT_TRUE(Contains(refused({{"attention", "aft-full"},
                                {"seq_len", "77"},
                                {"max_sequence_length", "76"}}),
                       "--max-sequence-length"));
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
  EXPECT_EQ(KeyOf<int64_t>(options.model, "max_sequence_length"), 77);
  EXPECT_TRUE(Contains(
      Refusal([] {
        BuildOptions(With({{"attention", "full"}, {"layers", "linear,full"}}));
      }),
      "--attention"));
  // One mixer for all layers takes the place of a file's pattern.
  const TemporaryFolder dir;
  const std::string path =
      dir.Write("config.json", ConfigToJson(options.model));
  const Given file = {{"config", path}, {"seq_len", "77"}};
  const ModelConfig plain = BuildOptions(With(file)).model;
  EXPECT_EQ(LayersText(plain), "linear,aft-full");
  Given one = file;
  one.emplace_back("attention", "full");
  EXPECT_EQ(LayersText(BuildOptions(With(one)).model), "full");
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
  // The file gives its sizes; a flag of 0 derives one again.
  EXPECT_EQ(wider.model.d_key, 16);
  EXPECT_EQ(wider.model.d_ff, 256);
  const TrainOptions derived = BuildOptions(With({{"config", path},
                                                  {"d_model", "128"},
                                                  {"d_key", "0"},
                                                  {"d_value", "0"},
                                                  {"d_ff", "0"}}));
  EXPECT_EQ(derived.model.d_key, 32);
  EXPECT_EQ(derived.model.d_ff, 512);
  // Values that depend on the kind of model, except sizes, follow its flags.
  EXPECT_EQ(
      BuildOptions(With({{"config", path}, {"arch", "encoder"}})).model.task,
      Task::kClassify);
  EXPECT_EQ(BuildOptions(With({{"config", path}, {"attention", "full"}}))
                .model.cross_attention,
            MixerKind("full"));
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
  EXPECT_EQ(
      BuildOptions(With({{"config", path}, {"d_model", "256"}})).model.d_ff,
      512);
  EXPECT_EQ(BuildOptions(
                With({{"config", path}, {"d_model", "256"}, {"d_ff", "1024"}}))
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
  EXPECT_EQ(LayerView(model, 4).attention, MixerKind("local"));
  EXPECT_EQ(model.norm_kind, NormKind::kRms);
  EXPECT_EQ(model.feed_forward, FeedForwardOf("swiglu"));
  EXPECT_TRUE(PositionKeys(model).empty());
  ModelConfig tables = model;
  tables.attention = MixerKind("aft-full");
  tables.layers.clear();
  EXPECT_EQ(PositionKeys(tables).size(), 1u);
  // A checkpoint keeps them.
  TrainState state;
  state.options = options;
  EXPECT_EQ(TrainStateFromJson(TrainStateToJson(state)).options.model, model);

  const TemporaryFolder dir;
  const std::string path = dir.Write("config.json", ConfigToJson(model));
  EXPECT_EQ(BuildOptions(With({{"config", path}})).model, model);
  // A pattern and one kind for all layers replace each other.
  EXPECT_EQ(
      LayersText(
          BuildOptions(With({{"config", path}, {"attention", "full"}})).model),
      "full");
  EXPECT_EQ(LayersText(BuildOptions(
                           With({{"config", path}, {"layers", "full,linear"}}))
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
  EXPECT_TRUE(Contains(
      Refusal([] {
        BuildOptions(With({{"attention", "full"}, {"layers", "linear,full"}}));
      }),
      "--attention"));
  EXPECT_NO_THROW(
      BuildOptions(With({{"attention", "linear"}, {"layers", "linear,full"}})));
}

TEST(BuildOptionsTest, TablesAndMemoryCountEveryLayer) {
  const Given mixed = {{"layers", "linear,aft-full"}, {"seq_len", "77"}};
  EXPECT_EQ(
      KeyOf<int64_t>(BuildOptions(With(mixed)).model, "max_sequence_length"),
      77);
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

}  // namespace
}  // namespace tarn::train
