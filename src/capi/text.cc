// Text and tokens of the C interface, and draws from logits.
#include <string>
#include <vector>

#include "capi/guard.h"
#include "runtime/session/sampler.h"

using tarn::ArgumentError;
using tarn::StrCat;
using tarn::capi::CopyOut;
using tarn::capi::Guard;
using tarn::capi::Require;
using tarn::capi::Tokens;

tarn_status tarn_encode(const tarn_model* model, const char* text,
                        uint64_t bytes, int32_t* tokens, uint64_t capacity,
                        uint64_t* count, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(count, "count");
    if (bytes > 0) Require(text, "text");
    if (bytes > PTRDIFF_MAX) {
      throw ArgumentError("bytes", StrCat("at most ", PTRDIFF_MAX),
                          StrCat(bytes));
    }
    const std::vector<int32_t> ids =
        model->tokenizer.Encode({text, static_cast<size_t>(bytes)}).Take();
    CopyOut(ids.data(), ids.size(), tokens, capacity, count);
  });
}

tarn_status tarn_decode(const tarn_model* model, const int32_t* tokens,
                        uint64_t count, char* text, uint64_t capacity,
                        uint64_t* bytes, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(bytes, "bytes");
    std::string out;
    for (const int32_t token : Tokens(tokens, count)) {
      model->tokenizer.Decode(token, out);
    }
    CopyOut(out.data(), out.size(), text, capacity, bytes);
  });
}

tarn_status tarn_sample(const float* logits, uint64_t count,
                        const tarn_sampler_options* options, uint64_t position,
                        int32_t* token, tarn_error** error) {
  return Guard(error, [&] {
    Require(logits, "logits");
    Require(token, "token");
    const tarn::SamplerOptions sampler =
        tarn::capi::SamplerOptionsOf(options, "options");
    if (count > INT32_MAX) {
      throw tarn::ShapeError("count", StrCat("at most ", INT32_MAX),
                             StrCat(count));
    }
    *token =
        tarn::Sample({logits, static_cast<size_t>(count)}, sampler, position);
  });
}
