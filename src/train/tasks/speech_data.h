// What task ctc learns from: spoken digits, split by speaker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/speech/mel_options.h"
#include "data/speech/spoken_digits.h"
#include "train/tasks/task_data.h"

namespace tarn::train {

/// How recordings become utterances: see utterances.h.
struct UtteranceOptions {
  int64_t bands = 40;
  /// Recordings of one speaker are joined, with gaps of 20 to 150 ms before all
  /// but the first, while they fit into this many frames; 0: each alone.
  int64_t join_frames = 0;
  /// How much training utterances are changed, 0 (not at all) to 1: see
  /// Utterances::Training.
  double augment = 0;
  uint64_t seed = 0;
};

UtteranceOptions UtterancesOf(const TrainOptions& options);
/// The features of unchanged recordings.
LogMelOptions MelOf(const SpokenDigits& digits,
                    const UtteranceOptions& options);
/// With --augment 1 the speed changes by up to e^ of this either way.
inline constexpr double kSpeedRange = 0.2;
/// The most frames that an utterance can have under these options.
int64_t LongestUtterance(const SpokenDigits& digits,
                         const UtteranceOptions& options);

struct SpeechData final : TaskData {
  SpokenDigits digits;
  SpeakerSplit split;

  std::string Describe() const override;
  /// Empty, as letters come out and no text goes in.
  std::string TokenizerJson() const override { return ""; }
  /// The letters after the blank, "".
  std::string LabelsJson() const override;
  uint64_t fingerprint() const override { return digits.fingerprint(); }
};

/// Reads the recordings that --data names and splits them; options.model gets
/// its classes. Throws ArgumentError when an utterance of these options would
/// not fit into --seq-len frames, FormatError or IoError.
std::unique_ptr<TaskData> ReadSpeech(TrainOptions& options);

}  // namespace tarn::train
