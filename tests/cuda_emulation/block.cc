#include "block.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_device.h"
#include "fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace tarn::cuda::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kGuardBytes = 4096;
constexpr unsigned char kPoison = 0xff;  // NaN in every type
constexpr int kBarriers = 16;

struct Copy {
  char* to;
  const char* from;
  size_t bytes, valid;
};

enum class State { kReady, kInBarrier, kInWarp, kDone };

struct Thread {
  Fiber fiber;
  uint3 index;
  State state = State::kDone;
  int barrier = 0;
  void* mine = nullptr;
  std::deque<std::vector<Copy>> groups;  // ended ones, then the open one
};

struct Warp {
  int arrived = 0;
  void (*work)(void* const*) = nullptr;
};

struct Barrier {
  int arrived = 0, wanted = 0;
};

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  std::vector<int> order;
  Barrier barriers[kBarriers];
  std::vector<char> memory;
  char* shared = nullptr;
  size_t shared_bytes = 0;
  int count = 0, current = 0;
  void (*f)(const void*) = nullptr;
  const void* argument = nullptr;
  std::exception_ptr error;
  uint64_t launches = 0;
};

// One block runs at a time: tests launch from one thread.
Block& Now() {
  static Block block;
  return block;
}

int multiprocessors = 4;

[[noreturn]] void Fail(const std::string& text) {
  throw std::logic_error("emulated device: " + text);
}

std::string Where(const Thread& thread) {
  return "thread (" + std::to_string(thread.index.x) + ", " +
         std::to_string(thread.index.y) + ", " +
         std::to_string(thread.index.z) + ") of block (" +
         std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
         std::to_string(blockIdx.z) + ")";
}

void Enter(void* self) {
  Block& block = Now();
  try {
    block.f(block.argument);
  } catch (...) {
    block.error = std::current_exception();
  }
  static_cast<Thread*>(self)->state = State::kDone;
}

void StopHere(Thread& thread, State state) {
  thread.state = state;
  thread.fiber.Stop();
}

Thread& Current() { return *Now().threads[static_cast<size_t>(Now().current)]; }

// Warps, and the lanes within each, in an order that depends on the launch and
// on the block.
void Reorder(uint64_t seed) {
  Block& block = Now();
  const auto next = [&seed](int below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((seed >> 33) % static_cast<uint64_t>(below));
  };
  const int warps = block.count / kWarp;
  std::vector<int> first(static_cast<size_t>(warps));
  for (int w = 0; w < warps; ++w) first[static_cast<size_t>(w)] = w * kWarp;
  for (int w = warps - 1; w > 0; --w) {
    std::swap(first[static_cast<size_t>(w)],
              first[static_cast<size_t>(next(w + 1))]);
  }
  block.order.clear();
  for (const int begin : first) {
    const int turn = next(kWarp), back = next(2);
    for (int i = 0; i < kWarp; ++i) {
      const int lane = (turn + (back != 0 ? kWarp - i : i)) % kWarp;
      block.order.push_back(begin + lane);
    }
  }
}

void CheckStuck() {
  const Block& block = Now();
  const Thread* waiting = nullptr;
  for (int i = 0; i < block.count; ++i) {
    const Thread& thread = *block.threads[static_cast<size_t>(i)];
    if (thread.state != State::kDone) waiting = &thread;
  }
  if (waiting == nullptr) return;
  Fail("divergence: " + Where(*waiting) + " waits " +
       (waiting->state == State::kInWarp
            ? std::string("for its warp")
            : "at barrier " + std::to_string(waiting->barrier)) +
       ", which other threads do not reach");
}

void CheckGuards() {
  const Block& block = Now();
  const char* begin = block.memory.data();
  const char* end = begin + block.memory.size();
  for (const char* at = begin; at < end; ++at) {
    if (at >= block.shared && at < block.shared + block.shared_bytes) continue;
    if (static_cast<unsigned char>(*at) != kPoison) {
      Fail("a write " + std::to_string(at - block.shared) +
           " bytes into shared memory of " +
           std::to_string(block.shared_bytes) + " bytes");
    }
  }
}

void RunBlock() {
  Block& block = Now();
  std::memset(block.memory.data(), kPoison, block.memory.size());
  block.error = nullptr;
  for (Barrier& barrier : block.barriers) barrier = {};
  for (Warp& warp : block.warps) warp = {};
  for (int i = 0; i < block.count; ++i) {
    Thread& thread = *block.threads[static_cast<size_t>(i)];
    thread.state = State::kReady;
    thread.groups.assign(1, {});
    thread.fiber.Prepare(&Enter, &thread);
  }
  for (bool any = true; any;) {
    any = false;
    for (const int i : block.order) {
      Thread& thread = *block.threads[static_cast<size_t>(i)];
      if (thread.state != State::kReady) continue;
      any = true;
      block.current = i;
      threadIdx = thread.index;
      thread.fiber.Resume();
      if (block.error != nullptr) std::rethrow_exception(block.error);
    }
  }
  CheckStuck();
  CheckGuards();
}

}  // namespace

void Run(const unsigned (&grid)[3], const unsigned (&size)[3],
         size_t shared_bytes, void (*f)(const void*), const void* argument) {
  const uint64_t threads = uint64_t{size[0]} * size[1] * size[2];
  if (threads == 0 || threads > 1024 || threads % kWarp != 0) {
    Fail("blocks of " + std::to_string(threads) + " threads");
  }
  if (grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535) {
    Fail("a grid of " + std::to_string(grid[0]) + " x " +
         std::to_string(grid[1]) + " x " + std::to_string(grid[2]));
  }
  if (shared_bytes > kMostSharedBytes) {
    Fail(std::to_string(shared_bytes) + " bytes of shared memory");
  }
  Block& block = Now();
  block.count = static_cast<int>(threads);
  while (block.threads.size() < threads) {
    block.threads.push_back(std::make_unique<Thread>());
  }
  block.warps.assign(threads / kWarp, {});
  block.shared_bytes = shared_bytes;
  block.memory.resize(shared_bytes + 2 * kGuardBytes + 128);
  const auto start = reinterpret_cast<uintptr_t>(block.memory.data());
  block.shared =
      block.memory.data() + ((start + kGuardBytes + 127) / 128 * 128 - start);
  block.f = f;
  block.argument = argument;
  ++block.launches;
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = dim3(size[0], size[1], size[2]);
  for (unsigned i = 0; i < threads; ++i) {
    block.threads[i]->index = {i % size[0], i / size[0] % size[1],
                               i / size[0] / size[1]};
  }
  uint64_t number = 0;
  for (unsigned z = 0; z < grid[2]; ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        Reorder(block.launches * 1000003 + number++);
        RunBlock();
      }
    }
  }
}

char* BlockMemory() { return Now().shared; }

void CheckAligned(const void* at, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(at) % alignment == 0) return;
  Fail(Where(Current()) + ": an address that is no multiple of " +
       std::to_string(alignment));
}

void CheckShared(const void* at, size_t bytes, size_t alignment) {
  const Block& block = Now();
  const auto* begin = static_cast<const char*>(at);
  if (begin < block.shared ||
      begin + bytes > block.shared + block.shared_bytes) {
    Fail(Where(Current()) + ": " + std::to_string(begin - block.shared) +
         " bytes into shared memory of " + std::to_string(block.shared_bytes));
  }
  CheckAligned(at, alignment);
}

void WaitBlock() { WaitSome(0, Now().count); }

void WaitSome(int number, int threads) {
  Block& block = Now();
  if (number < 0 || number >= kBarriers)
    Fail("barrier " + std::to_string(number));
  Barrier& barrier = block.barriers[number];
  if (threads <= 0 || threads > block.count || threads % kWarp != 0 ||
      (barrier.arrived > 0 && barrier.wanted != threads)) {
    Fail("barrier " + std::to_string(number) + " for " +
         std::to_string(threads) + " threads");
  }
  barrier.wanted = threads;
  if (++barrier.arrived < threads) {
    Current().barrier = number;
    StopHere(Current(), State::kInBarrier);
    return;
  }
  barrier.arrived = 0;
  for (int i = 0; i < block.count; ++i) {
    Thread& thread = *block.threads[static_cast<size_t>(i)];
    if (thread.state == State::kInBarrier && thread.barrier == number) {
      thread.state = State::kReady;
    }
  }
}

void Together(void* mine, void (*work)(void* const*)) {
  Block& block = Now();
  const int first = block.current / kWarp * kWarp;
  Warp& warp = block.warps[static_cast<size_t>(first / kWarp)];
  if (warp.arrived > 0 && warp.work != work) {
    Fail("divergence: lanes of " + Where(Current()) +
         "'s warp are in different warp-wide functions");
  }
  warp.work = work;
  Current().mine = mine;
  if (++warp.arrived < kWarp) {
    StopHere(Current(), State::kInWarp);
    return;
  }
  warp.arrived = 0;
  void* lanes[kWarp];
  for (int i = 0; i < kWarp; ++i) {
    Thread& thread = *block.threads[static_cast<size_t>(first + i)];
    lanes[i] = thread.mine;
    if (thread.state == State::kInWarp) thread.state = State::kReady;
  }
  work(lanes);
}

void StartCopy(void* to, const void* from, size_t bytes, size_t valid) {
  CheckShared(to, bytes, bytes);
  CheckAligned(from, bytes);
  if (valid > bytes) Fail(std::to_string(valid) + " valid bytes");
  std::memset(to, kPoison, bytes);
  Current().groups.back().push_back(
      {static_cast<char*>(to), static_cast<const char*>(from), bytes, valid});
}

void EndGroup() { Current().groups.emplace_back(); }

void FinishCopies(int pending_groups) {
  auto& groups = Current().groups;
  while (groups.size() > static_cast<size_t>(pending_groups) + 1) {
    for (const Copy& copy : groups.front()) {
      if (copy.valid > 0) std::memcpy(copy.to, copy.from, copy.valid);
      std::memset(copy.to + copy.valid, 0, copy.bytes - copy.valid);
    }
    groups.pop_front();
  }
}

int Multiprocessors() { return multiprocessors; }
void SetMultiprocessors(int count) { multiprocessors = count; }

}  // namespace tarn::cuda::emulation
