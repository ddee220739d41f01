// What the C interface lets a model do: consume tokens, read sources, put texts
// into classes, search.
#include <algorithm>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "runtime/generate/beam.h"
#include "runtime/generate/embed.h"

using tarn::capi::Guard;
using tarn::capi::Hold;
using tarn::capi::Require;
using tarn::capi::RequireModelOf;
using tarn::capi::Tokens;

tarn_status tarn_prefill(const tarn_model* model, tarn_state* state,
                         const int32_t* tokens, uint64_t count, float* logits,
                         tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    model->model.Prefill(state->state, Tokens(tokens, count), logits);
  });
}

tarn_status tarn_step(const tarn_model* model, tarn_state* state, int32_t token,
                      float* logits, tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    model->model.Step(state->state, token, logits);
  });
}

tarn_status tarn_step_batch(const tarn_model* model, const tarn_job* jobs,
                            uint64_t count, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    if (count == 0) return;
    Require(jobs, "jobs");
    std::vector<tarn::Job> batch;
    for (uint64_t i = 0; i < count; ++i) {
      RequireModelOf(model, jobs[i].state);
      batch.push_back({&jobs[i].state->state,
                       Tokens(jobs[i].tokens, jobs[i].count), jobs[i].logits,
                       jobs[i].all_logits != 0});
    }
    model->model.StepBatch(batch);
  });
}

tarn_status tarn_encode_source(const tarn_model* model, const int32_t* tokens,
                               uint64_t count, tarn_state** state,
                               tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(state, "state");
    *state = new tarn_state{model, model->model.Encode(Tokens(tokens, count))};
    Hold(model);
  });
}

tarn_status tarn_classify(const tarn_model* model, const int32_t* tokens,
                          uint64_t count, float* logits, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(logits, "logits");
    model->model.Classify(Tokens(tokens, count), logits);
  });
}

tarn_status tarn_embed(const tarn_model* model, const tarn_text* texts,
                       uint64_t count, int32_t pooling, float* vectors,
                       tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    if (pooling != TARN_POOLING_MEAN && pooling != TARN_POOLING_LAST) {
      throw tarn::ArgumentError("pooling", "TARN_POOLING_MEAN or _LAST",
                                tarn::StrCat(pooling));
    }
    if (count == 0) return;
    Require(texts, "texts");
    Require(vectors, "vectors");
    std::vector<std::vector<int32_t>> all;
    for (uint64_t i = 0; i < count; ++i) {
      const auto tokens = Tokens(texts[i].tokens, texts[i].count);
      all.emplace_back(tokens.begin(), tokens.end());
    }
    const std::vector<float> made =
        tarn::EmbedTexts(model->model, std::move(all),
                         pooling == TARN_POOLING_MEAN ? tarn::Pooling::kMean
                                                      : tarn::Pooling::kLast);
    std::copy(made.begin(), made.end(), vectors);
  });
}

tarn_status tarn_beam_search(const tarn_model* model, const tarn_state* state,
                             const tarn_beam_options* options, int32_t* tokens,
                             uint64_t capacity, uint64_t* count, double* score,
                             tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    Require(count, "count");
    const tarn_beam_options c = tarn::capi::ReadOptions(
        options, tarn_beam_options TARN_BEAM_OPTIONS_INIT, "options");
    tarn::BeamOptions beam;
    beam.beam = tarn::capi::Count(c.beam);
    beam.max_tokens = tarn::capi::Count(c.max_tokens);
    beam.length_penalty = c.length_penalty;
    beam.start = c.start;
    beam.end = c.end;
    beam.candidates = model->tokenizer.vocab_size();
    const auto found =
        tarn::BeamSearch(model->model, {&state->state, 1}, beam)[0];
    const tarn::Hypothesis best =
        found.empty() ? tarn::Hypothesis{} : found.front();
    tarn::capi::CopyOut(best.tokens.data(), best.tokens.size(), tokens,
                        capacity, count);
    if (score != nullptr) *score = best.score;
  });
}
