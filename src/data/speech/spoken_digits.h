// Recordings of spoken digits: the layout of the Free Spoken Digit Dataset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn::train {

/// Bounds of what is read.
inline constexpr int64_t kMaxClips = 100000;
inline constexpr int64_t kMaxSoundBytes = int64_t{1} << 30;  // in all

/// One recording.
struct DigitClip {
  int64_t digit = 0;    // 0 to 9
  int64_t speaker = 0;  // index of SpokenDigits::speakers()
  int64_t index = 0;    // which of the speaker's recordings of the digit
  std::vector<int16_t> samples;
};

/// Every recording of a set, in memory. Immutable, thread-safe.
class SpokenDigits {
 public:
  /// path: a folder, or a .tar, .tar.gz or .tar.zst archive, with recordings
  /// {digit}_{speaker}_{index}.wav in it or in folders below; other files are
  /// skipped. Throws FormatError naming the recording: a name of another form,
  /// a name twice, a sound that ParseWav refuses, two sample rates, none at
  /// all, more than the bounds; IoError.
  static SpokenDigits Read(const std::string& path);

  /// The recordings in the order of speaker, digit and index.
  const std::vector<DigitClip>& clips() const { return clips_; }
  /// The speakers' names, sorted by bytes.
  const std::vector<std::string>& speakers() const { return speakers_; }
  int64_t sample_rate() const { return sample_rate_; }
  int64_t samples() const;  // of all clips together
  /// A hash of names and samples: equal for a folder and an archive of it.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  class Builder;
  std::vector<DigitClip> clips_;
  std::vector<std::string> speakers_;
  int64_t sample_rate_ = 0;
  uint64_t fingerprint_ = 0;
};

/// The clips to train on, to evaluate on meanwhile, and to keep for the end.
struct SpeakerSplit {
  std::vector<int64_t> training, held_out, test;  // indices of clips()
};

/// held_out, test: names with commas between. An empty held_out is the last
/// speaker that test does not name. Throws ArgumentError for a name the set
/// does not have, one on both sides, and when no speaker is left to learn from.
SpeakerSplit SplitSpeakers(const SpokenDigits& digits,
                           const std::string& held_out,
                           const std::string& test);

/// The symbols of the digits' names: class 0 is CTC's blank, "", the rest the
/// letters of zero to nine in alphabetical order.
const std::vector<std::string>& LetterSymbols();
/// The name of a digit, 0 to 9, as classes: "one" is [o, n, e].
std::vector<int64_t> Spell(int64_t digit);
/// The text of classes; blanks leave nothing.
std::string LettersOf(const std::vector<int64_t>& classes);

}  // namespace tarn::train
