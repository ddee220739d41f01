// A decode step takes no memory: neither by operator new nor by malloc, on one
// thread or two, for weights of either type and attention of either kind, maps
// in the kernel and outside of it, language models and decoders that read a
// source, for one sequence and for many. src/runtime/model/allocation_test.cc
// counts operator new over every kind of positions.
#include <gtest/gtest.h>

#include <vector>

#include "allocation_count.h"
#include "core/feature_map.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"
#include "runtime/sampling/sampler.h"

namespace tarn::testing {
namespace {

constexpr int kSequences = 3;
constexpr int64_t kPrompt = 40;

struct Case {
  AttentionKind attention = MixerKind("linear");
  FeatureMap map = FeatureMap::kElu1;
  Denominator denominator = Denominator::kExact;
  Arch arch = Arch::kDecoder;
};

const Case kCases[] = {
    {},
    {MixerKind("full")},
    {.map = FeatureMap::kRelu2},
    {.map = FeatureMap::kPoly2, .denominator = Denominator::kSigned},
    {.arch = Arch::kSeq2seq},
    {.attention = MixerKind("full"), .arch = Arch::kSeq2seq},
    {.map = FeatureMap::kPoly2, .arch = Arch::kSeq2seq},
};

// A model and sequences that have run their prompts, a step and a batch.
class Decoding {
 public:
  Decoding(const Case& c, WeightType weights, int threads)
      : config_(Config(c)),
        model_(Open(folder_, config_, weights, threads)),
        prompt_(RandomTokens(config_, kPrompt, 1)),
        logits_(static_cast<size_t>(kPrompt * config_.vocab_size)) {
    for (int i = 0; i < kSequences; ++i) {
      states_.push_back(c.arch == Arch::kSeq2seq ? model_.Encode(prompt_)
                                                 : State(model_));
      jobs_.push_back({&states_[i], {&token_, 1}, Row(i), false});
    }
    for (int i = 0; i < kSequences; ++i) {
      jobs_[i].state = &states_[i];
      Prompt(i);
    }
    Score();
    Generate(1);
    Batch();
  }
  void Prompt(int i) { model_.Prefill(states_[i], prompt_, Row(i)); }
  void Score() {
    states_[0].Reset();
    model_.Score(states_[0], prompt_, Row(0));
  }
  // Greedy generation: what the sampler adds to a step then is a search.
  void Generate(int tokens) {
    const size_t vocab = static_cast<size_t>(config_.vocab_size);
    for (int i = 0; i < tokens; ++i) {
      model_.Step(states_[1], token_, Row(1));
      token_ = Sample({Row(1), vocab}, greedy_, static_cast<uint64_t>(i));
    }
  }
  void Batch() { model_.StepBatch(jobs_); }
  void Reset() {
    for (State& state : states_) state.Reset();
  }

 private:
  static ModelConfig Config(const Case& c) {
    ModelConfig config = WideConfig();
    config.attention = c.attention;
    SetKey(config, "feature_map", c.map);
    SetKey(config, "denominator", c.denominator);
    config.arch = c.arch;
    config.task = Task::kDerived;
    config.cross_attention = kDerivedMixer;
    config.max_positions = 2048;  // room for a prompt and a thousand tokens
    FinishConfig(config);
    return config;
  }
  static Model Open(const TemporaryFolder& folder, const ModelConfig& config,
                    WeightType weights, int threads) {
    WriteModel(folder.path(), config, RandomTensors(config, 1));
    return Model::Open(folder.path(), {.weights = weights, .threads = threads})
        .Take();
  }
  float* Row(int i) { return logits_.data() + i * config_.vocab_size; }

  TemporaryFolder folder_;
  ModelConfig config_;
  Model model_;
  std::vector<int32_t> prompt_;
  std::vector<float> logits_;
  std::vector<State> states_;
  std::vector<Job> jobs_;
  int32_t token_ = 1;
  const SamplerOptions greedy_ = {.temperature = 0};
};

TEST(DecodeAllocation, StepsPromptsAndBatchesTakeNothing) {
  for (const Case& c : kCases) {
    for (const WeightType weights : {WeightType::kF32, WeightType::kBF16}) {
      for (const int threads : {1, 2}) {
        Decoding decoding(c, weights, threads);
        const auto expect_none = [&](const char* what, const auto& f) {
          const int64_t before = Allocations();
          f();
          EXPECT_EQ(0, Allocations() - before)
              << what << ", " << Name(c.arch) << ", " << Name(c.attention)
              << ", " << Name(c.map) << ", "
              << (weights == WeightType::kF32 ? "f32" : "bf16") << ", "
              << threads << " threads";
        };
        // A cache of keys has room for 64 tokens after a prompt of 40.
        expect_none("step", [&] { decoding.Generate(20); });
        expect_none("batch", [&] { decoding.Batch(); });
        expect_none("reset", [&] { decoding.Reset(); });
        expect_none("prompt", [&] { decoding.Prompt(2); });
        expect_none("score", [&] { decoding.Score(); });
      }
    }
  }
}

// A state that grows without end would show here, long after the warm-up.
TEST(DecodeAllocation, AThousandTokensOfALinearModelTakeNothing) {
  Decoding decoding({}, WeightType::kF32, 2);
  const int64_t before = Allocations();
  decoding.Generate(1000);
  EXPECT_EQ(0, Allocations() - before);
}

}  // namespace
}  // namespace tarn::testing
