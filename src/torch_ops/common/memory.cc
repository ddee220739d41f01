#include "torch_ops/common/memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/alignment.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "core/fork.h"

namespace tarn::ops {
namespace {

// Below this torch's own allocation is as fast. Above it, the C library gives
// much of what a training step frees back to the system, and the next step
// faults for every page of it again.
constexpr size_t kSmallest = size_t{1} << 16;
// Sizes of blocks, so that those of similar tensors serve one another.
constexpr size_t kUnit = size_t{1} << 14;
// Blocks of this size and above are whole huge pages: one fault instead of 512,
// and fewer misses of the TLB.
constexpr size_t kLarge = size_t{1} << 20;
constexpr size_t kPage = size_t{1} << 21;

struct CachedBlock {
  void* data;
  size_t bytes;
};

// Free blocks by size. The process has one, never destroyed: tensors may
// outlive every static object.
class BlockCache final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t unit = bytes < kLarge ? kUnit : kPage;
    CachedBlock* block = Take((bytes + unit - 1) / unit * unit);
    return {block->data, block, &Return, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  MemoryUse Use() {
    const std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(in_use_), static_cast<int64_t>(cached_),
            static_cast<int64_t>(peak_)};
  }

  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    while (!free_.empty()) Release(free_.begin());
  }

  static BlockCache& Get() {
    static BlockCache* const cache = new BlockCache;
    return *cache;
  }

 private:
  using FreeBlocks = std::multimap<size_t, CachedBlock*>;

  // The smallest free block that holds `bytes` and wastes at most a quarter of
  // them, else a new one.
  CachedBlock* Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(bytes);
    CachedBlock* block = nullptr;
    if (found != free_.end() && found->first <= bytes + bytes / 4) {
      block = found->second;
      cached_ -= block->bytes;
      free_.erase(found);
    } else {
      Trim(bytes);
      block = New(bytes);
    }
    in_use_ += block->bytes;
    peak_ = std::max(peak_, in_use_);
    return block;
  }

  static CachedBlock* New(size_t bytes) {
    const bool huge = bytes % kPage == 0;
    void* data = std::aligned_alloc(huge ? kPage : c10::gAlignment, bytes);
    if (data == nullptr) throw std::bad_alloc();
    // Advice only: without huge pages everything works, more slowly.
    if (huge) (void)madvise(data, bytes, MADV_HUGEPAGE);
    return new CachedBlock{data, bytes};
  }

  // Called before `bytes` more are taken from the system: keeps the total
  // within a quarter above the peak. The largest free blocks go first.
  void Trim(size_t bytes) {
    const size_t peak = std::max(peak_, in_use_ + bytes);
    while (!free_.empty() && in_use_ + bytes + cached_ > peak + peak / 4) {
      Release(std::prev(free_.end()));
    }
  }

  void Release(FreeBlocks::iterator at) {
    CachedBlock* block = at->second;
    cached_ -= block->bytes;
    free_.erase(at);
    std::free(block->data);
    delete block;
  }

  static void Return(void* context) {
    CachedBlock* block = static_cast<CachedBlock*>(context);
    BlockCache& cache = Get();
    const std::lock_guard lock(cache.mutex_);
    cache.in_use_ -= block->bytes;
    cache.cached_ += block->bytes;
    cache.free_.emplace(block->bytes, block);
  }

  ForkHeldMutex mutex_;
  FreeBlocks free_;
  size_t in_use_ = 0, cached_ = 0, peak_ = 0;
};

}  // namespace

at::Tensor EmptyDense(at::IntArrayRef sizes, at::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  // This bypasses the dispatcher: a training step makes hundreds of small ones.
  c10::Allocator* from = &BlockCache::Get();
  if (bytes < kSmallest) from = c10::GetAllocator(c10::DeviceType::CPU);
  return at::detail::empty_generic(sizes, from,
                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   dtype, std::nullopt);
}

at::Tensor EmptyOn(const at::Tensor& like, at::IntArrayRef sizes,
                   at::ScalarType dtype) {
  if (like.is_cpu()) return EmptyDense(sizes, dtype);
  return at::empty(sizes, like.options().dtype(dtype));
}

MemoryUse CacheUse() { return BlockCache::Get().Use(); }

void ReleaseCachedMemory() { BlockCache::Get().ReleaseAll(); }

}  // namespace tarn::ops
