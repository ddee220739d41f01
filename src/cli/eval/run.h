// Scores a stream of tokens: the arithmetic of `tarn eval`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/model.h"

namespace tarn::cli {

/// Natural log of the softmax of `logits` at `token`, in double. NaN where the
/// logits are not finite.
double LogProbability(std::span<const float> logits, int32_t token);

/// Feeds tokens through a model and adds up log-probabilities. Memory does not
/// grow with the number of tokens (the state of softmax models does).
class Scorer {
 public:
  /// `windows`: a text with more tokens than the model has learned positions
  /// (Model::max_tokens) is read in windows of as many, each beginning with the
  /// last token of the one before; otherwise Feed throws ArgumentError for it.
  explicit Scorer(const Model& model, bool windows = true);
  /// Called with the log-probability of each token after the first.
  using Sink = std::function<void(double logprob)>;
  /// Any split of a text gives the same figures. Throws NumericError when a
  /// log-probability is not finite.
  void Feed(std::span<const int32_t> tokens, const Sink& sink);
  int64_t tokens() const { return tokens_; }
  /// The state after the tokens fed so far.
  const State& state() const { return state_; }
  /// Minus the sum of log-probabilities, and the mean; 0 when none.
  double nats() const { return nats_; }
  double NatsPerToken() const;

 private:
  void StartWindow();
  void FeedBlock(std::span<const int32_t> tokens, const Sink& sink);
  void Count(std::span<const float> logits, int32_t token, const Sink& sink);
  const Model& model_;
  State state_;
  int64_t block_;
  std::vector<float> logits_;  // [block_, vocab]
  std::vector<float> last_;    // [vocab], after the last token fed
  int32_t last_token_ = 0;
  const bool windows_;
  int64_t tokens_ = 0;
  double nats_ = 0;
};

}  // namespace tarn::cli
