// Guesses of the model's own extra prediction head (multi-token prediction).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/mtp_head.h"
#include "runtime/session/draft.h"
#include "runtime/session/loaded_model.h"

namespace tarn {

/// The head reads what the model made of each token, and the token after it;
/// beyond the text's end it reads what it made itself. It draws as ModelDraft
/// does. It attends to the tokens that the session read since it began to
/// speculate: rows whose hidden state is not known are left out. Memory: keys
/// and values of one layer, and the latest kKept to kKept + kWaiting rows of
/// d_model floats.
class MtpDraft final : public DraftSource {
 public:
  /// Refers to the model, which must outlive it. Throws as MtpHead::Of.
  explicit MtpDraft(const LoadedModel& model);

  Draft Guess(const DraftInput& input, std::span<int32_t> out) override;
  bool reads_hidden() const override { return true; }
  void Read(int64_t position, std::span<const int32_t> tokens,
            const float* hidden) noexcept override;
  std::span<const float> logits() const override { return logits_; }
  void Forget(int64_t position) override;
  std::unique_ptr<DraftSource> New() const override;

 private:
  // Rows that wait for a pass of the head, and those kept for going back.
  static constexpr int64_t kWaiting = 256, kKept = 64;

  explicit MtpDraft(const MtpHead& head);
  void Clear();
  int64_t end() const { return from_ + static_cast<int64_t>(tokens_.size()); }
  void Append(int64_t position, std::span<const int32_t> tokens,
              const float* hidden);
  void Advance(int64_t to, std::span<const int32_t> next, float* logits,
               float* out);
  void TakeBack(int64_t to);
  void Drop();

  const MtpHead& head_;
  SequenceState state_;
  // Row i of the head is made of the hidden row at position i and token i + 1.
  int64_t next_ = 0;  // the first row that the state lacks
  // Tokens and hidden rows at [from_, end()).
  int64_t from_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<float> hidden_;  // [tokens_.size(), d_model]
  std::vector<float> logits_;
  std::vector<float> own_;        // two rows [d_model]
  std::vector<int32_t> guessed_;  // the text's tokens, then its own
};

}  // namespace tarn
