#include "runtime/speculate/drafts.h"

#include <utility>

#include "runtime/speculate/model_draft.h"
#include "runtime/speculate/mtp_draft.h"
#include "runtime/speculate/ngram_draft.h"

namespace tarn {

Result<Drafts> Drafts::Open(const std::string& word, const LoadedModel& model,
                            const ModelOptions& options) {
  Drafts drafts;
  drafts.model_ = &model;
  if (word == kNoGuesses) return drafts;
  if (word == kNgramGuesses) {
    drafts.ngram_ = true;
    return drafts;
  }
  if (word == kMtpGuesses) {
    try {
      MtpHead::Of(model.model);
    } catch (const FormatError& error) {
      return error;
    } catch (const IoError& error) {
      return error;
    }
    drafts.mtp_ = true;
    return drafts;
  }
  Result<LoadedModel> draft = LoadedModel::Open(ModelPath(word), options);
  if (!draft.ok()) return draft.error();
  drafts.draft_ = std::make_unique<const LoadedModel>(std::move(draft).Take());
  drafts.Make();  // throws for one that does not fit
  return drafts;
}

std::unique_ptr<DraftSource> Drafts::Make() const {
  if (ngram_) return std::make_unique<NgramDraft>();
  if (mtp_) return std::make_unique<MtpDraft>(*model_);
  if (draft_ == nullptr) return nullptr;
  return std::make_unique<ModelDraft>(*draft_, *model_);
}

}  // namespace tarn
