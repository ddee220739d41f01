#include "train/tasks/speech_data.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/test_util.h"
#include "data/files/wav_test_file.h"
#include "data/speech/spoken_digits.h"

namespace tarn::train {
namespace {

// Three speakers, two digits, two recordings of each; the samples tell which.
void WriteSet(const TemporaryFolder& folder) {
  std::filesystem::create_directory(folder / "recordings");
  for (const int16_t digit : {7, 0}) {
    for (const char* speaker : {"bo", "al", "c_y"}) {
      for (const int16_t index : {10, 9}) {
        folder.Write(
            StrCat("recordings/", digit, "_", speaker, "_", index, ".wav"),
            WavFile({digit, index, 3}));
      }
    }
  }
  folder.Write("metadata.py", "print()");
  folder.Write("recordings/._7_bo_9.wav", "not a sound");
}

void Pack(const std::string& path,
          const std::vector<std::pair<std::string, std::string>>& files) {
  archive* out = archive_write_new();
  archive_write_set_format_ustar(out);
  archive_write_add_filter_gzip(out);
  ASSERT_EQ(archive_write_open_filename(out, path.c_str()), ARCHIVE_OK);
  for (const auto& [name, contents] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(contents.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    ASSERT_EQ(archive_write_header(out, entry), ARCHIVE_OK);
    archive_write_data(out, contents.data(), contents.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
}

TEST(SpokenDigits, ReadsAFolderInOrder) {
  const TemporaryFolder folder;
  WriteSet(folder);
  const SpokenDigits digits = SpokenDigits::Read(folder.path());
  EXPECT_EQ(digits.speakers(), (std::vector<std::string>{"al", "bo", "c_y"}));
  EXPECT_EQ(digits.sample_rate(), 8000);
  EXPECT_EQ(digits.samples(), 36);
  ASSERT_EQ(digits.clips().size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const DigitClip& clip = digits.clips()[i];
    EXPECT_EQ(clip.speaker, static_cast<int64_t>(i) / 4);
    EXPECT_EQ(clip.digit, i % 4 < 2 ? 0 : 7);
    EXPECT_EQ(clip.index, 9 + static_cast<int64_t>(i) % 2);
    EXPECT_EQ(clip.samples[0], clip.digit);
    EXPECT_EQ(clip.samples[1], clip.index);
  }
}

TEST(SpokenDigits, AnArchiveIsTheFolder) {
  const TemporaryFolder folder;
  WriteSet(folder);
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& file :
       std::filesystem::directory_iterator(folder / "recordings")) {
    const std::string name = file.path().filename().string();
    files.emplace_back("./recordings/" + name,
                       folder.Read("recordings/" + name));
  }
  Pack(folder / "set.tar.gz", files);
  EXPECT_EQ(SpokenDigits::Read(folder / "set.tar.gz").fingerprint(),
            SpokenDigits::Read(folder.path()).fingerprint());
  // One sample more is another set.
  files[0].second = WavFile({1, 2, 3, 4});
  Pack(folder / "other.tar.gz", files);
  EXPECT_NE(SpokenDigits::Read(folder / "other.tar.gz").fingerprint(),
            SpokenDigits::Read(folder.path()).fingerprint());
  // Twice the same name in different folders.
  files.push_back({"more/" + files[1].first.substr(13), files[1].second});
  Pack(folder / "twice.tar.gz", files);
  EXPECT_THROW(SpokenDigits::Read(folder / "twice.tar.gz"), FormatError);
}

TEST(SpokenDigits, RefusesWhatIsNoRecording) {
  for (const char* name :
       {"10_al_1.wav", "x_al_1.wav", "-1_al_1.wav", "1__2.wav", "1_2.wav",
        "1.wav", ".wav", "1_al_x.wav", "1_al_.wav", "1_al_-2.wav",
        "1_al_9999999999.wav", "1_al_2 .wav"}) {
    const TemporaryFolder folder;
    folder.Write("0_al_0.wav", WavFile({1}));
    folder.Write(name, WavFile({1}));
    EXPECT_THROW(SpokenDigits::Read(folder.path()), FormatError) << name;
  }
  const TemporaryFolder folder;
  EXPECT_THROW(SpokenDigits::Read(folder.path()), FormatError);
  EXPECT_THROW(SpokenDigits::Read(folder / "none"), FormatError);
  EXPECT_THROW(SpokenDigits::Read(folder.Write("text", "no tar")), FormatError);
  folder.Write("0_al_0.wav", WavFile({1}));
  folder.Write("0_al_1.wav", WavFile({1}, 16000));
  EXPECT_THROW(SpokenDigits::Read(folder.path()), FormatError);
  folder.Write("0_al_1.wav", WavFile({1}).substr(0, 40));
  EXPECT_THROW(SpokenDigits::Read(folder.path()), FormatError);
}

std::set<int64_t> Speakers(const SpokenDigits& digits,
                           const std::vector<int64_t>& clips) {
  std::set<int64_t> speakers;
  for (const int64_t clip : clips) {
    speakers.insert(digits.clips()[clip].speaker);
  }
  return speakers;
}

TEST(SplitSpeakers, NoSpeakerIsOnTwoSides) {
  const TemporaryFolder folder;
  WriteSet(folder);
  const SpokenDigits digits = SpokenDigits::Read(folder.path());
  using Set = std::set<int64_t>;
  const auto sides = [&](const char* held_out, const char* test) {
    const SpeakerSplit split = SplitSpeakers(digits, held_out, test);
    EXPECT_EQ(split.training.size() + split.held_out.size() + split.test.size(),
              12u);
    return std::vector<Set>{Speakers(digits, split.training),
                            Speakers(digits, split.held_out),
                            Speakers(digits, split.test)};
  };
  EXPECT_EQ(sides("", ""), (std::vector<Set>{{0, 1}, {2}, {}}));
  EXPECT_EQ(sides("", "c_y"), (std::vector<Set>{{0}, {1}, {2}}));
  EXPECT_EQ(sides("al", "bo"), (std::vector<Set>{{2}, {0}, {1}}));
  EXPECT_EQ(sides("al,c_y", ""), (std::vector<Set>{{1}, {0, 2}, {}}));
  EXPECT_THROW(SplitSpeakers(digits, "al", "al"), ArgumentError);
  EXPECT_THROW(SplitSpeakers(digits, "dora", ""), ArgumentError);
  EXPECT_THROW(SplitSpeakers(digits, "al", "bo,c_y"), ArgumentError);
  EXPECT_THROW(SplitSpeakers(digits, "", "al,bo,c_y"), ArgumentError);
}

TEST(Letters, SpellTheDigits) {
  EXPECT_EQ(LetterSymbols().size(), 16u);
  EXPECT_EQ(LetterSymbols()[0], "");
  EXPECT_EQ(LettersOf(Spell(0)), "zero");
  EXPECT_EQ(LettersOf(Spell(3)), "three");
  EXPECT_EQ(LettersOf(Spell(8)), "eight");
  for (int64_t digit = 0; digit < 10; ++digit) {
    for (const int64_t letter : Spell(digit)) EXPECT_GT(letter, 0);
  }
}

TEST(Speech, TheLongestUtteranceIsThatOfTheSlowestSpeech) {
  const TemporaryFolder folder;
  folder.Write("0_al_0.wav", WavFile(std::vector<int16_t>(200 + 80 * 50)));
  const SpokenDigits digits = SpokenDigits::Read(folder.path());
  UtteranceOptions options;
  EXPECT_EQ(LongestUtterance(digits, options), 51);
  options.augment = 1;  // hop 80 / e^0.2, rounded: 65
  EXPECT_EQ(LongestUtterance(digits, options), 62);
  options.join_frames = 100;
  EXPECT_EQ(LongestUtterance(digits, options), 100);
  options.bands = 200;
  EXPECT_THROW(LongestUtterance(digits, options), ArgumentError);
}

}  // namespace
}  // namespace tarn::train
