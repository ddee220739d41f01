#include "runtime/session/sequence.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tarn {

Sequence::Sequence(const Tokenizer& tokenizer, SequenceOptions options)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      sampler_(options_.sampler, tokenizer),
      sampler_state_(sampler_.Start()),
      stops_(options_.stop_texts) {
  for (const int32_t token : options_.stop_tokens) {
    if (token >= 0 && token < tokenizer.vocab_size()) continue;
    throw ArgumentError("stop_tokens",
                        StrCat("0 to ", tokenizer.vocab_size() - 1),
                        StrCat(token));
  }
  std::sort(options_.stop_tokens.begin(), options_.stop_tokens.end());
}

void Sequence::Begin(std::span<const int32_t> prompt, int64_t max_tokens) {
  if (max_tokens < 0) {
    throw ArgumentError("max_tokens", "0 or more", StrCat(max_tokens));
  }
  pending_.assign(prompt.begin(), prompt.end());
  consumed_ = 0;
  max_tokens_ = max_tokens;
  tokens_ = 0;
  end_ = max_tokens > 0 ? SequenceEnd::kNone : SequenceEnd::kBudget;
  text_.clear();
  stops_.Reset();
  progress_ = {};
  if (options_.constraint == nullptr) return;
  grammar_.emplace(options_.constraint->grammar());
  mask_.resize(static_cast<size_t>(options_.constraint->masks().mask_words()));
}

void Sequence::Restart() {
  sampler_state_ = sampler_.Start();
  Begin({}, max_tokens_);
}

void Sequence::SetStream(uint64_t stream) {
  options_.sampler.stream = stream;
  sampler_ = Sampler(options_.sampler, *tokenizer_);
}

void Sequence::Consumed(size_t count) {
  if (count > pending().size()) {
    throw ArgumentError("Sequence::Consumed: count",
                        StrCat("at most ", pending().size()), StrCat(count));
  }
  consumed_ += count;
}

void Sequence::Unconsumed(std::span<const int32_t> tokens) {
  pending_.erase(pending_.begin(),
                 pending_.begin() + static_cast<ptrdiff_t>(consumed_));
  consumed_ = 0;
  pending_.insert(pending_.begin(), tokens.begin(), tokens.end());
}

void Sequence::CheckWaits(const char* call) const {
  if (!ended() && pending().empty()) return;
  throw ArgumentError(
      call, "a sequence that waits for a token",
      ended() ? "one that has ended" : "one with tokens to consume");
}

// The tokens that the grammar allows next; an empty span without one. Nothing
// where none is.
std::optional<std::span<const uint32_t>> Sequence::Allowed() {
  if (!grammar_) return std::span<const uint32_t>();
  options_.constraint->masks().Fill(*grammar_, mask_);
  const auto any = [](uint32_t word) { return word != 0; };
  if (std::none_of(mask_.begin(), mask_.end(), any)) return std::nullopt;
  return std::span<const uint32_t>(mask_);
}

// The rows of logits that stand for a text.
std::span<const float> Sequence::Known(std::span<const float> logits) const {
  const auto candidates = static_cast<size_t>(tokenizer_->vocab_size());
  return logits.first(std::min(candidates, logits.size()));
}

int32_t Sequence::Guess(std::span<const float> logits, uint64_t position,
                        std::span<const int32_t> history) const {
  SamplerState state = sampler_state_;
  return sampler_.Draw({.logits = Known(logits),
                        .tokens = history,
                        .allowed = {},
                        .position = position},
                       state);
}

int32_t Sequence::Draw(std::span<const float> logits, uint64_t position,
                       std::span<const int32_t> history) {
  CheckWaits("Sequence::Draw");
  const auto allowed = Allowed();
  if (!allowed) {
    // Without a stop token to draw, a text ends where nothing may follow.
    end_ = SequenceEnd::kGrammar;
    text_ = stops_.Take();
    return -1;
  }
  SamplerState state = sampler_state_;
  const int32_t token = sampler_.Draw({.logits = Known(logits),
                                       .tokens = history,
                                       .allowed = *allowed,
                                       .position = position},
                                      state);
  sampler_state_ = state;
  Accept(token);
  return token;
}

void Sequence::Accept(int32_t token) {
  CheckWaits("Sequence::Accept");
  if (token < 0 || token >= tokenizer_->vocab_size()) {
    throw ArgumentError("Sequence::Accept: token",
                        StrCat("0 to ", tokenizer_->vocab_size() - 1),
                        StrCat(token));
  }
  text_.clear();
  if (std::binary_search(options_.stop_tokens.begin(),
                         options_.stop_tokens.end(), token)) {
    end_ = SequenceEnd::kStopToken;
    text_ = stops_.Take();
    return;
  }
  if (grammar_) {
    // The bytes that masks are about: of the token by itself.
    std::string bytes;
    tokenizer_->Decode(token, bytes);
    if (!grammar_->Push(bytes)) {
      throw ArgumentError("Sequence::Accept: token",
                          "one that the grammar allows", StrCat(token));
    }
  }
  pending_.assign(1, token);
  consumed_ = 0;
  ++tokens_;
  bytes_.clear();
  if (options_.begins_text) {
    tokenizer_->Decode(token, progress_, bytes_);
  } else {
    tokenizer_->Decode(token, bytes_);
  }
  if (stops_.Push(bytes_, text_)) {
    end_ = SequenceEnd::kStopText;
  } else if (tokens_ >= max_tokens_) {
    end_ = SequenceEnd::kBudget;
    text_ += stops_.Take();
  }
}

}  // namespace tarn
