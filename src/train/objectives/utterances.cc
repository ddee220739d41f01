#include "train/objectives/utterances.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/rng.h"
#include "train/objectives/log_mel.h"

namespace tarn::train {
namespace {

constexpr double kLeastGap = 0.020, kLongestGap = 0.150;  // seconds
constexpr double kNoiseDb = -60;                          // under the peak
constexpr double kTractRange = 0.25;                      // of the logarithm
constexpr double kNoiseRangeDb = 35;
constexpr int64_t kBandMasks = 2, kMostMasked = 8;
// Counters of one row; its noise takes one for each sample.
constexpr uint64_t kCountersPerRow = uint64_t{1} << 32;
// The order and noise of held-out utterances: the same for every run.
constexpr uint64_t kHeldOutSeed = 0x68656c64;

double Between(Rng& rng, double low, double high) {
  return low + (high - low) * rng.Uniform();
}

int64_t DrawGap(Rng& rng, int64_t rate) {
  return std::llround(Between(rng, kLeastGap, kLongestGap) *
                      static_cast<double>(rate));
}

// Recordings with the silence before each, as samples.
struct Draft {
  std::vector<int64_t> clips, gaps;  // gaps[0] is 0
  int64_t samples = 0;
};

// The recordings joined, with white noise over the whole: float32, in [-1, 1]
// apart from the noise.
torch::Tensor SoundOf(const SpokenDigits& digits, const Draft& draft,
                      double noise_db, Rng& rng) {
  torch::Tensor sound = torch::zeros({draft.samples}, torch::kFloat32);
  float* samples = sound.data_ptr<float>();
  float* out = samples;
  float peak = 0;
  for (size_t i = 0; i < draft.clips.size(); ++i) {
    out += draft.gaps[i];
    for (const int16_t sample : digits.clips()[draft.clips[i]].samples) {
      *out = static_cast<float>(sample) / 32768.0f;
      peak = std::max(peak, std::abs(*out++));
    }
  }
  const double scale = 2 * peak * std::pow(10.0, noise_db / 20);
  for (int64_t i = 0; i < draft.samples; ++i) {
    samples[i] += static_cast<float>(scale * (rng.Uniform() - 0.5));
  }
  return sound;
}

Utterance UtteranceOf(const SpokenDigits& digits, const Draft& draft,
                      const LogMelOptions& mel, double noise_db, Rng& rng) {
  Utterance utterance;
  utterance.features =
      NormaliseUtterance(LogMel(SoundOf(digits, draft, noise_db, rng), mel));
  for (const int64_t clip : draft.clips) {
    const std::vector<int64_t> letters = Spell(digits.clips()[clip].digit);
    utterance.letters.insert(utterance.letters.end(), letters.begin(),
                             letters.end());
  }
  return utterance;
}

// Sets up to `most` neighbouring bands to 0, their mean.
void MaskBands(torch::Tensor& features, int64_t most, Rng& rng) {
  const int64_t bands = features.size(1);
  const auto count = std::min<int64_t>(
      static_cast<int64_t>(rng.Below(static_cast<uint64_t>(most) + 1)), bands);
  const auto first =
      static_cast<int64_t>(rng.Below(static_cast<uint64_t>(bands - count) + 1));
  features.narrow(1, first, count).zero_();
}

// Adds a recording, after a gap where it is not the first, if it fits.
bool Join(Draft& draft, int64_t clip, int64_t gap, const SpokenDigits& digits,
          const LogMelOptions& mel, int64_t join_frames) {
  if (draft.clips.empty()) gap = 0;
  const int64_t samples =
      draft.samples + gap + std::ssize(digits.clips()[clip].samples);
  if (!draft.clips.empty() && mel.Frames(samples) > join_frames) return false;
  draft.clips.push_back(clip);
  draft.gaps.push_back(gap);
  draft.samples = samples;
  return true;
}

// Frames that an alignment takes: one a letter, and a blank between equal ones.
int64_t FramesNeeded(const std::vector<int64_t>& letters) {
  int64_t frames = std::ssize(letters);
  for (size_t i = 1; i < letters.size(); ++i) {
    frames += letters[i] == letters[i - 1] ? 1 : 0;
  }
  return frames;
}

}  // namespace

Utterances::Utterances(const SpokenDigits& digits, const SpeakerSplit& split,
                       const UtteranceOptions& options)
    : digits_(digits),
      split_(split),
      options_(options),
      of_speaker_(digits.speakers().size()) {
  for (const int64_t clip : split.training) {
    of_speaker_[digits.clips()[clip].speaker].push_back(clip);
  }
}

Utterance Utterances::Training(int64_t step, int64_t row) const {
  Rng rng(options_.seed, static_cast<uint64_t>(step),
          static_cast<uint64_t>(row) * kCountersPerRow);
  const double much = options_.augment;
  LogMelOptions mel = MelOf(digits_, options_);
  mel.warp = std::exp(much * Between(rng, -kTractRange, kTractRange));
  mel.speed = std::exp(much * Between(rng, -kSpeedRange, kSpeedRange));
  const double noise_db = kNoiseDb + much * Between(rng, 0, kNoiseRangeDb);
  const auto draw = [&](const std::vector<int64_t>& clips) {
    return clips[rng.Below(clips.size())];
  };
  Draft draft;
  const int64_t first = draw(split_.training);
  Join(draft, first, 0, digits_, mel, options_.join_frames);
  const auto& same = of_speaker_[digits_.clips()[first].speaker];
  while (options_.join_frames > 0 &&
         Join(draft, draw(same), DrawGap(rng, digits_.sample_rate()), digits_,
              mel, options_.join_frames)) {
  }
  Utterance utterance = UtteranceOf(digits_, draft, mel, noise_db, rng);
  const auto most = static_cast<int64_t>(
      std::lround(static_cast<double>(kMostMasked) * much));
  for (int64_t i = 0; i < kBandMasks; ++i) {
    MaskBands(utterance.features, most, rng);
  }
  return utterance;
}

std::vector<Utterance> Utterances::EachOnce(const std::vector<int64_t>& clips,
                                            int64_t most) const {
  const LogMelOptions mel = MelOf(digits_, options_);
  Rng rng(kHeldOutSeed);
  std::vector<int64_t> order = clips;
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[rng.Below(left)]);
  }
  const auto speaker = [&](int64_t clip) {
    return digits_.clips()[clip].speaker;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return speaker(a) < speaker(b);
  });
  std::vector<Draft> drafts;
  for (const int64_t clip : order) {
    const int64_t gap = DrawGap(rng, digits_.sample_rate());
    const bool fits =
        !drafts.empty() && options_.join_frames > 0 &&
        speaker(drafts.back().clips[0]) == speaker(clip) &&
        Join(drafts.back(), clip, gap, digits_, mel, options_.join_frames);
    if (fits) continue;
    drafts.emplace_back();
    Join(drafts.back(), clip, gap, digits_, mel, options_.join_frames);
  }
  const int64_t count = std::ssize(drafts), kept = std::min(count, most);
  std::vector<Utterance> utterances;
  for (int64_t i = 0; i < kept; ++i) {
    const int64_t which = i * count / kept;
    Rng noise(kHeldOutSeed, 1, static_cast<uint64_t>(which) * kCountersPerRow);
    utterances.push_back(
        UtteranceOf(digits_, drafts[which], mel, kNoiseDb, noise));
  }
  return utterances;
}

std::vector<Utterance> Utterances::HeldOut(int64_t most) const {
  return EachOnce(split_.held_out, most);
}

std::vector<Utterance> Utterances::Test(int64_t most) const {
  return EachOnce(split_.test, most);
}

UtteranceRows MakeUtteranceRows(const std::vector<Utterance>& utterances,
                                int64_t bands) {
  const int64_t count = std::ssize(utterances);
  UtteranceRows rows;
  rows.batch.lengths = torch::empty({count}, torch::kInt64);
  rows.letter_counts = torch::empty({count}, torch::kInt64);
  std::vector<int64_t> letters;
  int64_t longest = 0;
  for (int64_t b = 0; b < count; ++b) {
    const Utterance& one = utterances[b];
    rows.batch.lengths[b] = one.features.size(0);
    rows.letter_counts[b] = std::ssize(one.letters);
    letters.insert(letters.end(), one.letters.begin(), one.letters.end());
    longest = std::max(longest, one.features.size(0));
    rows.frames += one.features.size(0);
    if (one.features.size(0) >= FramesNeeded(one.letters)) {
      rows.counted_letters += std::ssize(one.letters);
    }
  }
  rows.total_letters = std::ssize(letters);
  rows.letters = torch::tensor(letters, torch::kInt64);
  rows.batch.frames = torch::zeros({count, longest, bands});
  for (int64_t b = 0; b < count; ++b) {
    const torch::Tensor& features = utterances[b].features;
    rows.batch.frames[b].narrow(0, 0, features.size(0)).copy_(features);
  }
  return rows;
}

torch::Tensor CtcLoss(const torch::Tensor& logits, const UtteranceRows& rows) {
  if (logits.size(0) == 0) return logits.sum();  // torch rejects 0 rows
  // torch expects [T, B, classes].
  return torch::ctc_loss(logits.log_softmax(-1).transpose(0, 1),
                         rows.letters.to(logits.device()), rows.batch.lengths,
                         rows.letter_counts, /*blank=*/0, at::Reduction::Sum,
                         /*zero_infinity=*/true);
}

std::vector<std::vector<int64_t>> GreedyLetters(const torch::Tensor& logits,
                                                const torch::Tensor& lengths) {
  std::vector<std::vector<int64_t>> decoded(logits.size(0));
  const torch::Tensor best =  // [B, T]
      logits.argmax(-1).to(torch::kCPU).contiguous();
  for (int64_t b = 0; b < best.size(0); ++b) {
    const int64_t* classes = best[b].data_ptr<int64_t>();
    const int64_t length = lengths[b].item<int64_t>();
    for (int64_t t = 0; t < length; ++t) {
      if (classes[t] == 0 || (t > 0 && classes[t] == classes[t - 1])) continue;
      decoded[b].push_back(classes[t]);
    }
  }
  return decoded;
}

}  // namespace tarn::train
