// Guesses of a small model that was trained with the same tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/session/draft.h"
#include "runtime/session/session.h"

namespace tarn {

/// Draws with the options and the random numbers of the text, so that two
/// models which agree on the probabilities agree on the token, at any
/// temperature. It reads each token of the text once.
class ModelDraft final : public DraftSource {
 public:
  /// Refers to both, which must outlive it. Throws ArgumentError for a draft
  /// model whose tokenizer differs from the model's.
  ModelDraft(const LoadedModel& draft, const LoadedModel& model);

  Draft Guess(const DraftInput& input, std::span<int32_t> out) override;
  void Forget(int64_t position) override;
  std::unique_ptr<DraftSource> New() const override;

 private:
  explicit ModelDraft(const LoadedModel& draft);

  const LoadedModel& draft_;
  Session known_;  // what it has read of the text
  State ahead_;    // that and its own guesses
  std::vector<float> logits_;
  std::vector<int32_t> guessed_;  // the text's tokens, then its own
};

}  // namespace tarn
