// Where a user's word says that guesses come from.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/session/draft.h"
#include "runtime/session/loaded_model.h"

namespace tarn {

inline constexpr char kNoGuesses[] = "off";
inline constexpr char kNgramGuesses[] = "ngram";
inline constexpr char kMtpGuesses[] = "mtp";

/// Makes the sources of a model's sessions. Immutable; thread-safe.
class Drafts {
 public:
  /// word: "off", "ngram" (what the text repeats of itself), "mtp" (the model's
  /// extra prediction head), or the path of a draft model, which is opened with
  /// `options`. `model` must outlive this. Throws ArgumentError for a draft
  /// model that has another tokenizer or writes no text, and for a model
  /// without such a head; other errors as LoadedModel::Open and MtpHead::Of.
  static Result<Drafts> Open(const std::string& word, const LoadedModel& model,
                             const ModelOptions& options = {});

  /// Null where there are to be no guesses. Refers to this.
  std::unique_ptr<DraftSource> Make() const;
  bool none() const { return !ngram_ && !mtp_ && draft_ == nullptr; }

 private:
  bool ngram_ = false, mtp_ = false;
  std::unique_ptr<const LoadedModel> draft_;  // its place does not change
  const LoadedModel* model_ = nullptr;
};

}  // namespace tarn
