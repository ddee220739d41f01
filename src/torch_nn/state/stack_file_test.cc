// States of stacks in files: the same bits back for every mixer that has a
// state, and a FormatError that names what differs for every other file.
#include "torch_nn/state/stack_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/feature_map.h"
#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "core/test_util.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/seq2seq.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace stack_file_test {

constexpr int64_t kVocab = 13;

ModelConfig Config(Arch arch = Arch::kDecoder) {
  ModelConfig config;
  config.arch = arch;
  config.vocab_size = kVocab;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_key = 4;
  config.d_value = 4;
  config.d_ff = 20;
  config.max_positions = 40;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
  return config;
}

// Every kind with a state, and every tensor that a state may have.
std::vector<ModelConfig> Variants() {
  std::vector<ModelConfig> configs;
  using Change = std::function<void(ModelConfig&)>;
  const std::vector<Change> changes = {
      [](ModelConfig&) {},
      [](ModelConfig& c) { SetKey(c, "denominator", Denominator::kSigned); },
      [](ModelConfig& c) {
        SetKey(c, "feature_map", FeatureMap::kRff), SetKey(c, "n_dims", 9);
      },
      [](ModelConfig& c) {
        SetKey(c, "feature_map", FeatureMap::kFavor),
            SetKey(c, "stabilise", true);
      },
      [](ModelConfig& c) {
        c.positions = Positions::kRotary;
        c.rotary_place = RotaryPlace::kAfter;
      },
      [](ModelConfig& c) { c.attention = MixerKind("full"), c.d_value = 3; },
      [](ModelConfig& c) {
        c.attention = MixerKind("local"), SetKey(c, "local_context", 4);
      },
      [](ModelConfig& c) {
        c.attention = MixerKind("exact-topk"), SetKey(c, "topk", 3);
      },
      [](ModelConfig& c) {
        c.attention = MixerKind("aft-full"),
        SetKey(c, "max_sequence_length", 30);
        SetKey(c, "aft_parameterization", 5);
      },
      [](ModelConfig& c) { c.attention = MixerKind("aft-simple"); },
      [](ModelConfig& c) { c.cross_attention = MixerKind("full"); },
      [](ModelConfig& c) { c.layers = LayersFromText("linear,full"); },
      // Two caches in one layer, one of them a window.
      [](ModelConfig& c) {
        c.layers = LayersFromText("local:local_context=2+linear+full,full");
      },
      [](ModelConfig& c) {
        c.layers = LayersFromText(
            "local:local_context=4,linear:feature_map=favor:stabilise=true");
      },
  };
  for (const Arch arch : {Arch::kDecoder, Arch::kSeq2seq}) {
    for (const Change& change : changes) {
      ModelConfig config = Config(arch);
      change(config);
      if (arch == Arch::kDecoder && config.cross_attention != kDerivedMixer) {
        continue;
      }
      FinishConfig(config);
      configs.push_back(config);
    }
  }
  return configs;
}

std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.arch), " ", LayersText(c), " ", Name(c.cross_attention),
                " ", Name(KeyOf<FeatureMap>(c, "feature_map")), " ",
                Name(KeyOf<Denominator>(c, "denominator")));
}

std::shared_ptr<ModelImpl> EvalModel(const ModelConfig& config,
                                     uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto model = MakeModel(config);
  model->eval();
  return model;
}

torch::Tensor Tokens(int64_t batch, int64_t seq_len) {
  return torch::randint(kVocab, {batch, seq_len}, torch::kInt64);
}

std::pair<torch::Tensor, StackState> Prefill(ModelImpl& model,
                                             const torch::Tensor& tokens,
                                             const StackState& state,
                                             const torch::Tensor& lengths) {
  if (auto* m = model.as<Seq2Seq>()) return m->Prefill(tokens, state, lengths);
  return model.as<LanguageModel>()->Prefill(tokens, state, lengths);
}

// Three sequences that have read 5, 0 and 2 tokens of sources of 4, 1 and 3.
StackState ReadState(ModelImpl& model) {
  const torch::NoGradGuard no_grad;
  StackState state;
  if (auto* m = model.as<Seq2Seq>()) {
    state = m->Encode(Tokens(3, 4), torch::tensor({4, 1, 3}, torch::kInt64));
  } else {
    state = model.as<LanguageModel>()->InitialState(3);
  }
  return Prefill(model, Tokens(3, 5), state,
                 torch::tensor({5, 0, 2}, torch::kInt64))
      .second;
}

class StackStateFile : public ::testing::Test {
 protected:
  using Metadata = std::map<std::string, std::string>;
  using Tensors = std::vector<TensorToWrite>;

  StackStateFile() : path_(folder_ / "a.state"), good_(folder_ / "good.state") {
    torch::set_num_threads(1);
  }

  void ExpectRefused(const ModelImpl& model, const std::string& part) {
    const Error error = ErrorOf([&] { LoadState(model, path_); });
    EXPECT_EQ(ErrorCode::kFormat, error.code());
    EXPECT_TRUE(Contains(error.what(), path_)) << error.what();
    EXPECT_TRUE(Contains(error.what(), part)) << part << "\n" << error.what();
  }
  // The good file again with other metadata or tensors; the hash stays.
  void Rewrite(const std::function<void(Metadata&, Tensors&)>& change) {
    const SafetensorsFile file = SafetensorsFile::Open(good_).Take();
    Metadata metadata = file.metadata();
    Tensors tensors;
    for (const TensorEntry& entry : file.tensors()) {
      tensors.push_back(
          {entry.name, entry.dtype, entry.shape, file.Data(entry)});
    }
    change(metadata, tensors);
    WriteSafetensors(path_, tensors, metadata);
  }

  TemporaryFolder folder_;
  const std::string path_, good_;  // a file to try, and a valid one
};

TEST_F(StackStateFile, ComesBackBitForBitAndContinues) {
  const torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants()) {
    SCOPED_TRACE(TextOf(config));
    const auto model = EvalModel(config);
    StackState state = ReadState(*model);
    SaveState(*model, state, path_);
    // Another model with the same weights, as in another process.
    StackState loaded = LoadState(*EvalModel(config), path_);
    EXPECT_TRUE(loaded == state);
    for (const int64_t pieces : {1, 4}) {
      const torch::Tensor tokens = Tokens(3, pieces);
      const auto wanted = Prefill(*model, tokens, state, {});
      const auto given = Prefill(*model, tokens, loaded, {});
      EXPECT_TRUE(torch::equal(wanted.first, given.first));
      EXPECT_TRUE(given.second == wanted.second);
      state = wanted.second;
      loaded = given.second;
    }
  }
}

TEST_F(StackStateFile, InitialStatesNoSequencesAndOtherTypes) {
  const torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants()) {
    SCOPED_TRACE(TextOf(config));
    const auto model = EvalModel(config);
    for (const int64_t batch : {0, 2}) {
      const StackState state =
          config.arch == Arch::kSeq2seq
              ? model->as<Seq2Seq>()->Encode(Tokens(batch, 3))
              : model->as<LanguageModel>()->InitialState(batch);
      SaveState(*model, state, path_);
      EXPECT_TRUE(LoadState(*model, path_) == state);
    }
  }
  ModelConfig config = Config();
  config.attention = MixerKind("full");
  const auto half = EvalModel(config);
  half->to(torch::kBFloat16);
  const StackState state = ReadState(*half);
  ASSERT_EQ(state.layers[0]["keys"].scalar_type(), torch::kBFloat16);
  SaveState(*half, state, path_);
  EXPECT_TRUE(LoadState(*half, path_) == state);
  ExpectRefused(*EvalModel(config), "layers.0.keys: want Float");
  const auto wide = EvalModel(config);
  wide->to(torch::kFloat64);
  EXPECT_THROW(SaveState(*wide, ReadState(*wide), path_), DTypeError);
}

TEST_F(StackStateFile, OtherModelsAreRefused) {
  ModelConfig config = Config();
  SetKey(config, "feature_map", FeatureMap::kRff);
  const auto model = EvalModel(config);
  SaveState(*model, ReadState(*model), path_);
  // After more training the state still fits; with other features it does not.
  const auto trained = EvalModel(config);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : trained->parameters()) parameter.mul_(1.5);
  }
  EXPECT_NO_THROW(LoadState(*trained, path_));
  SetKey(config, "feature_seed", 1);
  ExpectRefused(*EvalModel(config), ": model");
  SetKey(config, "feature_seed", 0);
  const auto redrawn = EvalModel(config);
  redrawn->RedrawFeatures(1);
  ExpectRefused(*redrawn, ": model");
  SetKey(config, "denominator", Denominator::kCompat);
  ExpectRefused(*EvalModel(config), ": model");
  ExpectRefused(*EvalModel(Config(Arch::kSeq2seq)), ": model");
  ModelConfig classifier = Config(Arch::kEncoder);
  classifier.n_classes = 2;
  EXPECT_THROW(LoadState(*EvalModel(classifier), path_), ArgumentError);
  config = Config();
  config.attention = MixerKind("reformer");
  EXPECT_THROW(LoadState(*EvalModel(config), path_), ArgumentError);
}

TEST_F(StackStateFile, StatesOfOtherModelsAreNotSaved) {
  const auto model = EvalModel(Config());
  const auto save = [&](const StackState& state) {
    return ErrorOf([&] { SaveState(*model, state, path_); }).code();
  };
  EXPECT_EQ(ErrorCode::kArgument, save({}));
  ModelConfig config = Config();
  config.attention = MixerKind("full");
  EXPECT_EQ(ErrorCode::kArgument, save(ReadState(*EvalModel(config))));
  StackState state = ReadState(*model);
  state.layers[1].lengths = state.layers[1].lengths + 1;
  EXPECT_EQ(ErrorCode::kArgument, save(state));
  state = ReadState(*model);
  state.layers[1]["z"] = torch::Tensor();
  EXPECT_EQ(ErrorCode::kArgument, save(state));
  EXPECT_EQ(0u, folder_.FileCount());
  const Error error = ErrorOf(
      [&] { SaveState(*model, ReadState(*model), folder_ / "no/where"); });
  EXPECT_EQ(ErrorCode::kIo, error.code());
}

TEST_F(StackStateFile, MetadataAndLengthsAreChecked) {
  ModelConfig config = Config(Arch::kSeq2seq);
  config.attention = MixerKind("full");
  const auto model = EvalModel(config);
  SaveState(*model, ReadState(*model), good_);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"format", "pt"},
      {"version", "1"},
      {"version", "3"},
      {"model", "0123"},
      {"layers.0.lengths", "5,0"},
      {"layers.0.lengths", "5,0,2,"},
      {"layers.0.lengths", "5,x,2"},
      {"layers.0.lengths", ""},
      {"layers.0.lengths", "6,0,2"},
      {"layers.1.lengths", "4,0,2"},
      {"layers.2.lengths", "-1,0,2"},
      {"layers.2.lengths", "99999999999999999999,0,2"},
      {"memories.1.lengths", "4,1,5"},
      {"memories.1.lengths", "4,1,2"}};
  for (const auto& [key, value] : changes) {
    SCOPED_TRACE(StrCat(key, " ", value));
    Rewrite([&](Metadata& metadata, Tensors&) { metadata[key] = value; });
    ExpectRefused(*model, key == "layers.0.lengths" ? "layers." : key);
    Rewrite([&](Metadata& metadata, Tensors&) { metadata.erase(key); });
    ExpectRefused(*model, key);
  }
  // The error for an older file says what to do.
  Rewrite([&](Metadata& metadata, Tensors&) { metadata["version"] = "1"; });
  ExpectRefused(*model, "feed the model the tokens again");
  // A header that claims many sequences takes no memory for them.
  Rewrite([](Metadata& metadata, Tensors&) {
    std::string many = "0";
    for (int i = 0; i < 1 << 18; ++i) many += ",0";
    for (const char* part : {"layers.", "memories."}) {
      for (const int i : {0, 1, 2}) {
        metadata[StrCat(part, i, ".lengths")] = many;
      }
    }
  });
  ExpectRefused(*model, "layers.0.keys: want Float [262145");
  // Lengths that fit are still not those that were saved.
  Rewrite([](Metadata& metadata, Tensors&) {
    for (const int i : {0, 1, 2}) {
      metadata[StrCat("layers.", i, ".lengths")] = "4,0,2";
    }
  });
  ExpectRefused(*model, "contents");
}

TEST_F(StackStateFile, TensorsAreComparedWithWhatTheModelHas) {
  const std::vector<float> more(10000, 0.0f);
  for (const ModelConfig& config : Variants()) {
    SCOPED_TRACE(TextOf(config));
    const auto model = EvalModel(config);
    SaveState(*model, ReadState(*model), good_);
    const size_t count = SafetensorsFile::Open(good_).Take().tensors().size();
    for (size_t i = 0; i < count; ++i) {
      const auto change = [&](const auto& edit) {
        std::string name;
        Rewrite([&](Metadata&, Tensors& tensors) {
          name = tensors[i].name;
          edit(tensors, tensors[i]);
        });
        // The lengths reveal a mask that is missing or too short.
        ExpectRefused(*model, name.substr(0, name.rfind('.')));
      };
      change([&](Tensors& list, auto&) {
        list.erase(list.begin() + static_cast<int64_t>(i));
      });
      change([](auto&, TensorToWrite& t) { t.shape.pop_back(); });
      change([&](auto&, TensorToWrite& t) {
        t.shape.back() += 1, t.data = more.data();
      });
      change([&](auto&, TensorToWrite& t) {
        t.shape[0] += 1, t.data = more.data();
      });
      change([](auto&, TensorToWrite& t) { t.dtype = DType::kBF16; });
    }
    Rewrite([&](Metadata&, Tensors& list) {
      list.push_back({"layers.9.S", DType::kF32, {2}, more.data()});
    });
    ExpectRefused(*model, "no tensor besides");
  }
}

TEST_F(StackStateFile, DamageAnywhereIsFound) {
  ModelConfig config = Config(Arch::kSeq2seq);
  config.cross_attention = MixerKind("full");
  const auto model = EvalModel(config);
  const StackState state = ReadState(*model);
  SaveState(*model, state, path_);
  const std::string good = ReadFile(path_, 1 << 20).Take();
  Rng rng(4);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    if (i % 4 == 0) {
      bytes.resize(rng.Below(bytes.size()));
    } else {  // one bit
      const size_t at = rng.Below(bytes.size());
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Below(8)));
    }
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      // A bit of the header's white space changes nothing.
      EXPECT_TRUE(LoadState(*model, path_) == state);
    } catch (const FormatError& error) {
      ++refused;
      EXPECT_FALSE(Contains(error.what(), "\n"));
    }
  }
  EXPECT_GT(refused, 380);
}

}  // namespace stack_file_test
}  // namespace tarn::nn
