#include "data/speech/spoken_digits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "data/files/archive.h"
#include "data/files/wav.h"

namespace tarn::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 10> kNames = {
    "zero", "one", "two",   "three", "four",
    "five", "six", "seven", "eight", "nine"};
constexpr std::string_view kEnding = ".wav";
constexpr int64_t kMaxIndex = 1 << 20;

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool IsRecording(std::string_view path) {
  const std::string_view name = BaseName(path);
  // Archives of some systems carry "._name.wav" with each file.
  return name.ends_with(kEnding) && !name.starts_with("._");
}

bool ReadNumber(std::string_view text, int64_t most, int64_t& value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() &&
         value >= 0 && value <= most;
}

// {digit}_{speaker}_{index}.wav
struct ClipName {
  int64_t digit = 0, index = 0;
  std::string speaker;
};

ClipName ReadName(const std::string& path) {
  std::string_view name = BaseName(path);
  name.remove_suffix(kEnding.size());
  const size_t first = name.find('_'), last = name.rfind('_');
  ClipName read;
  if (first == last || first == std::string_view::npos || first + 1 == last ||
      !ReadNumber(name.substr(0, first), 9, read.digit) ||
      !ReadNumber(name.substr(last + 1), kMaxIndex, read.index)) {
    throw FormatError(Printable(path, 256), "digit_speaker_index.wav",
                      Quoted(BaseName(path)));
  }
  read.speaker = name.substr(first + 1, last - first - 1);
  return read;
}

std::vector<std::string> SplitNames(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : "|") + name;
  }
  return text;
}

std::set<int64_t> SpeakersNamed(const SpokenDigits& digits, const char* flag,
                                const std::string& names) {
  const std::vector<std::string>& all = digits.speakers();
  std::set<int64_t> speakers;
  for (const std::string& name : SplitNames(names)) {
    const auto found = std::find(all.begin(), all.end(), name);
    if (found == all.end()) {
      throw ArgumentError(flag, Joined(all), Quoted(name));
    }
    speakers.insert(found - all.begin());
  }
  return speakers;
}

}  // namespace

// Takes recordings in any order and puts them in theirs.
class SpokenDigits::Builder {
 public:
  void Add(const std::string& path, std::string_view bytes) {
    if (std::ssize(clips_) == kMaxClips) {
      throw FormatError(Printable(path, 256),
                        StrCat("at most ", kMaxClips, " recordings"), "more");
    }
    bytes_ += std::ssize(bytes);
    if (bytes_ > kMaxSoundBytes) {
      throw FormatError(Printable(path, 256),
                        StrCat("at most ", kMaxSoundBytes, " bytes of sound"),
                        "more");
    }
    const ClipName name = ReadName(path);
    Result<WavClip> read = ParseWav(bytes, Printable(path, 256));
    if (!read.ok()) throw FormatError(read.error().what());
    WavClip& sound = read.value();
    if (rate_ == 0) rate_ = sound.sample_rate;
    if (sound.sample_rate != rate_) {
      throw FormatError(Printable(path, 256),
                        StrCat(rate_, " Hz as the others"),
                        StrCat(sound.sample_rate));
    }
    const auto key = std::tuple(name.speaker, name.digit, name.index);
    if (!clips_.emplace(key, std::move(sound.samples)).second) {
      throw FormatError(Printable(path, 256), "one recording of a name",
                        "another");
    }
  }

  SpokenDigits Finish(const std::string& path) {
    if (clips_.empty()) {
      throw FormatError(path, "recordings digit_speaker_index.wav", "none");
    }
    SpokenDigits digits;
    digits.sample_rate_ = rate_;
    digits.fingerprint_ = Mix(static_cast<uint64_t>(rate_));
    for (auto& [key, samples] : clips_) {
      const auto& [speaker, digit, index] = key;
      if (digits.speakers_.empty() || digits.speakers_.back() != speaker) {
        digits.speakers_.push_back(speaker);
      }
      digits.fingerprint_ = ExtendHash(digits.fingerprint_,
                                       StrCat(digit, "_", speaker, "_", index));
      digits.fingerprint_ = ExtendHash(
          digits.fingerprint_,
          {reinterpret_cast<const char*>(samples.data()), 2 * samples.size()});
      digits.clips_.push_back(
          {digit, std::ssize(digits.speakers_) - 1, index, std::move(samples)});
    }
    return digits;
  }

 private:
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<int16_t>>
      clips_;
  int64_t rate_ = 0, bytes_ = 0;
};

SpokenDigits SpokenDigits::Read(const std::string& path) {
  Builder builder;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const auto visit = [&](const std::string& name, std::string contents) {
      if (IsRecording(name)) builder.Add(name, contents);
    };
    ReadArchive(path,
                {.max_members = 2 * kMaxClips,
                 .max_member_bytes = kMaxWavBytes,
                 .max_bytes = 2 * kMaxSoundBytes},
                visit);
    return builder.Finish(path);
  }
  for (fs::recursive_directory_iterator file(path, error), end;
       !error && file != end; file.increment(error)) {
    const std::string name = file->path().string();
    if (!IsRecording(name) || !file->is_regular_file(error)) continue;
    builder.Add(name, ReadFile(name, kMaxWavBytes).Take());
  }
  if (error) throw SystemError(path, "a readable folder", error.value());
  return builder.Finish(path);
}

int64_t SpokenDigits::samples() const {
  int64_t count = 0;
  for (const DigitClip& clip : clips_) count += std::ssize(clip.samples);
  return count;
}

SpeakerSplit SplitSpeakers(const SpokenDigits& digits,
                           const std::string& held_out,
                           const std::string& test) {
  const std::set<int64_t> kept = SpeakersNamed(digits, "--test-speakers", test);
  std::set<int64_t> looked_at =
      SpeakersNamed(digits, "--held-out-speakers", held_out);
  for (const int64_t speaker : looked_at) {
    if (kept.count(speaker) == 0) continue;
    throw ArgumentError("--held-out-speakers",
                        "speakers that --test-speakers does not name",
                        Quoted(digits.speakers()[speaker]));
  }
  const int64_t count = std::ssize(digits.speakers());
  for (int64_t i = count - 1; i >= 0 && looked_at.empty(); --i) {
    if (kept.count(i) == 0) looked_at.insert(i);
  }
  if (std::ssize(kept) + std::ssize(looked_at) >= count || looked_at.empty()) {
    throw ArgumentError("--held-out-speakers",
                        "a speaker held out and another to learn from",
                        StrCat(count, " in all"));
  }
  SpeakerSplit split;
  for (int64_t i = 0; i < std::ssize(digits.clips()); ++i) {
    const int64_t speaker = digits.clips()[i].speaker;
    (kept.count(speaker) != 0        ? split.test
     : looked_at.count(speaker) != 0 ? split.held_out
                                     : split.training)
        .push_back(i);
  }
  return split;
}

const std::vector<std::string>& LetterSymbols() {
  static const std::vector<std::string> symbols = [] {
    std::set<std::string> letters;
    for (const std::string_view name : kNames) {
      for (const char letter : name) letters.insert(std::string(1, letter));
    }
    std::vector<std::string> all = {""};
    all.insert(all.end(), letters.begin(), letters.end());
    return all;
  }();
  return symbols;
}

std::vector<int64_t> Spell(int64_t digit) {
  const std::vector<std::string>& symbols = LetterSymbols();
  std::vector<int64_t> classes;
  for (const char letter : kNames[digit]) {
    const auto found =
        std::find(symbols.begin(), symbols.end(), std::string(1, letter));
    classes.push_back(found - symbols.begin());
  }
  return classes;
}

std::string LettersOf(const std::vector<int64_t>& classes) {
  std::string text;
  for (const int64_t one : classes) text += LetterSymbols()[one];
  return text;
}

}  // namespace tarn::train
