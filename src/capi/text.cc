// Text and tokens of the C interface, and draws from logits.
#include <string>
#include <vector>

#include "capi/guard.h"
#include "runtime/sampling/sampler.h"

using tarn::ArgumentError;
using tarn::StrCat;
using tarn::capi::CopyOut;
using tarn::capi::Guard;
using tarn::capi::Require;
using tarn::capi::Tokens;

struct tarn_decoder {
  const tarn_model* model;
  tarn::DecodeProgress progress;
  bool continues;
};

namespace {

tarn_status Encode(const tarn_model* model, const char* text, uint64_t bytes,
                   bool add_special, int32_t* tokens, uint64_t capacity,
                   uint64_t* count, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(count, "count");
    if (bytes > 0) Require(text, "text");
    if (bytes > PTRDIFF_MAX) {
      throw ArgumentError("bytes", StrCat("at most ", PTRDIFF_MAX),
                          StrCat(bytes));
    }
    tarn::EncodeOptions options;
    options.add_special = add_special;
    const std::vector<int32_t> ids =
        model->tokenizer.Encode({text, static_cast<size_t>(bytes)}, options)
            .Take();
    CopyOut(ids.data(), ids.size(), tokens, capacity, count);
  });
}

}  // namespace

tarn_status tarn_encode(const tarn_model* model, const char* text,
                        uint64_t bytes, int32_t* tokens, uint64_t capacity,
                        uint64_t* count, tarn_error** error) {
  return Encode(model, text, bytes, false, tokens, capacity, count, error);
}

tarn_status tarn_encode_prompt(const tarn_model* model, const char* text,
                               uint64_t bytes, int32_t* tokens,
                               uint64_t capacity, uint64_t* count,
                               tarn_error** error) {
  return Encode(model, text, bytes, true, tokens, capacity, count, error);
}

tarn_status tarn_decode(const tarn_model* model, const int32_t* tokens,
                        uint64_t count, char* text, uint64_t capacity,
                        uint64_t* bytes, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(bytes, "bytes");
    const std::span<const int32_t> all = Tokens(tokens, count);
    const std::string out =
        model->tokenizer.Decode(std::vector<int32_t>(all.begin(), all.end()));
    CopyOut(out.data(), out.size(), text, capacity, bytes);
  });
}

tarn_status tarn_decoder_new(const tarn_model* model, int32_t continues,
                             tarn_decoder** decoder, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(decoder, "decoder");
    *decoder = new tarn_decoder{model, {}, continues != 0};
    tarn::capi::Hold(model);
  });
}

tarn_status tarn_decoder_next(tarn_decoder* decoder, int32_t token, char* text,
                              uint64_t capacity, uint64_t* bytes,
                              tarn_error** error) {
  return Guard(error, [&] {
    Require(decoder, "decoder");
    Require(bytes, "bytes");
    const tarn::Tokenizer& tokenizer = decoder->model->tokenizer;
    tarn::DecodeProgress progress = decoder->progress;
    std::string out;
    if (decoder->continues) {
      tokenizer.Decode(token, out);
    } else {
      tokenizer.Decode(token, progress, out);
    }
    CopyOut(out.data(), out.size(), text, capacity, bytes);
    if (text != nullptr) decoder->progress = progress;
  });
}

void tarn_decoder_free(tarn_decoder* decoder) {
  if (decoder == nullptr) return;
  tarn::capi::Release(decoder->model);
  delete decoder;
}

void tarn_model_sampler(const tarn_model* model,
                        tarn_sampler_options* options) {
  if (model == nullptr || options == nullptr) return;
  tarn::capi::FillSamplerOptions(model->defaults.sampler, options);
}

const int32_t* tarn_model_stop_tokens(const tarn_model* model,
                                      uint64_t* count) {
  if (count == nullptr) return nullptr;
  *count = model == nullptr ? 0 : model->defaults.stop_tokens.size();
  return model == nullptr ? nullptr : model->defaults.stop_tokens.data();
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
