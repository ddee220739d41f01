// States of the C interface: the past of one sequence, as a value.
#include <span>

#include "capi/guard.h"
#include "runtime/session/state_file.h"

namespace {

// Bytes that have their place.
class BufferSink final : public tarn::ByteSink {
 public:
  explicit BufferSink(void* next) : next_(static_cast<char*>(next)) {}
  void Write(const void* data, size_t bytes) override {
    if (bytes > 0) std::memcpy(next_, data, bytes);
    next_ += bytes;
  }

 private:
  char* next_;
};

}  // namespace

using tarn::capi::Guard;
using tarn::capi::Hold;
using tarn::capi::Require;
using tarn::capi::RequireModelOf;

tarn_status tarn_state_new(const tarn_model* model, tarn_state** state,
                           tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(state, "state");
    *state = new tarn_state{model, tarn::State(model->model)};
    Hold(model);
  });
}

tarn_status tarn_state_clone(const tarn_state* state, tarn_state** clone,
                             tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    Require(clone, "clone");
    *clone = new tarn_state{state->model, state->state.Clone()};
    Hold(state->model);
  });
}

tarn_status tarn_state_copy(tarn_state* to, const tarn_state* from,
                            tarn_error** error) {
  return Guard(error, [&] {
    Require(to, "to");
    Require(from, "from");
    if (to == from) return;
    RequireModelOf(from->model, to);
    to->state.CopyFrom(from->state);
  });
}

tarn_status tarn_state_reset(tarn_state* state, tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    state->state.Reset();
  });
}

tarn_status tarn_state_save(const tarn_state* state, const char* path,
                            tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    Require(path, "path");
    tarn::SaveState(state->model->model, state->state, path);
  });
}

tarn_status tarn_state_load(const tarn_model* model, const char* path,
                            tarn_state** state, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(path, "path");
    Require(state, "state");
    *state = new tarn_state{model, tarn::LoadState(model->model, path).Take()};
    Hold(model);
  });
}

tarn_status tarn_state_serialize(const tarn_state* state, void* bytes,
                                 uint64_t capacity, uint64_t* size,
                                 tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    Require(size, "size");
    const tarn::Model& model = state->model->model;
    *size = tarn::StateFileBytes(model, state->state);
    if (bytes == nullptr) return;
    if (capacity < *size) {
      throw tarn::ShapeError("capacity", tarn::StrCat("at least ", *size),
                             tarn::StrCat(capacity));
    }
    BufferSink sink(bytes);
    tarn::SaveState(model, state->state, sink);
  });
}

tarn_status tarn_state_deserialize(const tarn_model* model, const void* bytes,
                                   uint64_t size, tarn_state** state,
                                   tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(state, "state");
    if (size > 0) Require(bytes, "bytes");
    const std::span<const uint8_t> file(static_cast<const uint8_t*>(bytes),
                                        static_cast<size_t>(size));
    *state = new tarn_state{model, tarn::LoadState(model->model, file).Take()};
    Hold(model);
  });
}

void tarn_state_free(tarn_state* state) {
  if (state == nullptr) return;
  const tarn_model* model = state->model;
  delete state;
  tarn::capi::Release(model);
}

uint64_t tarn_state_bytes(const tarn_state* state) {
  return state == nullptr ? 0 : static_cast<uint64_t>(state->state.bytes());
}

uint64_t tarn_state_position(const tarn_state* state) {
  return state == nullptr ? 0 : static_cast<uint64_t>(state->state.position());
}

uint64_t tarn_state_memory_bytes(const tarn_state* state) {
  return state == nullptr ? 0
                          : static_cast<uint64_t>(state->state.memory_bytes());
}

int32_t tarn_state_equal(const tarn_state* a, const tarn_state* b) {
  if (a == nullptr || b == nullptr || a->model != b->model) return 0;
  return a->state == b->state ? 1 : 0;
}

uint64_t tarn_state_hash(const tarn_state* state) {
  return state == nullptr ? 0 : state->state.Hash();
}

const float* tarn_state_last_logits(const tarn_state* state, uint64_t* count) {
  std::span<const float> logits;
  if (state != nullptr) logits = state->state.last_logits();
  if (count != nullptr) *count = logits.size();
  return logits.empty() ? nullptr : logits.data();
}
