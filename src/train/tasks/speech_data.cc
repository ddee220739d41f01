#include "train/tasks/speech_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tarn::train {
namespace {

std::string NamesOf(const SpokenDigits& digits,
                    const std::vector<int64_t>& clips) {
  std::string names;
  int64_t last = -1;  // clips are in the order of speakers
  for (const int64_t clip : clips) {
    const int64_t speaker = digits.clips()[clip].speaker;
    if (speaker == last) continue;
    names += (last < 0 ? "" : " ") + digits.speakers()[speaker];
    last = speaker;
  }
  return names.empty() ? "none" : names;
}

// The longest recording sets its own bound.
void CheckLength(const SpokenDigits& digits, const TrainOptions& options) {
  const int64_t longest = LongestUtterance(digits, UtterancesOf(options));
  if (longest <= options.seq_len) return;
  throw ArgumentError(
      "--seq-len",
      StrCat(longest,
             " frames or more, for the longest recording, "
             "--join-frames ",
             options.join_frames, " and --augment ", options.augment),
      StrCat(options.seq_len));
}

}  // namespace

UtteranceOptions UtterancesOf(const TrainOptions& options) {
  UtteranceOptions some;
  some.bands = options.model.input_dim;
  some.join_frames = options.join_frames;
  some.augment = options.augment;
  some.seed = options.seed;
  return some;
}

LogMelOptions MelOf(const SpokenDigits& digits,
                    const UtteranceOptions& options) {
  LogMelOptions mel;
  mel.sample_rate = digits.sample_rate();
  mel.bands = options.bands;
  return mel;
}

int64_t LongestUtterance(const SpokenDigits& digits,
                         const UtteranceOptions& options) {
  LogMelOptions mel = MelOf(digits, options);
  CheckMelOptions(mel);
  mel.speed = std::exp(-options.augment * kSpeedRange);
  int64_t longest = options.join_frames;
  for (const DigitClip& clip : digits.clips()) {
    longest = std::max(longest, mel.Frames(std::ssize(clip.samples)));
  }
  return longest;
}

std::string SpeechData::Describe() const {
  const double seconds = static_cast<double>(digits.samples()) /
                         static_cast<double>(digits.sample_rate());
  return StrCat(digits.clips().size(), " recordings, ", std::llround(seconds),
                " s at ", digits.sample_rate(), " Hz: learning from ",
                NamesOf(digits, split.training), ", held out ",
                NamesOf(digits, split.held_out), ", test ",
                NamesOf(digits, split.test));
}

std::string SpeechData::LabelsJson() const {
  return nlohmann::json(LetterSymbols()).dump(1) + "\n";
}

std::unique_ptr<TaskData> ReadSpeech(TrainOptions& options) {
  auto data = std::make_unique<SpeechData>();
  data->digits = SpokenDigits::Read(options.data[0]);
  data->split = SplitSpeakers(data->digits, options.held_out_speakers,
                              options.test_speakers);
  CheckLength(data->digits, options);
  options.model.n_classes = std::ssize(LetterSymbols());
  return data;
}

}  // namespace tarn::train
