#include "cli/eval/run.h"

#include <algorithm>
#include <cmath>

namespace tarn::cli {

double LogProbability(std::span<const float> logits, int32_t token) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return logits[static_cast<size_t>(token)] - best - std::log(sum);
}

Scorer::Scorer(const Model& model, bool windows)
    : model_(model), state_(model), windows_(windows) {
  if (windows && model.max_tokens() < 2) {
    throw ArgumentError("eval: model", "max_positions of at least 2",
                        StrCat(model.max_tokens()));
  }
  // About 4 MiB of logits: long enough for matrix products, short enough for
  // any vocabulary.
  constexpr int64_t kLogits = int64_t{1} << 20;
  block_ = std::clamp<int64_t>(kLogits / model.vocab_size(), 16, 512);
  logits_.resize(static_cast<size_t>(block_ * model.vocab_size()));
  last_.resize(static_cast<size_t>(model.vocab_size()));
}

double Scorer::NatsPerToken() const {
  return tokens_ > 1 ? nats_ / static_cast<double>(tokens_ - 1) : 0;
}

void Scorer::Feed(std::span<const int32_t> tokens, const Sink& sink) {
  while (!tokens.empty()) {
    if (state_.position() == model_.max_tokens()) StartWindow();
    const int64_t room = model_.max_tokens() - state_.position();
    const size_t count =
        std::min(tokens.size(), static_cast<size_t>(std::min(block_, room)));
    FeedBlock(tokens.first(count), sink);
    tokens = tokens.subspan(count);
  }
}

// The last token again, at the first position: it predicts what follows.
void Scorer::StartWindow() {
  if (!windows_) {
    throw ArgumentError(
        "eval: tokens",
        StrCat("at most ", model_.max_tokens(),
               ", the model's learned positions (max_positions)"),
        "more");
  }
  state_.Reset();
  model_.Score(state_, {&last_token_, 1}, last_.data());
}

void Scorer::FeedBlock(std::span<const int32_t> tokens, const Sink& sink) {
  const size_t vocab = last_.size();
  model_.Score(state_, tokens, logits_.data());
  for (size_t i = 0; i < tokens.size(); ++i) {
    // Row i - 1 predicts token i; the first is predicted by the block before.
    const float* row = i == 0 ? last_.data() : &logits_[(i - 1) * vocab];
    if (tokens_ > 0) Count({row, vocab}, tokens[i], sink);
    ++tokens_;
  }
  const float* end = &logits_[(tokens.size() - 1) * vocab];
  std::copy(end, end + vocab, last_.begin());
  last_token_ = tokens.back();
}

void Scorer::Count(std::span<const float> logits, int32_t token,
                   const Sink& sink) {
  const double logprob = LogProbability(logits, token);
  if (!std::isfinite(logprob)) {
    throw NumericError(StrCat("logits after token ", tokens_),
                       "finite log-probabilities",
                       StrCat(logprob, " (`tarn verify` checks the weights)"));
  }
  nats_ -= logprob;
  sink(logprob);
}

}  // namespace tarn::cli
