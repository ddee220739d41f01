// A linear model's step allocates no scratch: counted, not believed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "runtime/model.h"
#include "runtime/test_model.h"

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

TEST(ModelAllocation, LinearStepsAllocateNoScratch) {
  for (const RotaryPlace place : {RotaryPlace::kBefore, RotaryPlace::kAfter}) {
    const TemporaryFolder folder;
    ModelConfig config = WideConfig();
    config.positions = Positions::kRotary;
    config.rotary_place = place;
    WriteModel(folder.path(), config, RandomTensors(config, 1));
    const Model model = Model::Open(folder.path(), {.threads = 2}).Take();
    State state(model);
    std::vector<float> logits(static_cast<size_t>(config.vocab_size));
    const auto tokens = RandomTokens(config, 64, 1);
    model.Prefill(state, tokens, logits.data());
    const int64_t before = allocations;
    for (const int32_t token : tokens) model.Step(state, token, logits.data());
    model.Prefill(state, tokens, logits.data());
    EXPECT_EQ(before, allocations);
  }
}

}  // namespace
}  // namespace tarn::testing
