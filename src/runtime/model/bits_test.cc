// One arithmetic: any split of a prompt, any thread count, any batch and any
// copy of a state give the same bits as single steps on one thread.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "core/feature_map.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

constexpr int64_t kTokens = 300;  // more than two blocks

struct Kind {
  const char* name;
  AttentionKind attention;
  Positions positions;
  RotaryPlace place;
  WeightType weights;
  FeatureMap map = FeatureMap::kElu1;
  Denominator denominator = Denominator::kExact;
  Norm norm = Norm::kPre;
  // Mixed layers, with RMS norms and SwiGLU; empty: one kind, with neither.
  const char* layers = "";
  FeedForwardKind feed_forward = FeedForwardOf("swiglu");  // of mixed layers
  bool parallel = false;  // with GELUs that have a tanh
  CacheType cache = CacheType::kF32;
};

const Kind kKinds[] = {
    {"Linear", MixerKind("linear"), Positions::kLearned, RotaryPlace::kBefore,
     WeightType::kF32},
    {"LinearBF16", MixerKind("linear"), Positions::kSinusoidal,
     RotaryPlace::kBefore, WeightType::kBF16},
    {"LinearRotatedFeatures", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kAfter, WeightType::kF32},
    {"Relu2", MixerKind("linear"), Positions::kNone, RotaryPlace::kBefore,
     WeightType::kF32, FeatureMap::kRelu2},
    {"Poly2Signed", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kPoly2,
     Denominator::kSigned},
    {"Softmax", MixerKind("full"), Positions::kRotary, RotaryPlace::kBefore,
     WeightType::kF32},
    {"PostNorm", MixerKind("linear"), Positions::kRotary, RotaryPlace::kBefore,
     WeightType::kF32, FeatureMap::kElu1, Denominator::kCompat, Norm::kPost},
    {"SoftmaxPostNorm", MixerKind("full"), Positions::kLearned,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPost},
    {"Hybrid", MixerKind("linear"), Positions::kRotary, RotaryPlace::kBefore,
     WeightType::kF32, FeatureMap::kElu1, Denominator::kExact, Norm::kPre,
     "linear,full"},
    {"HybridPostNormBF16", MixerKind("linear"), Positions::kLearned,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kRelu,
     Denominator::kExact, Norm::kPost, "full,linear"},
    {"HybridRotatedFeatures", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kAfter, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre, "linear,full,linear:feature_map=relu"},
    {"AftSimple", MixerKind("aft-simple"), Positions::kLearned,
     RotaryPlace::kBefore, WeightType::kF32},
    {"HybridAftSimple", MixerKind("linear"), Positions::kSinusoidal,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre, "linear,aft-simple,full"},
    {"DecayFamilies", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "retnet,lightning,mamba2,gla,hgrn2,rwkv6,mamba1,short-conv,rg-lru,mlstm"},
    {"CacheBF16", MixerKind("linear"), Positions::kRotary, RotaryPlace::kBefore,
     WeightType::kF32, FeatureMap::kElu1, Denominator::kExact, Norm::kPre,
     "full:key_heads=2,full:window=20:key_heads=1,gated-full",
     FeedForwardOf("swiglu"), false, CacheType::kBF16},
    {"CacheInt8", MixerKind("linear"), Positions::kLearned,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "full:key_heads=2,local:local_context=30,full:window=20,mamba2+full,full:"
     "latent_width=37:shared_key_width=6:qkv_bias=false",
     FeedForwardOf("swiglu"), false, CacheType::kInt8},
    {"MappedFamilies", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "norm-linear,norm-linear:qk_map=hadamard,norm-linear:qk_map=hedgehog:"
     "divided_sums=true,norm-linear:qk_map=dpfp:unit_keys=true"},
    {"DeltaFamiliesBF16", MixerKind("linear"), Positions::kLearned,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPost, "deltanet,gdn,kda,rwkv7"},
    {"GatedSoftmax", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre, "gdn,gated-full:key_heads=2,gated-full"},
    {"ChannelMix", MixerKind("linear"), Positions::kNone, RotaryPlace::kBefore,
     WeightType::kBF16, FeatureMap::kElu1, Denominator::kExact, Norm::kPost,
     "rwkv7,linear,full", FeedForwardOf("channel-mix")},
    {"Mixture", MixerKind("linear"), Positions::kNone, RotaryPlace::kBefore,
     WeightType::kBF16, FeatureMap::kElu1, Denominator::kExact, Norm::kPre,
     "linear:feed_forward=moe,full,gdn:feed_forward=moe"},
    {"PartsByLayer", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "mamba2:feed_forward=none,linear:feed_forward=geglu,"
     "full:feed_forward=relu2,gdn"},
    {"NormsOnBothSides", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kBoth, "linear:feed_forward=moe,full,gdn"},
    {"ParallelMixers", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "mamba2+full:n_heads=2:d_key=34,linear+gdn:branch_factor=0.5+local:"
     "local_context=40,full"},
    {"ParallelMixersBF16", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kBoth, "mamba1+full:branch_factor=-2.0",
     FeedForwardOf("channel-mix")},
    {"ValueResidual", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "rwkv7:value_residual=true,full,gla+rwkv7:value_residual=true",
     FeedForwardOf("channel-mix")},
    {"LearnedBounds", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kBF16, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "hgrn2:learned_bounds=true,full,gla+hgrn2:learned_bounds=true",
     FeedForwardOf("mlp")},
    {"NormsAfterParts", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kAfter, "rwkv7,linear,full",
     FeedForwardOf("channel-mix")},
    {"NormsByLayer", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre, "gdn,full:norm=after,linear:norm=post"},
    {"LayersRotateByThemselves", MixerKind("linear"), Positions::kRotary,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre,
     "full:rotate=false,full:own_rotary_base=50:window=9,linear",
     FeedForwardOf("geglu-tanh")},
    {"ParallelResidual", MixerKind("linear"), Positions::kNone,
     RotaryPlace::kBefore, WeightType::kF32, FeatureMap::kElu1,
     Denominator::kExact, Norm::kPre, "full,gdn,linear", FeedForwardOf("mlp"),
     /*parallel=*/true},
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

// The plain step loop on one thread, kept for every later comparison.
class ModelBitsTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    config_ = WideConfig();
    config_.attention = GetParam().attention;
    if (config_.attention == MixerKind("aft-simple")) SetAftSimple(config_);
    config_.positions = GetParam().positions;
    config_.rotary_place = GetParam().place;
    SetKey(config_, "feature_map", GetParam().map);
    SetKey(config_, "denominator", GetParam().denominator);
    config_.norm = GetParam().norm;
    if (config_.norm == Norm::kPost) config_.activation = Activation::kRelu;
    config_.parallel_residual = GetParam().parallel;
    if (GetParam().parallel) config_.activation = Activation::kGeluTanh;
    if (!config_.HasPlainSums()) {
      config_.embedding_factor = 3.0;
      config_.residual_factor = 0.5;
      config_.logit_factor = 0.25;
      config_.logit_softcap = 1.5;
      config_.norm_offset = 1.0;
    }
    if (*GetParam().layers != '\0') {
      SetLayers(config_, GetParam().layers);
      SetRmsSwiglu(config_);
      config_.feed_forward = GetParam().feed_forward;
      config_.n_layers =
          std::max<int64_t>(3, static_cast<int64_t>(config_.layers.size()));
    }
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    for (const int threads : {1, 2, 3}) models_.push_back(Open(threads));
    tokens_ = RandomTokens(config_, kTokens, 2);
    logits_.resize(static_cast<size_t>(kTokens * config_.vocab_size));
    for (int64_t t = 0; t < kTokens; ++t) {
      models_[0].Step(steps_[0], tokens_[t], Logits(t));
    }
  }

  Model Open(int threads) {
    Model model = Model::Open(folder_.path(), {.weights = GetParam().weights,
                                               .threads = threads,
                                               .cache = GetParam().cache})
                      .Take();
    steps_.emplace_back(model);
    return model;
  }
  float* Logits(int64_t t) { return logits_.data() + t * config_.vocab_size; }
  std::span<const int32_t> Tokens(int64_t begin, int64_t count) const {
    return std::span(tokens_).subspan(static_cast<size_t>(begin),
                                      static_cast<size_t>(count));
  }
  void ExpectLogits(int64_t t, const float* got) {
    EXPECT_EQ(0, std::memcmp(Logits(t), got,
                             static_cast<size_t>(config_.vocab_size) * 4))
        << "token " << t;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::vector<Model> models_;  // of 1, 2 and 3 threads
  std::vector<State> steps_;   // [0] has consumed tokens_ one by one
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
};

TEST_P(ModelBitsTest, AnySplitAndAnyThreadCount) {
  Rng rng(3);
  std::vector<float> last(static_cast<size_t>(config_.vocab_size));
  for (const Model& model : models_) {
    for (int trial = 0; trial < 6; ++trial) {
      State state(model);
      while (state.position() < kTokens) {
        const int64_t at = state.position();
        const uint64_t most = trial == 0 ? kTokens : (trial < 3 ? 20 : 170);
        const int64_t count =
            trial == 0
                ? kTokens
                : std::min<int64_t>(static_cast<int64_t>(1 + rng.Below(most)),
                                    kTokens - at);
        model.Prefill(state, Tokens(at, count), last.data());
        ExpectLogits(at + count - 1, last.data());
      }
      EXPECT_TRUE(state == steps_[0]);
      EXPECT_EQ(steps_[0].Hash(), state.Hash());
    }
    State state(model);
    std::vector<float> all(logits_.size());
    model.Score(state, tokens_, all.data());
    EXPECT_EQ(0, std::memcmp(all.data(), logits_.data(), all.size() * 4));
    EXPECT_TRUE(state == steps_[0]);
  }
}

TEST_P(ModelBitsTest, AnyBatchMates) {
  Rng rng(4);
  for (const Model& model : models_) {
    State watched(model);
    std::vector<State> mates;
    for (int i = 0; i < 5; ++i) mates.emplace_back(model);
    std::vector<float> last(static_cast<size_t>(config_.vocab_size));
    while (watched.position() < kTokens) {
      std::vector<std::vector<int32_t>> others;
      std::vector<Job> jobs;
      for (State& mate : mates) {
        const int64_t count = static_cast<int64_t>(rng.Below(90));
        others.push_back(RandomTokens(config_, count, rng.Next()));
        jobs.push_back({.state = &mate, .tokens = others.back()});
      }
      const int64_t at = watched.position();
      const int64_t count = std::min<int64_t>(
          static_cast<int64_t>(1 + rng.Below(60)), kTokens - at);
      const auto place = jobs.begin() + static_cast<int64_t>(rng.Below(6));
      jobs.insert(place, {&watched, Tokens(at, count), last.data(), false});
      model.StepBatch(jobs);
      ExpectLogits(at + count - 1, last.data());
    }
    EXPECT_TRUE(watched == steps_[0]);
  }
}

TEST_P(ModelBitsTest, OneTokenOfManySequences) {
  const Model& model = models_[1];
  std::vector<State> states;
  std::vector<std::vector<float>> last(7);
  for (int i = 0; i < 7; ++i) {
    states.emplace_back(model);
    last[i].resize(static_cast<size_t>(config_.vocab_size));
  }
  // Sequence i runs i tokens late: every row of a batch is at its own position.
  for (int64_t t = 0; t < 40; ++t) {
    std::vector<Job> jobs;
    for (int64_t i = 0; i < std::min<int64_t>(t + 1, 7); ++i) {
      jobs.push_back({&states[i], Tokens(t - i, 1), last[i].data(), false});
    }
    model.StepBatch(jobs);
    for (int64_t i = 0; i < static_cast<int64_t>(jobs.size()); ++i) {
      ExpectLogits(t - i, last[i].data());
    }
  }
}

TEST_P(ModelBitsTest, ClonesAndCopiesAreIndependent) {
  const Model& model = models_[0];
  State state(model);
  model.Prefill(state, Tokens(0, 100));
  State clone = state.Clone();
  EXPECT_TRUE(clone == state);
  EXPECT_EQ(clone.bytes(), state.bytes());
  const uint64_t hash = state.Hash();
  model.Prefill(clone, RandomTokens(config_, 150, 9));  // elsewhere
  EXPECT_FALSE(clone == state);
  EXPECT_EQ(hash, state.Hash());
  clone.CopyFrom(state);
  EXPECT_TRUE(clone == state);
  State late(model);
  late.CopyFrom(state);  // into a state that never saw a token
  for (State* each : {&state, &clone, &late}) {
    model.Prefill(*each, Tokens(100, kTokens - 101));
    model.Step(*each, tokens_.back(), logits_.data());
    EXPECT_TRUE(*each == steps_[0]);
  }
}

TEST_P(ModelBitsTest, ResetIsTheInitialState) {
  const Model& model = models_[0];
  State state(model);
  std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
  model.Prefill(state, Tokens(20, 50), logits.data());
  state.Reset();
  EXPECT_TRUE(state == State(model));
  EXPECT_EQ(0, state.position());
  EXPECT_TRUE(state.last_logits().empty());
  model.Prefill(state, Tokens(0, kTokens), logits.data());
  EXPECT_TRUE(state == steps_[0]);
}

// Wherever a call is stopped, its states are those before it.
TEST_P(ModelBitsTest, AStopTakesTheCallBack) {
  std::vector<float> last(static_cast<size_t>(config_.vocab_size));
  std::vector<float> all(logits_.size());
  for (const Model& model : models_) {
    State state(model), mate(model);
    model.Prefill(state, Tokens(0, 30), last.data());
    const State before = state.Clone();
    const auto rest = Tokens(30, kTokens - 31);
    const bool once = &model == &models_[1];
    for (const int at : once ? std::vector{1, 3, 9} : std::vector<int>{}) {
      int asked = 0;
      // A check that takes longer than the interval is asked before every task.
      const StopCheck stop = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(21));
        return ++asked == at;
      };
      const auto expect_stop = [&](const auto& call) {
        asked = 0;
        try {
          call();
          ADD_FAILURE() << "not stopped, asked " << asked;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
        }
        EXPECT_TRUE(state == before) << at;
        EXPECT_TRUE(mate == State(model)) << at;
      };
      expect_stop([&] { model.Prefill(state, rest, last.data(), stop); });
      expect_stop([&] { model.Score(state, rest, all.data(), stop); });
      std::vector<Job> jobs = {{&state, rest, last.data(), false},
                               {&mate, rest, nullptr, false}};
      expect_stop([&] { model.StepBatch(jobs, stop); });
    }
    // In a later block, when the position has moved on.
    const StopCheck late = [&] { return mate.position() > 0; };
    std::vector<int32_t> many(tokens_);
    many.insert(many.end(), tokens_.begin(), tokens_.end());
    EXPECT_THROW(model.Prefill(mate, many, nullptr, late), Error);
    EXPECT_TRUE(mate == State(model));
    const StopCheck never = [] { return false; };
    model.Prefill(state, rest, nullptr, never);
    model.Prefill(state, Tokens(kTokens - 1, 1), last.data(), never);
    EXPECT_TRUE(state == steps_[0]);
    ExpectLogits(kTokens - 1, last.data());
  }
}

TEST_P(ModelBitsTest, ManyThreadsShareAModel) {
  const Model& model = models_[2];
  std::vector<State> states;
  for (int i = 0; i < 4; ++i) states.emplace_back(model);
  std::vector<std::thread> threads;
  for (State& state : states) {
    threads.emplace_back([&] {
      std::vector<float> last(static_cast<size_t>(config_.vocab_size));
      while (state.position() < kTokens) {
        const int64_t at = state.position();
        model.Prefill(state, Tokens(at, std::min<int64_t>(37, kTokens - at)),
                      last.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const State& state : states) EXPECT_TRUE(state == steps_[0]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelBitsTest, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tarn::testing
