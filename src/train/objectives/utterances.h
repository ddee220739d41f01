// Utterances for CTC: recordings joined, changed a little, and turned into
// frames.
#pragma once

#include <cstdint>
#include <vector>

#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"
#include "train/tasks/speech_data.h"

namespace tarn::train {

struct Utterance {
  torch::Tensor features;        // [T, bands] float32, normalised
  std::vector<int64_t> letters;  // classes of LetterSymbols(), no blank
};

/// The utterances of one set of recordings, which must outlive it. Thread-safe.
class Utterances {
 public:
  Utterances(const SpokenDigits& digits, const SpeakerSplit& split,
             const UtteranceOptions& options);

  /// Row `row` of update `step` (1, ...): a pure function of recordings, seed,
  /// step and row. A recording drawn from all training speakers comes first,
  /// then others of the same speaker, with white noise 60 dB under the peak.
  /// With augment a, uniformly drawn: vocal tract e^(+-0.25 a), speed
  /// e^(+-0.2 a), noise up to 35 a dB louder; then two stretches of up to 8 a
  /// bands are set to the mean (the frequency masks of Park et al. 2019; their
  /// time masks would hide whole letters of such short utterances).
  Utterance Training(int64_t step, int64_t row) const;

  /// Every recording of the held-out (test) speakers once, unchanged but for
  /// the noise, speaker by speaker in an order that no option but join_frames
  /// changes; at most `most` utterances, evenly spaced.
  std::vector<Utterance> HeldOut(int64_t most) const;
  std::vector<Utterance> Test(int64_t most) const;

 private:
  std::vector<Utterance> EachOnce(const std::vector<int64_t>& clips,
                                  int64_t most) const;

  const SpokenDigits& digits_;
  const SpeakerSplit& split_;
  UtteranceOptions options_;
  std::vector<std::vector<int64_t>> of_speaker_;  // training clips of each
};

/// Rows of one forward pass.
struct UtteranceRows {
  nn::Batch batch;              // frames, lengths
  torch::Tensor letters;        // [sum of counts] int64
  torch::Tensor letter_counts;  // [B] int64
  int64_t frames = 0, total_letters = 0;
  // Letters of the rows that CtcLoss counts, which turn its sum into a mean.
  int64_t counted_letters = 0;
};
UtteranceRows MakeUtteranceRows(const std::vector<Utterance>& utterances,
                                int64_t bands);

/// Connectionist temporal classification (Graves et al. 2006, eq. 8): minus the
/// log-likelihood of each row's letters, summed over rows, in nats; blank is
/// class 0. logits [B, T, classes]. A row with fewer frames than its letters
/// need (one each, and a blank between equal neighbours) counts as 0, with no
/// gradient and no counted_letters, as if it were not there.
torch::Tensor CtcLoss(const torch::Tensor& logits, const UtteranceRows& rows);

/// The likeliest class of every frame, with repeats merged and blanks removed
/// (best path decoding, Graves et al. 2006, section 3.2): classes of each row.
std::vector<std::vector<int64_t>> GreedyLetters(const torch::Tensor& logits,
                                                const torch::Tensor& lengths);

}  // namespace tarn::train
