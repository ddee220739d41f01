// Quantised models of every mixer: what is written opens, has the bits of a
// float32 model of the same numbers, and those of the model that is rounded
// when it is opened.
#include "runtime/quantise/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "reference/test_model.h"
#include "runtime/mixer/mixer.h"
#include "runtime/model/files.h"
#include "runtime/model/model.h"
#include "runtime/weights/matrix_list.h"
#include "weights/quantised/group_encodings.h"

namespace tarn::testing {
namespace {

constexpr int64_t kTokens = 40;

ModelConfig ConfigOf(const std::string& layers) {
  ModelConfig config = WideConfig();
  config.d_model = 96;
  config.d_ff = 150;
  config.vocab_size = 101;
  config.positions = Positions::kNone;
  SetRmsSwiglu(config);
  SetKey(config, "local_context", int64_t{20});
  SetLayers(config, layers);
  config.n_layers =
      std::max<int64_t>(2, static_cast<int64_t>(config.layers.size()));
  FinishConfig(config);
  return config;
}

// Every mixer that steps, and stacks with what needs care: parts with experts,
// rows that layers hand on, several mixers in a layer.
std::vector<std::string> Stacks() {
  std::vector<std::string> all = {
      "linear:feed_forward=moe,full",
      "rwkv7:value_residual=true,full,rwkv7:value_residual=true",
      "hgrn2:learned_bounds=true,full,hgrn2:learned_bounds=true",
      "mamba2+full,gdn",
      "full:latent_width=24:qkv_bias=false",
      "rwkv6:feed_forward=gated-channel-mix,kda"};
  for (const char* name : RuntimeMixerNames()) {
    if (Spec(MixerKind(name)).can.recurrent) all.emplace_back(name);
  }
  return all;
}

Tensors NumbersOf(const std::string& dir) {
  const auto source = OpenWeightSource(dir).Take();
  Tensors tensors;
  for (const WeightTensor& tensor : source->tensors()) {
    std::vector<float>& values = tensors[tensor.name];
    values.resize(static_cast<size_t>(tensor.elements()));
    source->ReadRows(tensor, {0, tensor.rows()}, values.data());
  }
  return tensors;
}

std::vector<float> Logits(const Model& model,
                          const std::vector<int32_t>& tokens) {
  std::vector<float> logits(tokens.size() *
                            static_cast<size_t>(model.vocab_size()));
  State state(model);
  model.Score(state, tokens, logits.data());
  return logits;
}

std::vector<float> SteppedLogits(const Model& model,
                                 const std::vector<int32_t>& tokens) {
  std::vector<float> logits;
  std::vector<float> row(static_cast<size_t>(model.vocab_size()));
  State state(model);
  for (const int32_t token : tokens) {
    model.Step(state, token, row.data());
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

// Root of the mean square of the difference, as a share of `want`'s.
double Distance(const std::vector<float>& want, const std::vector<float>& got) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    sum += d * d;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(sum / size);
}

class QuantiseTest : public ::testing::Test {
 protected:
  void Write(const ModelConfig& config, uint64_t seed = 1) {
    std::filesystem::create_directories(from_);
    WriteModel(from_, config, RandomTensors(config, seed));
  }
  Quantised Quantise(const GroupScheme& scheme,
                     const std::function<void(QuantiseOptions&)>& more = {}) {
    QuantiseOptions options;
    options.scheme = scheme;
    options.threads = 2;
    options.convert.overwrite = true;
    if (more) more(options);
    return QuantiseModel(from_, to_, options);
  }
  static Model Open(const std::string& dir, const ModelOptions& options = {}) {
    return Model::Open(dir, options).Take();
  }

  const TemporaryFolder folder_;
  const std::string from_ = folder_ / "from", to_ = folder_ / "to";
};

TEST_F(QuantiseTest, EveryMixerHasTheBitsOfItsNumbers) {
  const WeightFormat* int8 = FormatOf(GroupScheme{8, 64, false});
  const WeightFormat* int4 = FormatOf(GroupScheme{4, 32, false});
  for (const std::string& layers : Stacks()) {
    SCOPED_TRACE(layers);
    const ModelConfig config = ConfigOf(layers);
    Write(config);
    const auto tokens = RandomTokens(config, kTokens, 2);
    const std::vector<float> given =
        Logits(Open(from_, {.threads = 1}), tokens);
    for (const WeightFormat* format : {int8, int4}) {
      const Quantised made = Quantise(*format->scheme);
      EXPECT_GT(made.rounded, 2u);
      std::filesystem::create_directories(folder_ / "numbers");
      WriteModel(folder_ / "numbers", config, NumbersOf(to_));
      const std::vector<float> numbers =
          Logits(Open(folder_ / "numbers", {.threads = 1}), tokens);
      EXPECT_EQ(numbers,
                Logits(Open(to_, {.threads = 2, .exact = true}), tokens));
      EXPECT_EQ(numbers, Logits(Open(to_, {.weights = kF32Weights}), tokens));
      const Model first = Open(to_, {.threads = 1});
      const std::vector<float> want = Logits(first, tokens);
      EXPECT_EQ(want, SteppedLogits(first, tokens));
      for (const int threads : {2, 3}) {
        const Model model = Open(to_, {.threads = threads});
        EXPECT_EQ(want, Logits(model, tokens));
        EXPECT_EQ(want, SteppedLogits(model, tokens));
      }
      // Rounded when it is opened.
      EXPECT_EQ(want, Logits(Open(from_, {.weights = *format}), tokens));
      EXPECT_EQ(want, Logits(Open(to_, {.weights = *format}), tokens));
      // Random weights are far less kind than trained ones.
      EXPECT_LT(Distance(given, want), format == int8 ? 0.2 : 0.8);
      EXPECT_LT(Distance(given, numbers), format == int8 ? 0.2 : 0.8);
      EXPECT_GT(Distance(given, want), 0);
    }
  }
}

TEST_F(QuantiseTest, OtherArchitectures) {
  for (const Arch arch : {Arch::kEncoder, Arch::kSeq2seq}) {
    const ModelConfig config = SmallConfigOf(arch);
    Write(config);
    const Quantised made = Quantise({8, 32, false});
    EXPECT_GT(made.rounded, 10u);
    std::filesystem::create_directories(folder_ / "numbers");
    WriteModel(folder_ / "numbers", config, NumbersOf(to_));
    const auto tokens = RandomTokens(config, 20, 3);
    const auto outputs = [&](const Model& model) {
      std::vector<float> logits(static_cast<size_t>(model.n_outputs()));
      if (arch == Arch::kEncoder) {
        model.Classify(tokens, logits.data());
      } else {
        State state = model.Encode(tokens);
        model.Prefill(state, tokens, logits.data());
      }
      return logits;
    };
    EXPECT_EQ(outputs(Open(folder_ / "numbers")),
              outputs(Open(to_, {.exact = true})));
    EXPECT_THROW(Quantise({8, 32, false},
                          [](QuantiseOptions& options) {
                            options.text = [](const ModelConfig&, int64_t) {
                              return std::vector<int32_t>{1, 2};
                            };
                          }),
                 ArgumentError);
  }
}

TEST_F(QuantiseTest, RoundsAllButWhatDecidesHowLongMemoryLasts) {
  const ModelConfig config = ConfigOf("gdn:feed_forward=moe,mamba2,hgrn2");
  Write(config);
  const auto before = OpenWeightSource(from_).Take();
  Quantise({4, 64, true});
  const auto source = OpenWeightSource(to_).Take();
  const auto encoding = [&](const std::string& name) -> std::string {
    const WeightTensor* tensor = source->Find(name);
    return tensor == nullptr ? "none" : tensor->encoding->name;
  };
  // 96 inputs fill three groups of 32, and two of 64 badly.
  EXPECT_EQ(encoding("value_embedding.weight"), "I8_32");
  EXPECT_EQ(encoding("predictor.weight"), "I8_32");
  EXPECT_EQ(encoding("layers.0.attention.query_projection.weight"), "I4M_32");
  EXPECT_EQ(encoding("layers.0.attention.out_projection.weight"), "I4M_32");
  EXPECT_EQ(encoding("layers.0.attention.decay_projection.weight"), "F32");
  EXPECT_EQ(encoding("layers.0.attention.beta_projection.weight"), "F32");
  EXPECT_EQ(encoding("layers.0.attention.convolution.weight"), "F32");
  EXPECT_EQ(encoding("layers.0.router.weight"), "F32");
  // The second map has 150 inputs: whole groups of no size.
  EXPECT_EQ(encoding("layers.0.experts.linear1"), "I4M_32");
  EXPECT_EQ(encoding("layers.0.experts.linear2"), "F32");
  EXPECT_EQ(encoding("layers.1.attention.decay_projection.weight"), "F32");
  EXPECT_EQ(encoding("layers.2.attention.decay_projection.weight"), "I8_32");
  EXPECT_EQ(encoding("layers.2.linear2.weight"), "I4M_32");
  for (const WeightTensor& tensor : source->tensors()) {
    const WeightTensor* from = before->Find(tensor.name);
    ASSERT_NE(from, nullptr) << tensor.name;
    EXPECT_EQ(from->shape, tensor.shape);
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(tensor.encoding, from->encoding);
    }
  }
  EXPECT_EQ(source->tensors().size(), before->tensors().size());
}

TEST_F(QuantiseTest, RulesKeepMatrices) {
  const ModelConfig config = ConfigOf("linear");
  Write(config);
  const auto encodings = [&](const std::vector<KeepRule>& keep) {
    Quantise({4, 32, false},
             [&](QuantiseOptions& options) { options.keep = keep; });
    const auto source = OpenWeightSource(to_).Take();
    std::map<std::string, std::string> names;
    for (const WeightTensor& tensor : source->tensors()) {
      names[tensor.name] = tensor.encoding->name;
    }
    return names;
  };
  auto names = encodings({{"*.linear?.weight", "bf16"},
                          {"layers.1.*", "int8-32"},
                          {"layers.1.linear2.weight", "stored"},
                          {"predictor*", "int4m"}});
  EXPECT_EQ(names["layers.0.linear1.weight"], "BF16");
  EXPECT_EQ(names["layers.1.linear1.weight"], "I8_32");
  EXPECT_EQ(names["layers.1.linear2.weight"], "F32");
  EXPECT_EQ(names["layers.0.attention.out_projection.weight"], "I4_32");
  EXPECT_EQ(names["predictor.weight"], "I4M_32");
  EXPECT_EQ(names["predictor.bias"], "F32");
  const auto refused = [&](const KeepRule& rule, const std::string& text) {
    try {
      encodings({rule});
      ADD_FAILURE() << text;
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << error.what();
    }
  };
  refused({"layers.7.*", "int8"}, "layers.7.*");
  refused({"norm.weight", "int8"}, "norm.weight");  // no matrix
  refused({"*", "int3"}, "one of stored, f32, bf16, int8");
  EXPECT_FALSE(std::filesystem::exists(to_ + "/config.json.partial"));
}

TEST_F(QuantiseTest, WhatIsQuantisedIsNotChangedAgain) {
  const ModelConfig config = ConfigOf("gdn");
  Write(config);
  Quantise({4, 32, false});
  const std::string first =
      ReadFile(to_ + "/model.safetensors", 1 << 26).Take();
  QuantiseOptions options;
  options.scheme = {4, 32, false};
  const Quantised again = QuantiseModel(to_, folder_ / "again", options);
  EXPECT_EQ(first,
            ReadFile(folder_ / "again/model.safetensors", 1 << 26).Take());
  EXPECT_GT(again.rounded, 0u);
}

// Numbers of as many bits stay, in whatever groups; of more they are rounded.
TEST_F(QuantiseTest, KeepsGroupsOfAsManyBits) {
  const ModelConfig config = ConfigOf("linear");
  Write(config);
  Quantise({8, 32, false});
  const auto first = NumbersOf(to_);
  QuantiseOptions options;
  options.scheme = {8, 128, false};
  QuantiseModel(to_, folder_ / "again", options);
  EXPECT_EQ(first, NumbersOf(folder_ / "again"));
  options.scheme = {4, 32, false};
  QuantiseModel(to_, folder_ / "fewer", options);
  const auto source = OpenWeightSource(folder_ / "fewer").Take();
  EXPECT_STREQ(source->Find("layers.0.linear1.weight")->encoding->name,
               "I4_32");
  EXPECT_STREQ(source->Find("predictor.weight")->encoding->name, "I8_32");
}

TEST_F(QuantiseTest, ContinuesWhereItStopped) {
  const ModelConfig config = ConfigOf("linear");
  Write(config);
  Quantise({4, 32, true});
  const std::string whole =
      ReadFile(to_ + "/model.safetensors", 1 << 26).Take();
  int reports = 0;
  const auto run = [&](int stop_at) {
    reports = 0;
    QuantiseOptions options;
    options.scheme = {4, 32, true};
    options.convert.step = 4096;
    uint64_t first = 0;
    options.convert.progress = [&](uint64_t done, uint64_t) {
      if (reports == 0) first = done;
      return reports++ != stop_at;
    };
    try {
      QuantiseModel(from_, folder_ / "parts", options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
    }
    return first;
  };
  EXPECT_EQ(run(8), 0u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "parts/config.json"));
  EXPECT_GT(run(-1), 0u);
  EXPECT_EQ(whole,
            ReadFile(folder_ / "parts/model.safetensors", 1 << 26).Take());
}

TEST_F(QuantiseTest, RefusesWeightsThatCannotBeRounded) {
  const ModelConfig config = ConfigOf("linear");
  for (const float bad : {NAN, INFINITY, 1e30f}) {
    Tensors tensors = RandomTensors(config, 1);
    tensors["layers.1.linear1.weight"][700] = bad;
    std::filesystem::create_directories(from_);
    WriteModel(from_, config, tensors);
    try {
      Quantise({8, 32, false});
      ADD_FAILURE() << bad;
    } catch (const FormatError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("layers.1.linear1.weight"), what.npos) << what;
      EXPECT_EQ(what.find('\n'), what.npos);
    }
    EXPECT_FALSE(std::filesystem::exists(to_ + "/config.json"));
  }
}

TEST_F(QuantiseTest, ScalesThatAreNoNumbersAreNotOpened) {
  const ModelConfig config = ConfigOf("linear");
  Write(config);
  Quantise({8, 32, false});
  std::string bytes = ReadFile(to_ + "/model.safetensors", 1 << 26).Take();
  // The last tensor's scales end the file.
  bytes[bytes.size() - 1] = '\x7E';
  WriteFileAtomically(to_ + "/model.safetensors", bytes);
  const auto model = Model::Open(to_);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), ErrorCode::kFormat);
  EXPECT_NE(std::string(model.error().what()).find("NaN or infinity"),
            std::string::npos);
}

// A text of tokens that follow one another by a rule, which random weights feel
// as inputs of unequal directions.
std::vector<int32_t> Text(const ModelConfig& config, int64_t count) {
  std::vector<int32_t> tokens = RandomTokens(config, count, 9);
  for (int32_t& token : tokens) token %= 23;
  return tokens;
}

TEST_F(QuantiseTest, CalibrationBringsLayersNearer) {
  for (const char* layers :
       {"linear,full", "gdn", "mamba2+full,gdn", "linear:feed_forward=moe",
        "rwkv7:value_residual=true,full,rwkv7:value_residual=true",
        "hgrn2:learned_bounds=true,hgrn2:learned_bounds=true"}) {
    SCOPED_TRACE(layers);
    const ModelConfig config = ConfigOf(layers);
    Write(config);
    const auto tokens = Text(config, 200);
    const std::vector<float> want = Logits(Open(from_), tokens);
    const GroupScheme scheme = {4, 32, false};
    Quantise(scheme);
    const double nearest = Distance(want, Logits(Open(to_), tokens));
    std::vector<std::string> files;
    for (const int threads : {1, 3}) {
      const Quantised made = Quantise(scheme, [&](QuantiseOptions& options) {
        options.threads = threads;
        options.sequence = 300;
        options.text = [&](const ModelConfig&, int64_t most) {
          EXPECT_EQ(most,
                    16 * 16384);  // more than 8 * 150 of the widest matrix
          return Text(config, 900);
        };
      });
      EXPECT_EQ(made.calibration_tokens, 900u);
      files.push_back(ReadFile(to_ + "/model.safetensors", 1 << 26).Take());
    }
    EXPECT_EQ(files[0], files[1]);
    EXPECT_LT(Distance(want, Logits(Open(to_), tokens)), 0.8 * nearest);
  }
}

TEST_F(QuantiseTest, CalibrationCanBeStopped) {
  const ModelConfig config = ConfigOf("linear,full");
  Write(config);
  int calls = 0;
  QuantiseOptions options;
  options.scheme = {4, 32, false};
  options.text = [&](const ModelConfig&, int64_t) { return Text(config, 600); };
  options.convert.progress = [&](uint64_t, uint64_t) { return ++calls < 30; };
  try {
    QuantiseModel(from_, to_, options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  options.convert.progress = nullptr;
  EXPECT_GT(QuantiseModel(from_, to_, options).rounded, 0u);
}

TEST(MatchesPattern, TakesStarsAndQuestionMarks) {
  for (const auto& [pattern, text, want] :
       std::vector<std::tuple<const char*, const char*, bool>>{
           {"", "", true},
           {"", "a", false},
           {"*", "", true},
           {"*", "abc", true},
           {"a?c", "abc", true},
           {"a?c", "ac", false},
           {"*.weight", "x.weight", true},
           {"*.weight", "x.weights", false},
           {"a*b*c", "a1b2b3c", true},
           {"a*b*c", "a1b2b3", false},
           {"layers.*.out", "layers.0.attention.out", true},
           {"**a", "bba", true},
           {"a*", "ba", false}}) {
    EXPECT_EQ(MatchesPattern(pattern, text), want) << pattern << " " << text;
  }
}

}  // namespace
}  // namespace tarn::testing
