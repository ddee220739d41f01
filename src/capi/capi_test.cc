#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "capi/test_fixture.h"
#include "core/file.h"
#include "kernels/matmul/weight_format.h"
#include "runtime/sampling/sampler.h"
#include "tarn/tarn.h"
#include "text/tokenizer.h"

namespace {

// Set while this thread's operator new must fail; the library's requests end
// here as well.
thread_local bool memory_is_out = false;

}  // namespace

// Not inlined: the compiler would see malloc paired with delete, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (!memory_is_out) {
    if (void* memory = std::malloc(bytes)) return memory;
  }
  throw std::bad_alloc();
}
// A sanitizer defines this overload itself, which would not match our delete.
[[gnu::noinline]] void* operator new(size_t bytes,
                                     const std::nothrow_t&) noexcept {
  return memory_is_out ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tarn {
namespace {

TEST_F(CApi, OpenReportsWhatIsWrong) {
  tarn_model* none = nullptr;
  ExpectError(tarn_model_open(Path("absent").c_str(), nullptr, &none, &error_),
              TARN_ERROR_IO, "config.json");
  ExpectError(tarn_model_open(nullptr, nullptr, &none, &error_),
              TARN_ERROR_ARGUMENT, "path");
  std::filesystem::copy(Path("linear"), Path("bad"));
  WriteFileAtomically(Path("bad") + "/model.safetensors", "short");
  ExpectError(tarn_model_open(Path("bad").c_str(), nullptr, &none, &error_),
              TARN_ERROR_FORMAT, "model.safetensors");
  EXPECT_EQ(none, nullptr);
  // Details are optional.
  EXPECT_EQ(tarn_model_open(nullptr, nullptr, &none, nullptr),
            TARN_ERROR_ARGUMENT);
}

TEST_F(CApi, NoMemoryIsAnErrorWithAMessage) {
  tarn_state* clone = nullptr;
  memory_is_out = true;
  const tarn_status status = tarn_state_clone(state_, &clone, &error_);
  memory_is_out = false;
  EXPECT_EQ(status, TARN_ERROR_INTERNAL);
  ASSERT_NE(error_, nullptr);
  EXPECT_STREQ(tarn_error_message(error_), "out of memory");
  EXPECT_EQ(tarn_error_code(error_), TARN_ERROR_INTERNAL);
  EXPECT_EQ(clone, nullptr);
  tarn_error_free(error_);
  error_ = nullptr;
  EXPECT_STREQ(tarn_error_message(nullptr), "no error");
}

TEST_F(CApi, OptionsAreCheckedAndMayGrow) {
  tarn_model* opened = nullptr;
  const std::string path = Path("linear");
  tarn_model_options options = TARN_MODEL_OPTIONS_INIT;
  options.threads = -1;
  ExpectError(tarn_model_open(path.c_str(), &options, &opened, &error_),
              TARN_ERROR_ARGUMENT, "threads");
  EXPECT_EQ(options.weights, TARN_WEIGHTS_AUTO);
  // Every format that programs offer can be asked for by its number.
  const std::map<std::string, int32_t> numbers = {{"f32", TARN_WEIGHTS_F32},
                                                  {"bf16", TARN_WEIGHTS_BF16},
                                                  {"int8", TARN_WEIGHTS_INT8},
                                                  {"int4", TARN_WEIGHTS_INT4}};
  ASSERT_EQ(numbers.size(), tarn::WeightFormats().size());
  for (const tarn::WeightFormat* format : tarn::WeightFormats()) {
    options = TARN_MODEL_OPTIONS_INIT;
    options.weights = numbers.at(format->name);
    EXPECT_EQ(options.weights, format->id);
    for (const int32_t exact : {0, 1}) {
      options.exact = exact;
      ASSERT_EQ(TARN_OK,
                tarn_model_open(path.c_str(), &options, &opened, &error_));
      tarn_model_close(opened);
    }
  }
  options = TARN_MODEL_OPTIONS_INIT;
  options.weights = 77;
  ExpectError(tarn_model_open(path.c_str(), &options, &opened, &error_),
              TARN_ERROR_ARGUMENT, "weights");
  options = TARN_MODEL_OPTIONS_INIT;
  options.cache = 7;
  ExpectError(tarn_model_open(path.c_str(), &options, &opened, &error_),
              TARN_ERROR_ARGUMENT, "options.cache");
  options.struct_size = 1;
  ExpectError(tarn_model_open(path.c_str(), &options, &opened, &error_),
              TARN_ERROR_ARGUMENT, "struct_size");
  // A later version's struct: unknown fields must be zero.
  struct Larger {
    tarn_model_options known = TARN_MODEL_OPTIONS_INIT;
    int64_t unknown = 0;
  } larger;
  larger.known.struct_size = sizeof(larger);
  larger.known.threads = 2;
  ASSERT_EQ(tarn_model_open(path.c_str(), &larger.known, &opened, &error_),
            TARN_OK);
  EXPECT_EQ(tarn_model_threads(opened), 2);
  tarn_model_close(opened);
  larger.unknown = 1;
  ExpectError(tarn_model_open(path.c_str(), &larger.known, &opened, &error_),
              TARN_ERROR_ARGUMENT, "does not know");
}

TEST_F(CApi, StateIsAValue) {
  const std::vector<int32_t> tokens{104, 101, 108, 108, 111};
  std::vector<float> logits(tarn_model_vocab_size(model_));
  ASSERT_EQ(
      tarn_prefill(model_, state_, tokens.data(), 5, logits.data(), &error_),
      TARN_OK);
  EXPECT_EQ(tarn_state_position(state_), 5u);
  EXPECT_EQ(tarn_state_bytes(state_), tarn_model_state_bytes(model_));
  uint64_t count = 0;
  const float* kept = tarn_state_last_logits(state_, &count);
  ASSERT_EQ(count, logits.size());
  EXPECT_EQ(std::memcmp(kept, logits.data(), count * sizeof(float)), 0);

  tarn_state *clone = nullptr, *steps = nullptr;
  ASSERT_EQ(tarn_state_clone(state_, &clone, &error_), TARN_OK);
  ASSERT_EQ(tarn_state_new(model_, &steps, &error_), TARN_OK);
  EXPECT_EQ(tarn_state_equal(state_, clone), 1);
  EXPECT_EQ(tarn_state_equal(state_, steps), 0);
  for (const int32_t token : tokens) {
    ASSERT_EQ(tarn_step(model_, steps, token, logits.data(), &error_), TARN_OK);
  }
  EXPECT_EQ(tarn_state_equal(state_, steps), 1);
  EXPECT_EQ(tarn_state_hash(state_), tarn_state_hash(steps));

  ASSERT_EQ(tarn_step(model_, clone, 33, nullptr, &error_), TARN_OK);
  EXPECT_EQ(tarn_state_position(state_), 5u);  // the original is untouched
  EXPECT_EQ(tarn_state_equal(state_, clone), 0);
  ASSERT_EQ(tarn_state_copy(clone, state_, &error_), TARN_OK);
  EXPECT_EQ(tarn_state_equal(state_, clone), 1);
  ASSERT_EQ(tarn_state_reset(clone, &error_), TARN_OK);
  EXPECT_EQ(tarn_state_position(clone), 0u);
  EXPECT_EQ(tarn_state_last_logits(clone, &count), nullptr);
  EXPECT_EQ(count, 0u);
  tarn_state_free(clone);
  tarn_state_free(steps);
}

TEST_F(CApi, RefusesWrongArgumentsAndChangesNothing) {
  tarn_model* full = nullptr;
  tarn_state* foreign = nullptr;
  ASSERT_EQ(tarn_model_open(Path("full").c_str(), nullptr, &full, &error_),
            TARN_OK);
  ASSERT_EQ(tarn_state_new(full, &foreign, &error_), TARN_OK);
  ExpectError(tarn_step(model_, foreign, 1, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "another model");
  ExpectError(tarn_state_copy(state_, foreign, &error_), TARN_ERROR_ARGUMENT,
              "another model");
  ExpectError(tarn_step(model_, state_, 256, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "256");
  ExpectError(tarn_step(model_, state_, -1, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "-1");
  ExpectError(tarn_prefill(model_, state_, nullptr, 3, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "tokens");
  ExpectError(tarn_step(model_, nullptr, 1, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "state");
  EXPECT_EQ(tarn_prefill(model_, state_, nullptr, 0, nullptr, &error_),
            TARN_OK);
  EXPECT_EQ(tarn_state_position(state_), 0u);
  EXPECT_EQ(tarn_model_state_bytes_per_token(model_), 0u);
  EXPECT_GT(tarn_model_state_bytes_per_token(full), 0u);
  tarn_state_free(foreign);
  tarn_model_close(full);
  // NULL is harmless where nothing can be reported.
  tarn_state_free(nullptr);
  tarn_model_close(nullptr);
  tarn_error_free(nullptr);
  EXPECT_EQ(tarn_model_vocab_size(nullptr), 0u);
  EXPECT_EQ(tarn_state_position(nullptr), 0u);
}

TEST_F(CApi, EncodeAndDecodeSayHowMuchRoomTheyNeed) {
  tarn_model* chars = nullptr;
  ASSERT_EQ(tarn_model_open(Path("char").c_str(), nullptr, &chars, &error_),
            TARN_OK);
  EXPECT_EQ(tarn_model_vocab_size(chars), 5u);
  EXPECT_EQ(tarn_model_tokenizer_size(chars), 3u);
  const std::string text = "ba\xE2\x82\xAC";
  uint64_t count = 0;
  int32_t tokens[3];
  ASSERT_EQ(
      tarn_encode(chars, text.data(), text.size(), nullptr, 0, &count, &error_),
      TARN_OK);
  EXPECT_EQ(count, 3u);
  count = 0;
  ExpectError(
      tarn_encode(chars, text.data(), text.size(), tokens, 2, &count, &error_),
      TARN_ERROR_SHAPE, "at least 3");
  EXPECT_EQ(count, 3u);
  ASSERT_EQ(
      tarn_encode(chars, text.data(), text.size(), tokens, 3, &count, &error_),
      TARN_OK);
  EXPECT_EQ(std::vector<int32_t>(tokens, tokens + 3),
            (std::vector<int32_t>{1, 0, 2}));
  char out[5];
  uint64_t bytes = 0;
  ASSERT_EQ(tarn_decode(chars, tokens, 3, out, 5, &bytes, &error_), TARN_OK);
  EXPECT_EQ(std::string(out, bytes), text);
  ExpectError(tarn_encode(chars, "x", 1, tokens, 3, &count, &error_),
              TARN_ERROR_FORMAT, "byte 0");
  const int32_t padding_row = 4;
  ExpectError(tarn_decode(chars, &padding_row, 1, out, 5, &bytes, &error_),
              TARN_ERROR_ARGUMENT, "token");
  tarn_model_close(chars);
}

TEST_F(CApi, ADecoderCountsWhatItWrote) {
  tarn_model* ids = nullptr;
  ASSERT_EQ(tarn_model_open(Path("ids").c_str(), nullptr, &ids, &error_),
            TARN_OK);
  tarn_decoder* decoder = nullptr;
  ASSERT_EQ(tarn_decoder_new(ids, 0, &decoder, &error_), TARN_OK);
  tarn_model_close(ids);  // the decoder keeps it
  char out[8];
  uint64_t bytes = 0;
  ASSERT_EQ(tarn_decoder_next(decoder, 123, nullptr, 0, &bytes, &error_),
            TARN_OK);
  EXPECT_EQ(bytes, 4u);
  ExpectError(tarn_decoder_next(decoder, 123, out, 3, &bytes, &error_),
              TARN_ERROR_SHAPE, "at least 4");
  ASSERT_EQ(tarn_decoder_next(decoder, 123, out, 8, &bytes, &error_), TARN_OK);
  EXPECT_EQ(std::string(out, bytes), " 123");
  ExpectError(tarn_decoder_next(decoder, 20000, out, 8, &bytes, &error_),
              TARN_ERROR_ARGUMENT, "token");
  ExpectError(tarn_decoder_next(nullptr, 1, out, 8, &bytes, &error_),
              TARN_ERROR_ARGUMENT, "decoder");
  ExpectError(tarn_decoder_new(nullptr, 0, &decoder, &error_),
              TARN_ERROR_ARGUMENT, "model");
  tarn_decoder_free(decoder);
  tarn_decoder_free(nullptr);
}

TEST_F(CApi, TheDirectoryGivesTheDefaultsOfGenerating) {
  uint64_t count = 9;
  EXPECT_EQ(tarn_model_stop_tokens(nullptr, &count), nullptr);
  EXPECT_EQ(count, 0u);
  tarn_model_stop_tokens(model_, &count);
  EXPECT_EQ(count, 0u);
  tarn_sampler_options sampler = TARN_SAMPLER_OPTIONS_INIT;
  sampler.top_k = 7;
  sampler.seed = 5;
  tarn_model_sampler(model_, &sampler);
  EXPECT_EQ(sampler.top_k, 40);
  EXPECT_EQ(sampler.seed, 5u);
  tarn_model_sampler(model_, nullptr);

  // What the model writes, and the same directory that ends it at one byte.
  const std::string dir = Path("ends");
  std::filesystem::copy(Path("linear"), dir);
  const auto written = [&](const tarn_model* model,
                           const tarn_generate_options& options) {
    std::vector<int32_t> tokens;
    tarn_generate_options c = options;
    c.user = &tokens;
    c.callback = [](void* user, int32_t token, const char*, uint64_t) {
      static_cast<std::vector<int32_t>*>(user)->push_back(token);
      return int32_t{0};
    };
    tarn_state* state = nullptr;
    EXPECT_EQ(tarn_state_new(model, &state, nullptr), TARN_OK);
    const int32_t prompt = 97;
    EXPECT_EQ(tarn_generate(model, state, &prompt, 1, &c, nullptr, nullptr),
              TARN_OK);
    tarn_state_free(state);
    return tokens;
  };
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.max_tokens = 20;
  tarn_sampler_options greedy = TARN_SAMPLER_OPTIONS_INIT;
  greedy.temperature = 0;
  options.sampler = &greedy;
  const std::vector<int32_t> all = written(model_, options);
  ASSERT_EQ(all.size(), 20u);
  tarn::WriteFileAtomically(
      dir + "/generation_config.json",
      R"({"do_sample": true, "top_k": 1, "eos_token_id": )" +
          std::to_string(all[0]) + "}");
  tarn_model* ends = nullptr;
  ASSERT_EQ(tarn_model_open(dir.c_str(), nullptr, &ends, &error_), TARN_OK);
  const int32_t* stop = tarn_model_stop_tokens(ends, &count);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(stop[0], all[0]);
  tarn_model_sampler(ends, &sampler);
  EXPECT_EQ(sampler.temperature, 1.0);
  EXPECT_EQ(sampler.top_k, 1);
  EXPECT_TRUE(written(ends, options).empty());
  const int32_t none = 0;
  options.stop_tokens = &none;  // and a count of 0
  EXPECT_EQ(written(ends, options), all);
  options.sampler = nullptr;  // the directory's: the likeliest, too
  EXPECT_EQ(written(ends, options), all);
  tarn_model_close(ends);
}

TEST_F(CApi, AStateKeepsItsModelAlive) {
  tarn_model_close(model_);
  std::vector<float> logits(256);
  EXPECT_EQ(tarn_step(model_, state_, 65, logits.data(), &error_), TARN_OK);
  EXPECT_EQ(tarn_state_position(state_), 1u);
  tarn_state_free(state_);  // the last hold: sanitizers see any leak
  state_ = nullptr;
  model_ = nullptr;
}

TEST_F(CApi, StatesInFiles) {
  const std::string path = Path("linear.state");
  const std::vector<int32_t> tokens{1, 2, 3};
  std::vector<float> want(256), got(256);
  ASSERT_EQ(
      tarn_prefill(model_, state_, tokens.data(), 3, want.data(), &error_),
      TARN_OK);
  ASSERT_EQ(tarn_state_save(state_, path.c_str(), &error_), TARN_OK)
      << tarn_error_message(error_);
  tarn_state* loaded = nullptr;
  ASSERT_EQ(tarn_state_load(model_, path.c_str(), &loaded, &error_), TARN_OK)
      << tarn_error_message(error_);
  EXPECT_EQ(tarn_state_equal(state_, loaded), 1);
  ASSERT_EQ(tarn_step(model_, state_, 7, want.data(), &error_), TARN_OK);
  ASSERT_EQ(tarn_step(model_, loaded, 7, got.data(), &error_), TARN_OK);
  EXPECT_EQ(got, want);
  tarn_state_free(loaded);
  // The same file as bytes.
  uint64_t size = 0;
  ASSERT_EQ(tarn_state_save(state_, path.c_str(), &error_), TARN_OK);
  ASSERT_EQ(tarn_state_serialize(state_, nullptr, 0, &size, &error_), TARN_OK);
  ASSERT_EQ(size, std::filesystem::file_size(path));
  std::vector<unsigned char> bytes(size);
  ASSERT_EQ(tarn_state_serialize(state_, bytes.data(), size, &size, &error_),
            TARN_OK);
  EXPECT_EQ(ReadFile(path, 1 << 24).Take(),
            std::string(bytes.begin(), bytes.end()));
  ASSERT_EQ(
      tarn_state_deserialize(model_, bytes.data(), size, &loaded, &error_),
      TARN_OK);
  EXPECT_EQ(tarn_state_equal(state_, loaded), 1);
  tarn_state_free(loaded);
  uint64_t needed = 0;
  ExpectError(
      tarn_state_serialize(state_, bytes.data(), size - 1, &needed, &error_),
      TARN_ERROR_SHAPE, "capacity");
  EXPECT_EQ(needed, size);
  loaded = nullptr;
  for (const uint64_t less : {uint64_t{0}, uint64_t{7}, size - 1}) {
    ExpectError(
        tarn_state_deserialize(model_, bytes.data(), less, &loaded, &error_),
        TARN_ERROR_FORMAT, "state: ");
  }
  bytes.back() ^= 1;
  ExpectError(
      tarn_state_deserialize(model_, bytes.data(), size, &loaded, &error_),
      TARN_ERROR_FORMAT, "contents");
  ExpectError(tarn_state_deserialize(model_, nullptr, 9, &loaded, &error_),
              TARN_ERROR_ARGUMENT, "bytes");
  EXPECT_EQ(loaded, nullptr);
  // Another model, bad arguments.
  const std::string other = Path("seq2seq.state");
  tarn_model* model = nullptr;
  tarn_state* of_source = nullptr;
  ASSERT_EQ(tarn_model_open(Path("seq2seq").c_str(), nullptr, &model, &error_),
            TARN_OK);
  ASSERT_EQ(tarn_encode_source(model, tokens.data(), 3, &of_source, &error_),
            TARN_OK);
  ASSERT_EQ(tarn_state_save(of_source, other.c_str(), &error_), TARN_OK);
  tarn_state_free(of_source);
  tarn_model_close(model);
  tarn_state* none = nullptr;
  ExpectError(tarn_state_load(model_, other.c_str(), &none, &error_),
              TARN_ERROR_FORMAT, "seq2seq.state: model");
  ExpectError(tarn_state_load(model_, Path("absent").c_str(), &none, &error_),
              TARN_ERROR_IO, "absent");
  ExpectError(tarn_state_load(model_, nullptr, &none, &error_),
              TARN_ERROR_ARGUMENT, "path");
  ExpectError(tarn_state_save(nullptr, path.c_str(), &error_),
              TARN_ERROR_ARGUMENT, "state");
  EXPECT_EQ(none, nullptr);
}

}  // namespace
}  // namespace tarn
