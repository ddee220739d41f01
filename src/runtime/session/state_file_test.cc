// States in files: the same bits back for every kind of state, and an error in
// one line for files of other models, other versions, other sizes, or damaged.
#include "runtime/session/state_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/feature_map.h"
#include "core/file.h"
#include "core/half.h"
#include "core/rng.h"
#include "reference/test_model.h"

namespace tarn::testing {
namespace {

using Metadata = std::map<std::string, std::string>;

// Every kind of state: sums of narrow, wide and signed maps, caches, both in
// one state, and both kinds of memory.
std::vector<ModelConfig> Variants() {
  std::vector<ModelConfig> configs;
  const auto add = [&](Arch arch, const auto& change) {
    ModelConfig config = SmallConfig();
    config.arch = arch;
    config.task = Task::kDerived;
    if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
    change(config);
    FinishConfig(config);
    configs.push_back(config);
  };
  for (const Arch arch : {Arch::kDecoder, Arch::kSeq2seq}) {
    add(arch, [](ModelConfig&) {});
    add(arch,
        [](ModelConfig& c) { SetKey(c, "feature_map", FeatureMap::kPoly2); });
    add(arch, [](ModelConfig& c) {
      SetKey(c, "feature_map", FeatureMap::kIdentity);
      SetKey(c, "denominator", Denominator::kSigned);
    });
    add(arch, [](ModelConfig& c) {
      c.attention = MixerKind("full");
      c.positions = Positions::kRotary;
    });
    add(arch, [](ModelConfig& c) {
      SetLayers(c, "linear,full");
      SetRmsSwiglu(c);
    });
    add(arch, [](ModelConfig& c) { SetLayers(c, "linear,aft-simple"); });
  }
  add(Arch::kDecoder, [](ModelConfig& c) { SetLayers(c, "gdn,full"); });
  add(Arch::kDecoder, [](ModelConfig& c) { SetLayers(c, "rwkv7,mamba2"); });
  add(Arch::kDecoder,
      [](ModelConfig& c) { SetLayers(c, "gdn,gated-full:key_heads=1"); });
  add(Arch::kDecoder, [](ModelConfig& c) {
    SetLayers(c, "rwkv7,full");
    SetChannelMix(c);
  });
  return configs;
}

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() : path_(folder_ / "a.state"), good_(folder_ / "good.state") {}

  Model Open(const ModelConfig& config, uint64_t seed = 1,
             WeightType weights = WeightType::kF32) {
    const std::string dir = folder_ / "model";
    std::filesystem::create_directories(dir);
    WriteModel(dir, config, RandomTensors(config, seed));
    return Model::Open(dir, {.weights = weights, .threads = 1}).Take();
  }
  static State Begin(const Model& model) {
    const ModelConfig& config = model.config();
    return config.arch == Arch::kSeq2seq
               ? model.Encode(RandomTokens(config, 7, 3))
               : State(model);
  }
  // A state that has read `count` tokens and holds logits.
  static State Read(const Model& model, int64_t count) {
    State state = Begin(model);
    std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
    model.Prefill(state, RandomTokens(model.config(), count, 2),
                  count > 0 ? logits.data() : nullptr);
    return state;
  }
  Error LoadError(const Model& model) { return ErrorOfLoad(model, path_); }
  // The error for a file, and the same for its bytes in memory.
  static Error ErrorOfLoad(const Model& model, const std::string& path) {
    Result<State> state = LoadState(model, path);
    const Error error =
        state.ok() ? Error(ErrorCode::kOk, "no error") : state.error();
    if (error.code() == ErrorCode::kIo) return error;
    const std::string bytes = ReadFile(path, 1 << 24).Take();
    // A copy of exactly these bytes: reading past them is found.
    const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
    Result<State> again = LoadState(model, exact, path);
    EXPECT_EQ(state.ok(), again.ok());
    if (state.ok() && again.ok()) {
      EXPECT_TRUE(state.value() == again.value());
    } else if (!again.ok()) {
      EXPECT_STREQ(error.what(), again.error().what());
    }
    return error;
  }
  void ExpectRefused(const Model& model, const std::string& part) {
    const Error error = LoadError(model);
    EXPECT_EQ(ErrorCode::kFormat, error.code());
    EXPECT_TRUE(Contains(error.what(), part)) << error.what();
    EXPECT_TRUE(Contains(error.what(), path_)) << error.what();
    EXPECT_FALSE(Contains(error.what(), "\n"));
  }
  // The good file again with other metadata or tensors; the hash stays.
  void Rewrite(const std::function<void(Metadata&,
                                        std::vector<TensorToWrite>&)>& change) {
    const SafetensorsFile file = SafetensorsFile::Open(good_).Take();
    Metadata metadata = file.metadata();
    std::vector<TensorToWrite> tensors;
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

TEST_F(StateFileTest, ComesBackBitForBitAndContinues) {
  for (const ModelConfig& config : Variants()) {
    const Model model = Open(config);
    for (const int64_t count : {0, 1, 13}) {
      SCOPED_TRACE(StrCat(ConfigToJson(config), count));
      State state = Read(model, count);
      SaveState(model, state, path_);
      // Into memory: the bytes of the file, as many as announced.
      std::string bytes;
      StringSink sink(bytes);
      SaveState(model, state, sink);
      EXPECT_EQ(ReadFile(path_, 1 << 24).Take(), bytes);
      EXPECT_EQ(bytes.size(), StateFileBytes(model, state));
      EXPECT_EQ(ErrorCode::kOk, LoadError(model).code());
      State loaded = LoadState(model, path_).Take();
      EXPECT_TRUE(loaded == state);
      EXPECT_EQ(state.Hash(), loaded.Hash());
      EXPECT_EQ(count, loaded.position());
      EXPECT_EQ(state.source_len(), loaded.source_len());
      EXPECT_EQ(count > 0, !loaded.last_logits().empty());
      std::vector<float> wanted(static_cast<size_t>(config.vocab_size)), given;
      given.resize(wanted.size());
      for (const int32_t token : RandomTokens(config, 45, 5)) {
        model.Step(state, token, wanted.data());
        model.Step(loaded, token, given.data());
        ASSERT_EQ(wanted, given);
      }
      EXPECT_TRUE(loaded == state);
    }
  }
}

TEST_F(StateFileTest, SameBytesForTheSameStateAndOneFile) {
  const Model model = Open(SmallConfig());
  const State state = Read(model, 5);
  SaveState(model, state, path_);
  const std::string first = ReadFile(path_, 1 << 20).Take();
  SaveState(model, state.Clone(), path_);
  EXPECT_EQ(first, ReadFile(path_, 1 << 20).Take());
  EXPECT_EQ(2u, folder_.FileCount());  // and the model's folder
  // Written in one process, read in another: here, by the model opened again.
  const Model again = Open(SmallConfig());
  EXPECT_EQ(state.Hash(), LoadState(again, path_).Take().Hash());
}

// A tensor may hold its initial value even if that is not finite; another
// tensor may not.
TEST_F(StateFileTest, AftSimpleBeginsWithMinusInfinity) {
  ModelConfig config = SmallConfig();
  SetAftSimple(config);
  FinishConfig(config);
  const Model model = Open(config);
  const State fresh(model);
  SaveState(model, fresh, good_);
  const SafetensorsFile file = SafetensorsFile::Open(good_).Take();
  const TensorEntry* m = file.Find("layers.1.m");
  ASSERT_NE(nullptr, m);
  EXPECT_EQ((std::vector<int64_t>{3, 6}), m->shape);
  std::vector<float> values(18);
  file.ReadF32(*m, values.data());
  for (const float x : values) {
    EXPECT_EQ(-std::numeric_limits<float>::infinity(), x);
  }
  State loaded = LoadState(model, good_).Take();
  EXPECT_TRUE(loaded == fresh);
  EXPECT_EQ(fresh.Hash(), loaded.Hash());
  State other(model);
  model.Prefill(other, RandomTokens(config, 9, 4));
  model.Prefill(loaded, RandomTokens(config, 9, 4));
  EXPECT_TRUE(loaded == other);
  for (const char* name : {"layers.1.a", "layers.0.b"}) {
    Rewrite([&](Metadata&, std::vector<TensorToWrite>& tensors) {
      for (TensorToWrite& t : tensors) {
        if (t.name == name) t.data = values.data();
      }
    });
    ExpectRefused(model, StrCat(name, "[0]"));
  }
}

TEST_F(StateFileTest, WithoutSourceOrLogits) {
  const Model model = Open(SmallConfigOf(Arch::kSeq2seq));
  const State none(model);  // can only be copied to
  SaveState(model, none, path_);
  EXPECT_TRUE(LoadState(model, path_).Take() == none);
  State quiet = Begin(model);
  model.Step(quiet, 1);
  SaveState(model, quiet, path_);
  const State loaded = LoadState(model, path_).Take();
  EXPECT_TRUE(loaded == quiet);
  EXPECT_TRUE(loaded.last_logits().empty());
  EXPECT_EQ(quiet.memory_bytes(), loaded.memory_bytes());
}

// A state of weights in groups is one of these groups, products and numbers.
TEST_F(StateFileTest, BelongsToTheFormatOfItsModel) {
  const WeightFormat& int8 = *FormatOf(GroupScheme{8, 64, false});
  const WeightFormat& int4 = *FormatOf(GroupScheme{4, 32, false});
  const Model model = Open(SmallConfig(), 1, int8);
  SaveState(model, Read(model, 4), path_);
  EXPECT_TRUE(LoadState(Open(SmallConfig(), 1, int8), path_).ok());
  ExpectRefused(Open(SmallConfig(), 1, int4), ": model");
  ExpectRefused(Open(SmallConfig(), 1, ExactFormat(int8)), ": model");
  ExpectRefused(Open(SmallConfig(), 2, int8), ": model");
  ExpectRefused(Open(SmallConfig()), ": model");
}

// bfloat16 files are held as they are or widened, with the same results.
TEST_F(StateFileTest, MovesBetweenExactFormats) {
  const ModelConfig config = SmallConfig();
  const Tensors tensors = RandomTensors(config, 1);
  std::map<std::string, std::vector<uint16_t>> rounded;
  std::vector<TensorToWrite> list;
  for (const auto& [name, shape] : WeightShapes(config)) {
    std::vector<uint16_t>& halves = rounded[name];
    for (const float x : tensors.at(name)) halves.push_back(F32ToBF16(x));
    list.push_back({name, DType::kBF16, shape, halves.data()});
  }
  (void)Open(config);  // writes the directory
  WriteSafetensors(folder_ / "model/model.safetensors", list, {});
  const auto open = [&](WeightType weights) {
    return Model::Open(folder_ / "model", {.weights = weights}).Take();
  };
  const Model wide = open(WeightType::kF32);
  SaveState(wide, Read(wide, 4), path_);
  for (const WeightType type : {WeightType::kAuto, WeightType::kBF16}) {
    const Model model = open(type);
    Result<State> state = LoadState(model, path_);
    ASSERT_TRUE(state.ok()) << state.error().what();
    EXPECT_TRUE(state.value() == Read(model, 4));
  }
  ExpectRefused(open(*FormatOf(GroupScheme{8, 64, false})), ": model");
}

TEST_F(StateFileTest, BelongsToItsModel) {
  const Model model = Open(SmallConfig());
  SaveState(model, Read(model, 4), path_);
  // Other weights, another type of them, another configuration.
  ExpectRefused(Open(SmallConfig(), 2), ": model");
  ExpectRefused(Open(SmallConfig(), 1, WeightType::kBF16), ": model");
  // In every format of groups, with either arithmetic.
  for (const WeightFormat* format : GroupFormats()) {
    ExpectRefused(Open(SmallConfig(), 1, *format), ": model");
  }
  SaveState(model, Read(model, 4), path_);
  EXPECT_TRUE(LoadState(Open(SmallConfig(), 1, WeightType::kAuto), path_).ok());
  ModelConfig config = SmallConfig();
  SetKey(config, "denominator", Denominator::kCompat);
  ExpectRefused(Open(config), ": model");
  const Model second = Open(SmallConfig());
  const State foreign(second);
  EXPECT_THROW(SaveState(model, foreign, path_), ArgumentError);
  const Model classifier = Open(SmallConfigOf(Arch::kEncoder));
  EXPECT_THROW((void)LoadState(classifier, path_), ArgumentError);
}

// State files outlive the program that wrote them: what names a model stays.
TEST_F(StateFileTest, FingerprintStays) {
  ModelConfig config = SmallConfig();
  config.max_positions = 9;  // that of the file
  Tensors tensors = RandomTensors(config, 1);
  for (auto& [name, values] : tensors) {
    std::fill(values.begin(), values.end(), 0.25f);
  }
  std::filesystem::create_directories(folder_ / "model");
  WriteModel(folder_ / "model", config, tensors);
  const Model model = Model::Open(folder_ / "model", {.threads = 1}).Take();
  SaveState(model, Read(model, 4), path_);
  const SafetensorsFile file = SafetensorsFile::Open(path_).Take();
  EXPECT_EQ("5ad9a32d046fd5d2", file.metadata().at("model"));
}

// A change of one weight anywhere in a sampled block makes another model.
TEST_F(StateFileTest, FingerprintSeesFirstAndLastWeights) {
  const ModelConfig config = SmallConfig();
  const Model model = Open(config);
  SaveState(model, Read(model, 4), path_);
  for (const bool last : {false, true}) {
    Tensors tensors = RandomTensors(config, 1);
    std::vector<float>& weight = tensors.at("layers.1.linear1.weight");
    (last ? weight.back() : weight.front()) += 0.5f;
    WriteModel(folder_ / "model", config, tensors);
    const Model other = Model::Open(folder_ / "model", {.threads = 1}).Take();
    ExpectRefused(other, ": model");
  }
}

TEST_F(StateFileTest, MetadataIsChecked) {
  const Model model = Open(SmallConfig());
  const std::vector<std::pair<const char*, const char*>> changes = {
      {"format", "pt"},    {"format", "a\nb"},
      {"version", "1"},    {"version", "2.0"},
      {"model", "0"},      {"position", "-1"},
      {"position", "5"},   {"position", "9223372036854775808"},
      {"position", "4 "},  {"position", ""},
      {"source_len", "0"}, {"source_len", "-2"},
      {"has_logits", "2"}, {"contents", "0"}};
  for (const auto& [key, value] : changes) {
    SCOPED_TRACE(StrCat(key, " ", value));
    SaveState(model, Read(model, 4), good_);
    Rewrite([&](Metadata& metadata, auto&) { metadata[key] = value; });
    ExpectRefused(model, std::string_view(value) == "5" ? "contents" : key);
    Rewrite([&](Metadata& metadata, auto&) { metadata.erase(key); });
    ExpectRefused(model, key);
  }
}

TEST_F(StateFileTest, TensorsAreComparedWithWhatTheModelNeeds) {
  for (const ModelConfig& config : Variants()) {
    const Model model = Open(config);
    SaveState(model, Read(model, 4), good_);
    const size_t count = SafetensorsFile::Open(good_).Take().tensors().size();
    const auto change = [&](size_t i, const std::string& part,
                            const auto& edit) {
      std::string name;
      Rewrite([&](Metadata&, std::vector<TensorToWrite>& tensors) {
        name = tensors[i].name;
        edit(tensors, tensors[i]);
      });
      ExpectRefused(model, StrCat("tensor ", name, part));
    };
    const std::vector<float> more(100000, 0.0f);
    for (size_t i = 0; i < count; ++i) {
      change(i, ": want", [&](auto& list, auto&) {
        list.erase(list.begin() + static_cast<int64_t>(i));
      });
      change(i, ": want", [&](auto&, TensorToWrite& t) { t.shape.pop_back(); });
      change(i, ": want", [&](auto&, TensorToWrite& t) {
        t.shape.back() += 1, t.data = more.data();
      });
      change(i, ": want",
             [&](auto&, TensorToWrite& t) { t.dtype = DType::kBF16; });
      std::vector<float> values;
      // -infinity is left out: m of aft-simple holds it before the first token.
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity()}) {
        change(i, "[1]", [&](auto&, TensorToWrite& t) {
          int64_t elements = 1;
          for (const int64_t size : t.shape) elements *= size;
          const auto* from = static_cast<const float*>(t.data);
          values.assign(from, from + elements);
          values[1] = bad;
          t.data = values.data();
        });
      }
    }
    Rewrite([&](auto&, auto& list) {
      list.push_back({"more\n", DType::kF32, {2}, more.data()});
    });
    ExpectRefused(model, "no tensor except");
  }
}

// A cache or a source as long as a header claims takes no memory before the
// file is known to hold it.
TEST_F(StateFileTest, GiantCountsAreRefusedWithoutTheMemory) {
  ModelConfig config = SmallConfigOf(Arch::kSeq2seq);
  config.attention = MixerKind("full");
  config.cross_attention = MixerKind("full");
  const Model model = Open(config);
  SaveState(model, Read(model, 4), good_);
  for (const char* key : {"position", "source_len"}) {
    for (const char* value : {"2147483648", "4503599627370496"}) {
      Rewrite([&](Metadata& metadata, auto&) { metadata[key] = value; });
      ExpectRefused(model, "want");
    }
  }
}

TEST_F(StateFileTest, DamageAnywhereIsFound) {
  const Model model = Open(SmallConfig());
  const State state = Read(model, 4);
  SaveState(model, state, path_);
  const std::string good = ReadFile(path_, 1 << 22).Take();
  Rng rng(4);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good;
    if (i % 3 == 0) {
      bytes.resize(rng.Below(bytes.size()));
    } else {  // one bit: of the header, or anywhere
      const size_t at = rng.Below(i % 3 == 1 ? 600 : bytes.size());
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Below(8)));
    }
    std::ofstream(path_, std::ios::binary) << bytes;
    const Error error = LoadError(model);  // of the file, and of its bytes
    if (error.code() != ErrorCode::kOk) {
      ++refused;
      EXPECT_FALSE(Contains(error.what(), "\n"));
      continue;
    }
    // White space around the header's end may change what nothing depends on.
    EXPECT_TRUE(LoadState(model, path_).Take() == state);
  }
  EXPECT_GT(refused, 570);
}

// A sink that counts, and fails when its room is used up.
struct PickySink final : ByteSink {
  explicit PickySink(size_t room) : room(room) {}
  void Write(const void*, size_t bytes) override {
    largest = std::max(largest, bytes);
    if (bytes > room) throw IoError("sink", "room", "none left");
    room -= bytes;
  }
  size_t room, largest = 0;
};

// What a sink throws reaches the caller; a state is written from where it is
// stored, one run of a tensor at a time.
TEST_F(StateFileTest, SinksOfTheCaller) {
  const Model model = Open(SmallConfig());
  const State state = Read(model, 9);
  const uint64_t bytes = StateFileBytes(model, state);
  PickySink enough(bytes), short_of_one(bytes - 1);
  SaveState(model, state, enough);
  EXPECT_EQ(0u, enough.room);
  EXPECT_LT(enough.largest, bytes / 2);
  EXPECT_THROW(SaveState(model, state, short_of_one), IoError);
}

TEST_F(StateFileTest, WhatIsNoNumberIsNotSaved) {
  const ModelConfig config = SmallConfig();
  Tensors tensors = RandomTensors(config, 1);
  tensors.at("layers.0.attention.key_projection.bias")[2] =
      std::numeric_limits<float>::quiet_NaN();
  std::filesystem::create_directories(folder_ / "model");
  WriteModel(folder_ / "model", config, tensors);
  const Model model = Model::Open(folder_ / "model", {.threads = 1}).Take();
  const State state = Read(model, 2);
  EXPECT_THROW(SaveState(model, state, path_), NumericError);
  EXPECT_THROW(SaveState(model, State(model), folder_ / "no/where"), IoError);
  EXPECT_EQ(ErrorCode::kIo, LoadError(model).code());  // nothing was written
}

}  // namespace
}  // namespace tarn::testing
