// Steps, prompts and batches allocate nothing once they have run at that size:
// allocations are counted here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/feature_map.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (bytes / alignment + 1) * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);  // the library's own temporary buffers
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tarn::testing {
namespace {

struct Case {
  AttentionKind attention;
  Positions positions;
  RotaryPlace place;
  FeatureMap map = FeatureMap::kElu1;
  Denominator denominator = Denominator::kExact;
  FeedForwardKind feed_forward = FeedForwardOf("mlp");
};

const Case kCases[] = {
    {MixerKind("linear"), Positions::kRotary, RotaryPlace::kBefore},
    {MixerKind("linear"), Positions::kRotary, RotaryPlace::kAfter},
    {MixerKind("linear"), Positions::kSinusoidal, RotaryPlace::kBefore},
    {MixerKind("linear"), Positions::kLearned, RotaryPlace::kBefore},
    {MixerKind("linear"), Positions::kLearned, RotaryPlace::kBefore,
     FeatureMap::kRelu},
    {MixerKind("linear"), Positions::kRotary, RotaryPlace::kBefore,
     FeatureMap::kPoly2, Denominator::kSigned},
    {MixerKind("full"), Positions::kRotary, RotaryPlace::kBefore},
    {MixerKind("full"), Positions::kLearned, RotaryPlace::kBefore},
    {MixerKind("full"), Positions::kRotary, RotaryPlace::kBefore,
     FeatureMap::kElu1, Denominator::kExact, FeedForwardOf("channel-mix")},
    {MixerKind("linear"), Positions::kLearned, RotaryPlace::kBefore,
     FeatureMap::kElu1, Denominator::kExact, FeedForwardOf("moe")},
};

TEST(ModelAllocation, NoStepPromptOrBatchAllocates) {
  for (const Case& c : kCases) {
    for (const WeightType weights : {WeightType::kF32, WeightType::kBF16}) {
      const TemporaryFolder folder;
      ModelConfig config = WideConfig();
      config.attention = c.attention;
      config.positions = c.positions;
      config.rotary_place = c.place;
      SetKey(config, "feature_map", c.map);
      SetKey(config, "denominator", c.denominator);
      config.feed_forward = c.feed_forward;
      WriteModel(folder.path(), config, RandomTensors(config, 1));
      const Model model =
          Model::Open(folder.path(), {.weights = weights, .threads = 2}).Take();
      constexpr int kSessions = 5;
      constexpr int64_t kWarm = 150;  // the cache then has room for 300
      const auto tokens = RandomTokens(config, kWarm, 1);
      std::vector<State> states;
      std::vector<float> logits(
          static_cast<size_t>(kSessions * config.vocab_size));
      std::vector<Job> jobs;
      const auto run_batch = [&] {
        for (int i = 0; i < kSessions; ++i) {
          jobs[i] = {&states[i],
                     {tokens.data() + i, 1},
                     logits.data() + i * config.vocab_size,
                     false};
        }
        model.StepBatch(jobs);
      };
      for (int i = 0; i < kSessions; ++i) {
        states.emplace_back(model);
        model.Prefill(states[i], tokens, logits.data());
        model.Step(states[i], tokens[0], logits.data());
      }
      State kept = states[0].Clone();
      jobs.resize(kSessions);
      run_batch();
      const int64_t before = allocations;
      for (int i = 0; i < 50; ++i) {
        model.Step(states[0], tokens[i], logits.data());
      }
      for (int i = 0; i < 20; ++i) run_batch();
      states[1].CopyFrom(kept);
      model.Prefill(states[1], std::span(tokens).first(60), logits.data());
      EXPECT_EQ(before, allocations)
          << Name(c.attention) << " " << Name(c.positions);
    }
  }
}

}  // namespace
}  // namespace tarn::testing
