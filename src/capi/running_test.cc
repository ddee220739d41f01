// The calls of the C interface that run a model: batches, draws, generation,
// sources, classes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/test_fixture.h"
#include "runtime/sampling/sampler.h"
#include "tarn/tarn.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

TEST_F(CApi, BatchGivesTheBitsOfSingleCalls) {
  tarn_state* other = nullptr;
  tarn_state* alone = nullptr;
  ASSERT_EQ(tarn_state_new(model_, &other, &error_), TARN_OK);
  ASSERT_EQ(tarn_state_new(model_, &alone, &error_), TARN_OK);
  const int32_t a[] = {1, 2, 3}, b[] = {200};
  const uint64_t vocab = tarn_model_vocab_size(model_);
  std::vector<float> rows(3 * vocab), last(vocab), want(vocab);
  tarn_job jobs[] = {{state_, a, 3, rows.data(), 1},
                     {other, b, 1, last.data(), 0}};
  ASSERT_EQ(tarn_step_batch(model_, jobs, 2, &error_), TARN_OK);
  ASSERT_EQ(tarn_prefill(model_, alone, a, 3, want.data(), &error_), TARN_OK);
  EXPECT_EQ(tarn_state_equal(alone, state_), 1);
  EXPECT_EQ(std::memcmp(want.data(), &rows[2 * vocab], vocab * sizeof(float)),
            0);
  jobs[1].state = state_;
  ExpectError(tarn_step_batch(model_, jobs, 2, &error_), TARN_ERROR_ARGUMENT,
              "state");
  EXPECT_EQ(tarn_state_position(state_), 3u);
  EXPECT_EQ(tarn_step_batch(model_, nullptr, 0, &error_), TARN_OK);
  tarn_state_free(other);
  tarn_state_free(alone);
}

TEST_F(CApi, Samples) {
  const float logits[] = {0, 2, 1, 2};
  int32_t token = -1;
  tarn_sampler_options options = TARN_SAMPLER_OPTIONS_INIT;
  options.temperature = 0;
  ASSERT_EQ(tarn_sample(logits, 4, &options, 0, &token, &error_), TARN_OK);
  EXPECT_EQ(token, 1);
  ASSERT_EQ(tarn_sample(logits, 4, nullptr, 7, &token, &error_), TARN_OK);
  EXPECT_EQ(token, Sample(logits, SamplerOptions{}, 7));
  options.top_p = 0;
  ExpectError(tarn_sample(logits, 4, &options, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "top_p");
  const float bad[] = {0, std::nanf("")};
  ExpectError(tarn_sample(bad, 2, nullptr, 0, &token, &error_),
              TARN_ERROR_NUMERIC, "id 1");
  ExpectError(tarn_sample(nullptr, 0, nullptr, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "logits");
}

// All options reach the sampler; callers that know fewer fields still work.
TEST_F(CApi, SamplesWithAllOptions) {
  const float logits[] = {3, 2, 1, 0};
  int32_t token = -1;
  tarn_sampler_options options = TARN_SAMPLER_OPTIONS_INIT;
  options.temperature = 0;
  const tarn_logit_bias biases[] = {{0, -HUGE_VALF}, {3, 2.5f}};
  options.logit_bias = biases;
  options.logit_bias_count = 2;
  ASSERT_EQ(tarn_sample(logits, 4, &options, 0, &token, &error_), TARN_OK);
  EXPECT_EQ(token, 3);
  // The struct as it was before there were more fields.
  options.struct_size = offsetof(tarn_sampler_options, typical_p);
  ASSERT_EQ(tarn_sample(logits, 4, &options, 0, &token, &error_), TARN_OK);
  EXPECT_EQ(token, 0);
  options.typical_p = 7;  // not the caller's
  options.top_k = 7;
  tarn_model_sampler(model_, &options);
  EXPECT_EQ(options.top_k, 40);
  EXPECT_EQ(options.typical_p, 7);
  options = TARN_SAMPLER_OPTIONS_INIT;
  options.samplers = "top_k";
  options.top_k = 1;
  options.temperature = 50;  // of a stage that does not run
  for (uint64_t position = 0; position < 20; ++position) {
    ASSERT_EQ(tarn_sample(logits, 4, &options, position, &token, &error_),
              TARN_OK);
    EXPECT_EQ(token, 0);
  }
  options.samplers = "topk";
  ExpectError(tarn_sample(logits, 4, &options, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "samplers");
  options.samplers = nullptr;
  options.logit_bias_count = 1;
  ExpectError(tarn_sample(logits, 4, &options, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "logit_bias");
  options.logit_bias = biases;
  options.logit_bias_count = uint64_t{1} << 40;
  ExpectError(tarn_sample(logits, 4, &options, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "at most 1024");
  options.logit_bias_count = 0;
  const char* breakers[] = {"a", nullptr};
  options.dry_sequence_breakers = breakers;
  options.dry_sequence_breaker_count = 2;
  ExpectError(tarn_sample(logits, 4, &options, 0, &token, &error_),
              TARN_ERROR_ARGUMENT, "dry_sequence_breakers");
  options.dry_sequence_breaker_count = 1;
  ASSERT_EQ(tarn_sample(logits, 4, &options, 0, &token, &error_), TARN_OK);
}

// Every number of the struct is the option of the same name.
TEST_F(CApi, DefaultsOfTheStructAreThoseOfTheOptions) {
  tarn_sampler_options given = TARN_SAMPLER_OPTIONS_INIT, filled;
  std::memset(&filled, 0x5a, sizeof(filled));
  filled.struct_size = sizeof(filled);
  filled.reserved = 0;
  filled.seed = filled.stream = 0;
  filled.dry_sequence_breakers = nullptr;
  filled.dry_sequence_breaker_count = 0;
  filled.logit_bias = nullptr;
  filled.logit_bias_count = 0;
  filled.samplers = nullptr;
  tarn_model_sampler(model_, &filled);
  constexpr size_t kFirst = offsetof(tarn_sampler_options, temperature);
  EXPECT_EQ(std::memcmp(reinterpret_cast<const char*>(&given) + kFirst,
                        reinterpret_cast<const char*>(&filled) + kFirst,
                        sizeof(given) - kFirst),
            0);
}

// What the callbacks of tarn_generate are given.
struct Told {
  std::string text;
  std::vector<int32_t> tokens;
  size_t most = SIZE_MAX;  // tokens after which the callback ends the run
  int asked = 0;
  int cancel_at = -1;
};

int32_t Tell(void* user, int32_t token, const char* text, uint64_t bytes) {
  Told& told = *static_cast<Told*>(user);
  told.tokens.push_back(token);
  told.text.append(text, bytes);
  return told.tokens.size() >= told.most ? 1 : 0;
}

int32_t Cancel(void* user) {
  Told& told = *static_cast<Told*>(user);
  return told.asked++ == told.cancel_at ? 1 : 0;
}

TEST_F(CApi, Generates) {
  const int32_t prompt[] = {104, 105};
  Told told;
  tarn_sampler_options sampler = TARN_SAMPLER_OPTIONS_INIT;
  sampler.seed = 4;
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.max_tokens = 20;
  options.sampler = &sampler;
  options.callback = Tell;
  options.cancel = Cancel;
  options.user = &told;
  uint64_t generated = 0;
  ASSERT_EQ(
      tarn_generate(model_, state_, prompt, 2, &options, &generated, &error_),
      TARN_OK)
      << tarn_error_message(error_);
  EXPECT_EQ(generated, 20u);
  EXPECT_EQ(told.text, Tokenizer::Byte().Decode(told.tokens));
  // Stepping by hand gives the same draws and the same state.
  tarn_state* by_hand = nullptr;
  ASSERT_EQ(tarn_state_new(model_, &by_hand, &error_), TARN_OK);
  std::vector<float> logits(256);
  ASSERT_EQ(tarn_prefill(model_, by_hand, prompt, 2, logits.data(), &error_),
            TARN_OK);
  for (const int32_t want : told.tokens) {
    int32_t token = -1;
    ASSERT_EQ(tarn_sample(logits.data(), 256, &sampler,
                          tarn_state_position(by_hand), &token, &error_),
              TARN_OK);
    ASSERT_EQ(token, want);
    ASSERT_EQ(tarn_step(model_, by_hand, token, logits.data(), &error_),
              TARN_OK);
  }
  EXPECT_EQ(tarn_state_equal(state_, by_hand), 1);
  tarn_state_free(by_hand);
  // Stop texts and stop tokens end the run.
  const std::string text = told.text;
  const std::string stop_text = text.substr(8, 2);
  const char* const stop[] = {"not written at all", stop_text.c_str()};
  options.stop = stop;
  options.stop_count = 2;
  told = Told();
  tarn_state* stopped = nullptr;
  ASSERT_EQ(tarn_state_new(model_, &stopped, &error_), TARN_OK);
  ASSERT_EQ(
      tarn_generate(model_, stopped, prompt, 2, &options, &generated, &error_),
      TARN_OK)
      << tarn_error_message(error_);
  EXPECT_EQ(told.text, text.substr(0, text.find(stop_text)));
  EXPECT_EQ(generated, text.find(stop_text) + 2);
  EXPECT_EQ(tarn_state_position(stopped), 2 + generated);
  const auto byte = static_cast<unsigned char>(text[8]);
  const int32_t stop_token[] = {byte};
  const std::string held = {text[7], 'n', 'o'};
  const char* const other[] = {held.c_str()};  // begins with the byte before
  options.stop = other;
  options.stop_count = 1;
  options.stop_tokens = stop_token;
  options.stop_token_count = 1;
  told = Told();
  ASSERT_EQ(tarn_state_reset(stopped, &error_), TARN_OK);
  ASSERT_EQ(
      tarn_generate(model_, stopped, prompt, 2, &options, &generated, &error_),
      TARN_OK);
  EXPECT_EQ(told.text, text.substr(0, text.find(text[8])));
  EXPECT_EQ(generated, text.find(text[8]));
  EXPECT_EQ(tarn_state_position(stopped), 2 + generated);
  tarn_state_free(stopped);
  const char* const empty[] = {""};
  options.stop = empty;
  ExpectError(
      tarn_generate(model_, state_, prompt, 2, &options, nullptr, &error_),
      TARN_ERROR_ARGUMENT, "stop");
  options.stop = nullptr;
  ExpectError(
      tarn_generate(model_, state_, prompt, 2, &options, nullptr, &error_),
      TARN_ERROR_ARGUMENT, "options.stop");
  options.stop_count = options.stop_token_count = 0;
  // The callback ends the run without an error; cancelling is an error.
  told = Told();
  told.most = 3;
  ASSERT_EQ(
      tarn_generate(model_, state_, nullptr, 0, &options, &generated, &error_),
      TARN_OK);
  EXPECT_EQ(generated, 3u);
  EXPECT_EQ(tarn_state_position(state_), 25u);
  told = Told();
  told.cancel_at = 2;
  generated = 77;
  ExpectError(
      tarn_generate(model_, state_, nullptr, 0, &options, &generated, &error_),
      TARN_ERROR_INTERRUPTED, "cancelled after 2 tokens");
  EXPECT_EQ(generated, 77u);
  EXPECT_EQ(tarn_state_position(state_), 27u);
  // Defaults, and what is refused.
  EXPECT_EQ(tarn_generate(model_, state_, prompt, 2, nullptr, nullptr, nullptr),
            TARN_OK);
  EXPECT_EQ(tarn_state_position(state_), 27u + 2 + 256);
  sampler.struct_size = 1;
  ExpectError(
      tarn_generate(model_, state_, prompt, 2, &options, nullptr, &error_),
      TARN_ERROR_ARGUMENT, "options.sampler.struct_size");
  ExpectError(
      tarn_generate(model_, nullptr, prompt, 2, nullptr, nullptr, &error_),
      TARN_ERROR_ARGUMENT, "state");
  ExpectError(
      tarn_generate(model_, state_, nullptr, 2, nullptr, nullptr, &error_),
      TARN_ERROR_ARGUMENT, "tokens");
  EXPECT_EQ(tarn_state_position(state_), 27u + 2 + 256);
}

TEST_F(CApi, ThreadsShareAModel) {
  std::vector<uint64_t> hashes(4);
  std::vector<std::thread> threads;
  for (uint64_t& hash : hashes) {
    threads.emplace_back([this, &hash] {
      tarn_state* own = nullptr;
      if (tarn_state_new(model_, &own, nullptr) != TARN_OK) return;
      for (int32_t t = 0; t < 50; ++t) {
        tarn_step(model_, own, t, nullptr, nullptr);
      }
      hash = tarn_state_hash(own);
      tarn_state_free(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(hashes[0], 0u);
  for (const uint64_t hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST_F(CApi, SourcesAreEncodedAndSearched) {
  tarn_model* model = nullptr;
  ASSERT_EQ(tarn_model_open(Path("seq2seq").c_str(), nullptr, &model, &error_),
            TARN_OK)
      << tarn_error_message(error_);
  EXPECT_EQ(tarn_model_arch(model), TARN_ARCH_SEQ2SEQ);
  EXPECT_EQ(tarn_model_n_classes(model), 0u);
  EXPECT_EQ(tarn_model_label(model, 0), nullptr);
  const std::vector<int32_t> source{116, 97, 114, 110};
  tarn_state* state = nullptr;
  ASSERT_EQ(tarn_encode_source(model, source.data(), 4, &state, &error_),
            TARN_OK);
  EXPECT_GT(tarn_state_memory_bytes(state), 0u);
  // Greedy by hand against the search with one beam.
  tarn_beam_options options = TARN_BEAM_OPTIONS_INIT;
  options.start = options.end = 10;
  options.max_tokens = 8;
  tarn_state* clone = nullptr;
  ASSERT_EQ(tarn_state_clone(state, &clone, &error_), TARN_OK);
  std::vector<int32_t> want, got(8);
  std::vector<float> logits(256);
  int32_t token = 10;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(tarn_step(model, clone, token, logits.data(), &error_), TARN_OK);
    tarn_sampler_options greedy = TARN_SAMPLER_OPTIONS_INIT;
    greedy.temperature = 0;
    ASSERT_EQ(tarn_sample(logits.data(), 256, &greedy, 0, &token, &error_),
              TARN_OK);
    if (token == 10) break;
    want.push_back(token);
  }
  uint64_t count = 0;
  double score = 1;
  ASSERT_EQ(tarn_beam_search(model, state, &options, got.data(), 8, &count,
                             &score, &error_),
            TARN_OK);
  got.resize(count);
  EXPECT_EQ(got, want);
  EXPECT_LT(score, 0);
  EXPECT_EQ(tarn_state_position(state), 0u);
  ExpectError(tarn_beam_search(model, state, &options, got.data(), 0, &count,
                               nullptr, &error_),
              TARN_ERROR_SHAPE, "capacity");
  options.beam = 0;
  ExpectError(tarn_beam_search(model, state, &options, nullptr, 0, &count,
                               nullptr, &error_),
              TARN_ERROR_ARGUMENT, "beam");
  tarn_model_close(model);  // the states keep it
  tarn_state_free(state);
  tarn_state_free(clone);
  ExpectError(tarn_encode_source(model_, source.data(), 4, &state, &error_),
              TARN_ERROR_ARGUMENT, "seq2seq");
}

TEST_F(CApi, TextsAreClassified) {
  tarn_model* model = nullptr;
  ASSERT_EQ(tarn_model_open(Path("encoder").c_str(), nullptr, &model, &error_),
            TARN_OK)
      << tarn_error_message(error_);
  EXPECT_EQ(tarn_model_arch(model), TARN_ARCH_ENCODER);
  EXPECT_EQ(tarn_model_n_classes(model), 3u);
  EXPECT_STREQ(tarn_model_label(model, 2), "label 2");
  EXPECT_EQ(tarn_model_label(model, 3), nullptr);
  const std::vector<int32_t> text{110, 111};
  std::vector<float> logits(3, NAN);
  ASSERT_EQ(tarn_classify(model, text.data(), 2, logits.data(), &error_),
            TARN_OK);
  ExpectError(tarn_classify(model, nullptr, 0, logits.data(), &error_),
              TARN_ERROR_ARGUMENT, "at least one");
  ExpectError(tarn_classify(model, text.data(), 2, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "logits");
  tarn_state* state = nullptr;
  ExpectError(tarn_state_new(model, &state, &error_), TARN_ERROR_ARGUMENT,
              "classifier");
  tarn_model_close(model);
}

TEST_F(CApi, TextsBecomeVectors) {
  const auto width = static_cast<size_t>(tarn_model_d_model(model_));
  ASSERT_GT(width, 0u);
  EXPECT_EQ(tarn_model_d_model(nullptr), 0u);
  const std::vector<int32_t> first{104, 101, 108}, second{108};
  const std::vector<tarn_text> texts{{first.data(), 3}, {second.data(), 1}};
  std::vector<float> vectors(2 * width, NAN), one(width, NAN);
  for (const int32_t pooling : {TARN_POOLING_MEAN, TARN_POOLING_LAST}) {
    ASSERT_EQ(
        tarn_embed(model_, texts.data(), 2, pooling, vectors.data(), &error_),
        TARN_OK)
        << tarn_error_message(error_);
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(tarn_embed(model_, &texts[i], 1, pooling, one.data(), &error_),
                TARN_OK);
      EXPECT_EQ(0, std::memcmp(one.data(), vectors.data() + i * width,
                               width * sizeof(float)));
      double squares = 0;
      for (const float x : one) squares += double{x} * double{x};
      EXPECT_NEAR(1.0, squares, 1e-5);
    }
  }
  EXPECT_EQ(tarn_embed(model_, nullptr, 0, 0, nullptr, &error_), TARN_OK);
  ExpectError(tarn_embed(model_, texts.data(), 2, 7, vectors.data(), &error_),
              TARN_ERROR_ARGUMENT, "pooling");
  ExpectError(tarn_embed(model_, nullptr, 1, 0, vectors.data(), &error_),
              TARN_ERROR_ARGUMENT, "texts");
  ExpectError(tarn_embed(model_, texts.data(), 1, 0, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "vectors");
  const tarn_text empty{nullptr, 0};
  ExpectError(tarn_embed(model_, &empty, 1, 0, vectors.data(), &error_),
              TARN_ERROR_ARGUMENT, "at least one token");
}

}  // namespace
}  // namespace tarn
