#include "capi/guard.h"

#include <cstdlib>
#include <memory>

struct tarn_error {
  tarn_status code;
  const char* message;  // from malloc, except for kOutOfMemory
};

namespace tarn::capi {
namespace {

// The error object that is used when there is no memory for another one. Never
// changed and never freed.
constexpr tarn_error kOutOfMemory{TARN_ERROR_INTERNAL, "out of memory"};

}  // namespace

tarn_status StoreError(tarn_error** error, tarn_status code,
                       const char* message) {
  if (error == nullptr) return code;
  char* copy = strdup(message);
  *error =
      copy == nullptr ? nullptr : new (std::nothrow) tarn_error{code, copy};
  if (*error != nullptr) return code;
  std::free(copy);
  *error = const_cast<tarn_error*>(&kOutOfMemory);
  return kOutOfMemory.code;
}

void Require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw ArgumentError(name, "a pointer", "NULL");
}

void RequireModelOf(const tarn_model* model, const tarn_state* state) {
  Require(model, "model");
  Require(state, "state");
  if (state->model != model) {
    throw ArgumentError("state", "a state of this model",
                        "a state of another model");
  }
}

std::span<const int32_t> Tokens(const int32_t* tokens, uint64_t count) {
  if (count == 0) return {};
  Require(tokens, "tokens");
  constexpr uint64_t kMost = PTRDIFF_MAX / sizeof(int32_t);
  if (count > kMost) {
    throw ArgumentError("count", StrCat("at most ", kMost), StrCat(count));
  }
  return {tokens, static_cast<size_t>(count)};
}

}  // namespace tarn::capi

const char* tarn_version(void) { return TARN_VERSION; }

tarn_status tarn_error_code(const tarn_error* error) {
  return error == nullptr ? TARN_OK : error->code;
}

const char* tarn_error_message(const tarn_error* error) {
  return error == nullptr ? "no error" : error->message;
}

void tarn_error_free(tarn_error* error) {
  if (error == nullptr || error == &tarn::capi::kOutOfMemory) return;
  std::free(const_cast<char*>(error->message));
  delete error;
}
