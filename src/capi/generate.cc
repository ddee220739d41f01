// Writing text with the C interface.
#include "runtime/generate/generate.h"

#include "capi/guard.h"

namespace tarn::capi {

SamplerOptions SamplerOptionsOf(const tarn_sampler_options* options,
                                const char* name) {
  const tarn_sampler_options c = ReadOptions(
      options, tarn_sampler_options TARN_SAMPLER_OPTIONS_INIT, name);
  return {c.temperature, c.top_k, c.top_p, c.min_p, c.seed, c.stream};
}

}  // namespace tarn::capi

tarn_status tarn_generate(const tarn_model* model, tarn_state* state,
                          const int32_t* prompt, uint64_t count,
                          const tarn_generate_options* options,
                          uint64_t* generated, tarn_error** error) {
  return tarn::capi::Guard(error, [&] {
    tarn::capi::RequireModelOf(model, state);
    const tarn_generate_options c = tarn::capi::ReadOptions(
        options, tarn_generate_options TARN_GENERATE_OPTIONS_INIT, "options");
    tarn::GenerateOptions generate;
    generate.max_tokens = tarn::capi::Count(c.max_tokens);
    generate.sampler = c.sampler == nullptr ? model->defaults.sampler
                                            : tarn::capi::SamplerOptionsOf(
                                                  c.sampler, "options.sampler");
    if (c.stop_tokens == nullptr && c.stop_token_count == 0) {
      generate.stop_tokens = model->defaults.stop_tokens;
    } else {
      const std::span<const int32_t> stop_tokens =
          tarn::capi::Tokens(c.stop_tokens, c.stop_token_count);
      generate.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
    }
    if (c.stop_count > 0) tarn::capi::Require(c.stop, "options.stop");
    if (c.stop_count > tarn::kMaxStopTexts) {
      throw tarn::ArgumentError("options.stop_count",
                                tarn::StrCat("at most ", tarn::kMaxStopTexts),
                                tarn::StrCat(c.stop_count));
    }
    for (uint64_t i = 0; i < c.stop_count; ++i) {
      tarn::capi::Require(c.stop[i], "options.stop");
      generate.stop_texts.emplace_back(c.stop[i]);
    }
    const auto tell = [&c](const tarn::GeneratedToken& token) {
      return c.callback == nullptr ||
             c.callback(c.user, token.id, token.text.data(),
                        token.text.size()) == 0;
    };
    const auto stop = [&c] {
      return c.cancel != nullptr && c.cancel(c.user) != 0;
    };
    const tarn::GenerateResult result =
        tarn::Generate(model->model, model->tokenizer, state->state,
                       tarn::capi::Tokens(prompt, count), generate, tell, stop);
    if (result.stopped) {
      throw tarn::Error(
          tarn::ErrorCode::kInterrupted,
          tarn::StrCat("generate: cancelled after ", result.tokens, " tokens"));
    }
    if (result.end == tarn::SequenceEnd::kStopToken && !result.held.empty()) {
      tell({.id = -1, .text = result.held, .ms = 0});
    }
    if (generated != nullptr) {
      *generated = static_cast<uint64_t>(result.tokens);
    }
  });
}
