#include "cli/commands/classify_run.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tarn::cli {
namespace {

ClassScores ScoresOf(std::span<const float> logits) {
  ClassScores scores;
  const auto best = std::max_element(logits.begin(), logits.end());
  scores.best = best - logits.begin();
  double sum = 0;
  for (const float logit : logits) {
    scores.probabilities.push_back(std::exp(double{logit} - double{*best}));
    sum += scores.probabilities.back();
  }
  if (!std::isfinite(sum)) {
    throw NumericError("logits of the classes", "finite numbers",
                       "others (`tarn verify` checks the weights)");
  }
  for (double& p : scores.probabilities) p /= sum;
  return scores;
}

}  // namespace

void ClassBatch::Add(const std::string& text, const std::string& place) {
  if (text.empty()) {
    throw ExitError(kExitBadModel,
                    StrCat(place, ": want a text, got an empty line"));
  }
  auto tokens = opened_.tokenizer.Encode(text);
  if (!tokens.ok()) {
    throw ExitError(kExitBadModel, StrCat(place, ": ", tokens.error().what()));
  }
  texts_.push_back(std::move(tokens).Take());
}

std::vector<ClassScores> ClassBatch::Run() {
  const size_t classes = opened_.model.labels().size();
  std::vector<std::span<const int32_t>> sequences(texts_.begin(), texts_.end());
  std::vector<float> logits(texts_.size() * classes);
  opened_.model.ClassifyBatch(sequences, logits.data());
  std::vector<ClassScores> scores;
  for (size_t i = 0; i < texts_.size(); ++i) {
    scores.push_back(ScoresOf({logits.data() + i * classes, classes}));
  }
  texts_.clear();
  return scores;
}

}  // namespace tarn::cli
