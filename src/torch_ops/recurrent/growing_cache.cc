#include "torch_ops/recurrent/growing_cache.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <atomic>

namespace tarn::ops {
namespace {

constexpr int64_t kFirstRoom = 64;  // tokens

// The record of the memory of a storage made here.
struct Room {
  at::DataPtr memory;
  int64_t capacity;           // tokens
  std::atomic<int64_t> used;  // tokens that some tensor has
};

void Delete(void* room) { delete static_cast<Room*>(room); }

// Null for memory that was not made here.
Room* RoomOf(const at::Tensor& cache) {
  const at::DataPtr& data = cache.storage().data_ptr();
  if (data.get_deleter() != &Delete || cache.storage_offset() != 0) {
    return nullptr;
  }
  return static_cast<Room*>(data.get_context());
}

at::Tensor View(c10::Storage storage, int64_t batch, int64_t tokens,
                int64_t heads, int64_t width, int64_t capacity) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::Make<float>());
  const int64_t token = heads * width;
  const int64_t sizes[] = {batch, tokens, heads, width};
  const int64_t strides[] = {capacity * token, token, width, 1};
  view.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(sizes),
                                                    at::IntArrayRef(strides));
  return view;
}

at::Tensor Grown(int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  const int64_t capacity = std::max(kFirstRoom, 2 * (tokens - 1));
  const size_t bytes =
      static_cast<size_t>(batch * capacity * heads * width) * sizeof(float);
  at::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
  void* address = memory.get();
  auto room = std::make_unique<Room>();
  room->memory = std::move(memory);
  room->capacity = capacity;
  room->used = tokens;
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), bytes,
      at::DataPtr(address, room.release(), &Delete, at::Device(at::kCPU)));
  return View(std::move(storage), batch, tokens, heads, width, capacity);
}

// Whether the tensor is all of the tokens in its memory, in this layout.
bool IsWhole(const at::Tensor& cache, const Room& room) {
  const int64_t width = cache.size(3), token = cache.size(2) * width;
  return cache.stride(3) == 1 && cache.stride(2) == width &&
         cache.stride(1) == token && cache.stride(0) == room.capacity * token &&
         cache.storage().nbytes() ==
             static_cast<size_t>(cache.size(0) * room.capacity * token) *
                 sizeof(float);
}

}  // namespace

at::Tensor WithRoom(const OptionalTensor& cache, at::IntArrayRef first_sizes) {
  if (!cache.has_value()) {
    return Grown(first_sizes[0], 1, first_sizes[2], first_sizes[3]);
  }
  const int64_t batch = cache->size(0), tokens = cache->size(1);
  const int64_t heads = cache->size(2), width = cache->size(3);
  if (Room* room = RoomOf(*cache)) {
    int64_t last = tokens;
    // The first to append does so in place, a later one has to copy.
    if (tokens < room->capacity && IsWhole(*cache, *room) &&
        room->used.compare_exchange_strong(last, tokens + 1)) {
      return View(cache->storage(), batch, tokens + 1, heads, width,
                  room->capacity);
    }
  }
  at::Tensor grown = Grown(batch, tokens + 1, heads, width);
  grown.narrow(1, 0, tokens).copy_(*cache);
  return grown;
}

}  // namespace tarn::ops
