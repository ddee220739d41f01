#include "runtime/speculate/model_draft.h"

#include <algorithm>

#include "core/error.h"

namespace tarn {
namespace {

const LoadedModel& WithTokensOf(const LoadedModel& draft,
                                const LoadedModel& model) {
  if (draft.tokenizer.ToJson() == model.tokenizer.ToJson()) return draft;
  throw ArgumentError(
      "draft model", "one with the model's tokenizer",
      StrCat("another tokenizer (", draft.tokenizer.vocab_size(), " and ",
             model.tokenizer.vocab_size(), " tokens)"));
}

}  // namespace

ModelDraft::ModelDraft(const LoadedModel& draft, const LoadedModel& model)
    : ModelDraft(WithTokensOf(draft, model)) {}

ModelDraft::ModelDraft(const LoadedModel& draft)
    : draft_(draft),
      known_(draft),
      ahead_(draft.model),
      logits_(static_cast<size_t>(draft.model.n_outputs())) {}

std::unique_ptr<DraftSource> ModelDraft::New() const {
  return std::unique_ptr<DraftSource>(new ModelDraft(draft_));
}

void ModelDraft::Forget(int64_t position) {
  if (position < known_.position()) known_.RollBack(position);
}

Draft ModelDraft::Guess(const DraftInput& input, std::span<int32_t> out) {
  try {
    guessed_.assign(input.read.begin(), input.read.end());
    guessed_.insert(guessed_.end(), input.pending.begin(), input.pending.end());
    const auto known = static_cast<int64_t>(guessed_.size());
    const int64_t room =
        draft_.model.max_tokens() - known - static_cast<int64_t>(out.size());
    if (room < 0) return {};
    Forget(known);
    known_.Append(std::span<const int32_t>(guessed_).subspan(
        static_cast<size_t>(known_.position())));
    if (known_.logits().empty()) return {};
    std::copy(known_.logits().begin(), known_.logits().end(), logits_.begin());
    for (size_t i = 0; i < out.size(); ++i) {
      if (i == 1) ahead_.CopyFrom(known_.state());
      if (i > 0) draft_.model.Step(ahead_, out[i - 1], logits_.data());
      out[i] = input.text.Guess(logits_, guessed_.size(), guessed_);
      guessed_.push_back(out[i]);
    }
    return {out.size(), 0};
  } catch (const Error&) {
    // Numbers that are none, or tokens that only the other model has.
    return {};
  }
}

}  // namespace tarn
