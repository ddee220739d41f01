#include "runtime/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "runtime/generate/target.h"
#include "runtime/model/elapsed.h"

namespace tarn {
namespace {

using Clock = std::chrono::steady_clock;

// Checks the whole prompt, before its first block changes the state.
void CheckTokens(std::span<const int32_t> tokens, int64_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    throw ArgumentError(StrCat("generate: prompt token ", i),
                        StrCat("0 to ", vocab_size - 1), StrCat(tokens[i]));
  }
}

}  // namespace

Generation::Generation(const Model& model, const Tokenizer& tokenizer,
                       State& state, const GenerateOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      state_(state),
      max_tokens_(options.max_tokens),
      sequence_(tokenizer,
                {options.sampler, options.stop_tokens, options.stop_texts,
                 options.begins_text, options.constraint}),
      history_need_(TokensThatCount(options.sampler)) {
  Remember(options.history);
  if (options.sampler_state) sequence_.SetSamplerState(*options.sampler_state);
  if (options.max_tokens < 0 && options.max_tokens != kAutoTokens) {
    throw ArgumentError("max_tokens", "0 or more", StrCat(options.max_tokens));
  }
  if (model.config().task == Task::kImage) {
    throw ArgumentError("generate: model", "a model that writes text",
                        "an image model");
  }
  logits_.resize(static_cast<size_t>(model.n_outputs()));
}

// How many tokens may be written after a prompt of as many.
int64_t Generation::Budget(int64_t prompt) const {
  const int64_t room = model_.max_tokens() - state_.position() - prompt;
  const int64_t least = std::max<int64_t>(max_tokens_, 0);
  if (least > room) {
    throw ArgumentError(
        room < 0 ? "generate: prompt" : "generate: max_tokens",
        StrCat("at most ", room < 0 ? room + prompt : room, ": the model has ",
               model_.max_tokens(), " learned positions (max_positions)"),
        StrCat(room < 0 ? prompt : least));
  }
  return max_tokens_ == kAutoTokens ? std::min(kDefaultTokens, room)
                                    : max_tokens_;
}

// Keeps no more than draws look at, so that a long text takes no more memory.
void Generation::Remember(std::span<const int32_t> tokens) {
  if (history_need_ >= 0) {
    const auto need = static_cast<size_t>(history_need_);
    tokens = tokens.last(std::min(tokens.size(), need));
    if (history_.size() > 2 * need) {
      history_.erase(history_.begin(),
                     history_.end() - static_cast<ptrdiff_t>(need));
    }
  }
  history_.insert(history_.end(), tokens.begin(), tokens.end());
}

bool Generation::Prompt(std::span<const int32_t> tokens,
                        const StopCheck& stop) {
  constexpr size_t kBlock = 1024;
  const int32_t start = NewlineToken(tokenizer_).value_or(0);
  if (tokens.empty() && state_.position() == 0) tokens = {&start, 1};
  CheckTokens(tokens, model_.vocab_size());
  sequence_.Begin(tokens, Budget(static_cast<int64_t>(tokens.size())));
  Remember(tokens);
  if (tokens.empty()) {
    const std::span<const float> last = state_.last_logits();
    if (last.empty()) {
      throw ArgumentError("generate: state", "one with its last logits",
                          "one without (its last call asked for none)");
    }
    std::copy(last.begin(), last.end(), logits_.begin());
  }
  while (!sequence_.pending().empty()) {
    if (stop && stop()) return false;
    const std::span<const int32_t> all = sequence_.pending();
    const auto block = all.first(std::min(kBlock, all.size()));
    float* logits = block.size() == all.size() ? logits_.data() : nullptr;
    try {
      model_.Prefill(state_, block, logits, stop);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted) throw;
      return false;
    }
    sequence_.Consumed(block.size());
  }
  return !stop || !stop();
}

std::optional<int32_t> Generation::Draw() {
  const int32_t token = sequence_.Draw(
      logits_, static_cast<uint64_t>(state_.position()), history_);
  if (token < 0 || sequence_.end() == SequenceEnd::kStopToken) {
    return std::nullopt;
  }
  Remember({&token, 1});
  return token;
}

void Generation::Consume() {
  model_.Step(state_, sequence_.pending().front(), logits_.data());
  sequence_.Consumed(1);
}

std::optional<int32_t> Generation::Next() {
  if (done()) return std::nullopt;
  const std::optional<int32_t> token = Draw();
  if (token) Consume();
  return token;
}

GenerateResult Generate(const Model& model, const Tokenizer& tokenizer,
                        State& state, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenSink& sink,
                        const StopCheck& stop) {
  Generation text(model, tokenizer, state, options);
  GenerateResult result;
  const Clock::time_point begin = Clock::now();
  result.stopped = !text.Prompt(prompt, stop);
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  result.prefill_ms = MillisecondsSince(begin);
  GeneratedToken token;
  while (!result.stopped && !text.done()) {
    const Clock::time_point token_begin = Clock::now();
    const std::optional<int32_t> drawn = text.Draw();
    if (result.tokens == 0) result.first_token_ms = MillisecondsSince(begin);
    if (!drawn) {
      result.held = text.text();
      break;
    }
    text.Consume();
    token.id = *drawn;
    token.ms = MillisecondsSince(token_begin);
    result.decode_ms += token.ms;
    ++result.tokens;
    token.text = text.text();
    if (sink && !sink(token)) break;
    result.stopped = stop && stop();
  }
  result.end = text.end();
  result.sampler_state = text.sampler_state();
  result.held += text.TakeHeld();
  return result;
}

}  // namespace tarn
