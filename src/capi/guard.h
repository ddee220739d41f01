// What every file of the C interface needs: the objects that its pointers refer
// to, the guard at its boundary, and checks of arguments.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>

#include "core/error.h"
#include "runtime/sampling/sampler.h"
#include "runtime/session/loaded_model.h"
#include "tarn/tarn.h"

// Counted, so that a state may outlive the caller's reference to its model.
struct tarn_model : tarn::LoadedModel {
  mutable std::atomic<int64_t> holders{1};
};

struct tarn_state {
  const tarn_model* model;
  tarn::State state;
};

namespace tarn::capi {

/// Stores an error object, unless `error` is null. Where there is no memory for
/// it, the object is one that always exists and says so. Returns its code.
tarn_status StoreError(tarn_error** error, tarn_status code,
                       const char* message);

/// Runs the body; turns whatever it throws into a status and an error object:
/// no exception crosses the boundary.
template <typename Body>
tarn_status Guard(tarn_error** error, Body body) {
  if (error != nullptr) *error = nullptr;
  try {
    body();
    return TARN_OK;
  } catch (const Error& e) {
    return StoreError(error, static_cast<tarn_status>(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return StoreError(error, TARN_ERROR_INTERNAL, "out of memory");
  } catch (const std::exception& e) {
    return StoreError(error, TARN_ERROR_INTERNAL, e.what());
  } catch (...) {
    return StoreError(error, TARN_ERROR_INTERNAL, "unknown failure");
  }
}

/// Throws ArgumentError for NULL.
void Require(const void* pointer, const char* name);

/// The state's own model: a call must not mix models.
void RequireModelOf(const tarn_model* model, const tarn_state* state);

std::span<const int32_t> Tokens(const int32_t* tokens, uint64_t count);

/// A count as the runtime's int64_t; larger values become its maximum.
inline int64_t Count(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
}

/// Options as this version knows them, from a caller that may know fewer fields
/// (the rest keep their defaults) or more (which must then be zero).
template <typename Options>
Options ReadOptions(const Options* given, const Options& defaults,
                    const char* name) {
  if (given == nullptr) return defaults;
  const size_t size = given->struct_size;
  constexpr size_t kLargest = 4096;  // a garbage size must not be followed
  if (size < sizeof(size_t) || size > kLargest) {
    throw ArgumentError(StrCat(name, ".struct_size"),
                        StrCat(sizeof(size_t), " to ", kLargest), StrCat(size));
  }
  Options options = defaults;
  std::memcpy(&options, given, std::min(size, sizeof(Options)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      throw ArgumentError(name, "zero in fields this version does not know",
                          StrCat("byte ", i, " set"));
    }
  }
  return options;
}

/// options: NULL gives the defaults. `name` for the message.
SamplerOptions SamplerOptionsOf(const tarn_sampler_options* options,
                                const char* name);
/// The other way, as far as the caller's struct_size reaches; seed, stream and
/// lists stay.
void FillSamplerOptions(const SamplerOptions& sampler,
                        tarn_sampler_options* options);

/// Copies what a call produced to the caller; throws ShapeError without room.
template <typename T>
void CopyOut(const T* from, size_t size, T* to, uint64_t capacity,
             uint64_t* count) {
  *count = size;
  if (to == nullptr) return;
  if (capacity < size) {
    throw ShapeError("capacity", StrCat("at least ", size), StrCat(capacity));
  }
  std::copy(from, from + size, to);
}

inline void Hold(const tarn_model* model) { model->holders.fetch_add(1); }

inline void Release(const tarn_model* model) {
  if (model->holders.fetch_sub(1) == 1) delete model;
}

}  // namespace tarn::capi
