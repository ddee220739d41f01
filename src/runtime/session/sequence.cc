#include "runtime/session/sequence.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tarn {

Sequence::Sequence(const Tokenizer& tokenizer, SequenceOptions options)
    : tokenizer_(tokenizer),
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
}

void Sequence::Consumed(size_t count) {
  if (count > pending().size()) {
    throw ArgumentError("Sequence::Consumed: count",
                        StrCat("at most ", pending().size()), StrCat(count));
  }
  consumed_ += count;
}

int32_t Sequence::Draw(std::span<const float> logits, uint64_t position,
                       std::span<const int32_t> history,
                       std::span<const uint32_t> allowed) {
  if (ended() || !pending().empty()) {
    throw ArgumentError(
        "Sequence::Draw", "a sequence that waits for a token",
        ended() ? "one that has ended" : "one with tokens to consume");
  }
  const auto candidates = static_cast<size_t>(tokenizer_.vocab_size());
  const int32_t token = sampler_.Draw(
      {.logits = logits.first(std::min(candidates, logits.size())),
       .tokens = history,
       .allowed = allowed,
       .position = position},
      sampler_state_);
  text_.clear();
  if (std::binary_search(options_.stop_tokens.begin(),
                         options_.stop_tokens.end(), token)) {
    end_ = SequenceEnd::kStopToken;
    text_ = stops_.Take();
    return token;
  }
  pending_.assign(1, token);
  consumed_ = 0;
  ++tokens_;
  bytes_.clear();
  if (options_.begins_text) {
    tokenizer_.Decode(token, progress_, bytes_);
  } else {
    tokenizer_.Decode(token, bytes_);
  }
  if (stops_.Push(bytes_, text_)) {
    end_ = SequenceEnd::kStopText;
  } else if (tokens_ >= max_tokens_) {
    end_ = SequenceEnd::kBudget;
    text_ += stops_.Take();
  }
  return token;
}

}  // namespace tarn
