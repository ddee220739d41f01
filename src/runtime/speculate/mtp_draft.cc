#include "runtime/speculate/mtp_draft.h"

#include <algorithm>
#include <exception>
#include <new>

#include "core/error.h"

namespace tarn {

MtpDraft::MtpDraft(const LoadedModel& model)
    : MtpDraft(MtpHead::Of(model.model)) {}

MtpDraft::MtpDraft(const MtpHead& head)
    : head_(head),
      state_(head.NewState()),
      logits_(static_cast<size_t>(head.n_outputs())),
      own_(2 * static_cast<size_t>(head.d_model())) {}

std::unique_ptr<DraftSource> MtpDraft::New() const {
  auto copy = std::unique_ptr<MtpDraft>(new MtpDraft(head_));
  copy->state_.Reserve(state_.position);
  copy->state_.CopyFrom(state_);
  copy->next_ = next_;
  copy->from_ = from_;
  copy->tokens_ = tokens_;
  copy->hidden_ = hidden_;
  return copy;
}

void MtpDraft::Clear() {
  state_.Reset();
  next_ = from_ = 0;
  tokens_.clear();
  hidden_.clear();
}

// The state loses row `to` and those after it.
void MtpDraft::TakeBack(int64_t to) {
  if (next_ <= to) return;
  state_.position = std::max<int64_t>(0, state_.position - (next_ - to));
  next_ = to;
}

void MtpDraft::Forget(int64_t position) {
  if (position <= from_) {
    from_ = position;
    tokens_.clear();
    hidden_.clear();
  } else if (position < end()) {
    const auto kept = static_cast<size_t>(position - from_);
    tokens_.resize(kept);
    hidden_.resize(kept * static_cast<size_t>(head_.d_model()));
  }
  // A row needs the token after it.
  TakeBack(std::max<int64_t>(0, position - 1));
}

void MtpDraft::Append(int64_t position, std::span<const int32_t> tokens,
                      const float* hidden) {
  const auto width = static_cast<size_t>(head_.d_model());
  if (position < from_ || position > end()) {  // what is between is not known
    from_ = position;
    tokens_.clear();
    hidden_.clear();
  }
  const auto kept = static_cast<size_t>(position - from_);
  tokens_.resize(kept);
  hidden_.resize(kept * width);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  hidden_.insert(hidden_.end(), hidden, hidden + tokens.size() * width);
}

// Gives the head the rows before `to`; next: the token at position `to`, or
// none where it is among tokens_.
void MtpDraft::Advance(int64_t to, std::span<const int32_t> next, float* logits,
                       float* out) {
  next_ = std::max(next_, from_);
  if (next_ >= to) return;
  const auto first = static_cast<size_t>(next_ - from_);
  guessed_.assign(tokens_.begin() + static_cast<int64_t>(first) + 1,
                  tokens_.end());
  guessed_.insert(guessed_.end(), next.begin(), next.end());
  head_.Run(
      state_,
      std::span<const int32_t>(guessed_).first(static_cast<size_t>(to - next_)),
      hidden_.data() + first * static_cast<size_t>(head_.d_model()), logits,
      out);
  next_ = to;
}

// What the head has read is kept as far as a text may go back by a guess.
void MtpDraft::Drop() {
  const int64_t drop = std::min(next_, end()) - kKept - from_;
  if (drop < kWaiting) return;
  tokens_.erase(tokens_.begin(), tokens_.begin() + drop);
  hidden_.erase(hidden_.begin(), hidden_.begin() + drop * head_.d_model());
  from_ += drop;
}

void MtpDraft::Read(int64_t position, std::span<const int32_t> tokens,
                    const float* hidden) noexcept {
  try {
    Append(position, tokens, hidden);
    if (end() - 1 - std::max(next_, from_) < kWaiting) return;
    Advance(end() - 1, {}, nullptr, nullptr);
    Drop();
  } catch (const std::exception&) {
    Clear();  // out of memory: it begins again with later tokens
  }
}

Draft MtpDraft::Guess(const DraftInput& input, std::span<int32_t> out) {
  const auto known =
      static_cast<int64_t>(input.read.size() + input.pending.size());
  if (input.pending.empty() || known < 2) return {};
  Forget(known);
  const int64_t last = known - 2;  // the row before the next token
  if (end() <= last || from_ > last) return {};
  TakeBack(last);
  try {
    const auto width = static_cast<size_t>(head_.d_model());
    float* const own[] = {own_.data(), own_.data() + width};
    const std::span<const int32_t> next = input.pending.last(1);
    Advance(last + 1, end() == known - 1 ? next : next.first(0), logits_.data(),
            own[0]);
    Drop();
    guessed_.assign(input.read.begin(), input.read.end());
    guessed_.insert(guessed_.end(), input.pending.begin(), input.pending.end());
    const int64_t rows = state_.position;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i > 0) {
        head_.Run(state_, std::span<const int32_t>(out).subspan(i - 1, 1),
                  own[(i - 1) % 2], logits_.data(), own[i % 2]);
      }
      out[i] = input.text.Guess(logits_, guessed_.size(), guessed_);
      guessed_.push_back(out[i]);
    }
    state_.position = rows;
    return {out.size(), 0};
  } catch (const Error&) {
    Clear();  // numbers that are none
    return {};
  } catch (const std::bad_alloc&) {
    Clear();
    throw;
  }
}

}  // namespace tarn
