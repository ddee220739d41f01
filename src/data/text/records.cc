#include "data/text/records.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"

namespace tarn::train {
namespace {

constexpr uint64_t kBlockBytes = 2048;
// A short text gets smaller blocks, so that it still has some 64 records to
// choose from; below this a block holds less than a line of prose.
constexpr uint64_t kMinBlockBytes = 64;
// Records between separators that are longer than this are cut like blocks:
// a book with a stray "%" line must not become two records.
constexpr uint64_t kLongRecordBytes = 8192;

struct Entry {
  uint64_t hash;   // of the key
  uint64_t begin;  // global offset
  uint64_t length;
};

// End of the line "%" that begins at or after `from`: the offset just past its
// line end, or npos. `text` begins at a line start.
size_t SeparatorEnd(std::string_view text, size_t from) {
  for (;;) {
    const size_t at = text.find('%', from);
    if (at == std::string_view::npos) return at;
    from = at + 1;
    if (at != 0 && text[at - 1] != '\n') continue;
    size_t end = at + 1;
    if (end < text.size() && text[end] == '\r') ++end;
    if (end == text.size()) return end;
    if (text[end] == '\n') return end + 1;
  }
}

// Length of the first block of `text`: a line end near `target`, else a place
// between two characters.
uint64_t BlockLength(std::string_view text, uint64_t target) {
  if (text.size() <= target + target / 2) return text.size();
  const size_t ahead = text.substr(0, 2 * target).find('\n', target - 1);
  if (ahead != std::string_view::npos) return ahead + 1;
  const size_t before = text.rfind('\n', target - 1);
  if (before != std::string_view::npos && before >= target / 2) {
    return before + 1;
  }
  uint64_t end = target;
  // A character has at most three continuation bytes (10xxxxxx).
  for (int i = 0; i < 3 && (text[end] & 0xC0) == 0x80; ++i) --end;
  return end;
}

void CutBlocks(std::string_view text, uint64_t base, uint64_t block_bytes,
               const std::function<void(Slice)>& visit) {
  while (!text.empty()) {
    const uint64_t length = BlockLength(text, block_bytes);
    visit({base, length});
    base += length;
    text.remove_prefix(length);
  }
}

// Every record of every file with the hash of its key; empty ones left out.
std::vector<Entry> Index(const TextFiles& files, RecordMode mode,
                         uint64_t* fingerprint) {
  const uint64_t block_bytes =
      std::max(std::clamp(files.bytes() / 64, kMinBlockBytes, kBlockBytes),
               2 * files.bytes() / kMaxRecords);
  std::vector<Entry> entries;
  for (int64_t f = 0; f < files.files(); ++f) {
    const std::string_view text = files.contents(f);
    *fingerprint = Mix(*fingerprint ^ Mix(text.size() + 1));
    CutFile(text, mode, block_bytes, [&](Slice slice) {
      const std::string_view record = text.substr(slice.begin, slice.length);
      *fingerprint = Mix(*fingerprint ^ HashBytes(record));
      const std::string_view key = RecordKey(record);
      if (key.empty()) return;
      if (entries.size() == kMaxRecords) {
        throw FormatError(files.path(f),
                          StrCat("at most ", kMaxRecords, " records"),
                          "more (cut it with --records block)");
      }
      entries.push_back(
          {HashBytes(key), files.base(f) + slice.begin, slice.length});
    });
  }
  return entries;
}

// Keeps the first of equal records, in text order; returns how many it dropped.
int64_t DropDuplicates(const TextFiles& files, std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.begin < b.begin;
  });
  const auto key = [&](const Entry& entry) {
    return RecordKey(files.At(entry.begin, entry.length));
  };
  size_t kept = 0, run = 0;  // run: first kept entry with this hash
  for (size_t i = 0; i < entries.size(); ++i) {
    if (kept == 0 || entries[run].hash != entries[i].hash) run = kept;
    bool repeated = false;
    for (size_t j = run; j < kept && !repeated; ++j) {
      repeated = key(entries[j]) == key(entries[i]);
    }
    if (!repeated) entries[kept++] = entries[i];
  }
  const int64_t dropped = static_cast<int64_t>(entries.size() - kept);
  entries.resize(kept);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  return dropped;
}

void Append(std::vector<Slice>& slices, const Entry& entry,
            const TextFiles& files) {
  // Neighbours are joined within a file only: a slice is in one file.
  if (!slices.empty() &&
      slices.back().begin + slices.back().length == entry.begin &&
      files.At(slices.back().begin, UINT64_MAX).size() > slices.back().length) {
    slices.back().length += entry.length;
  } else {
    slices.push_back({entry.begin, entry.length});
  }
}

}  // namespace

void CutFile(std::string_view text, RecordMode mode, uint64_t block_bytes,
             const std::function<void(Slice)>& visit) {
  const bool fortune = mode == RecordMode::kFortune ||
                       (mode == RecordMode::kAuto &&
                        SeparatorEnd(text, 0) != std::string_view::npos);
  if (!fortune) {
    CutBlocks(text, 0, block_bytes, visit);
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    size_t end = SeparatorEnd(text, begin);
    if (end == std::string_view::npos) end = text.size();
    if (end - begin > kLongRecordBytes) {
      CutBlocks(text.substr(begin, end - begin), begin, block_bytes, visit);
    } else {
      visit({begin, end - begin});
    }
    begin = end;
  }
}

std::string_view RecordKey(std::string_view record) {
  const auto trim = [&record] {
    while (!record.empty() &&
           (record.back() == '\n' || record.back() == '\r')) {
      record.remove_suffix(1);
    }
  };
  trim();
  const size_t size = record.size();
  if (size >= 1 && record.back() == '%' &&
      (size == 1 || record[size - 2] == '\n')) {
    record.remove_suffix(1);
    trim();
  }
  return record;
}

RecordSplit SplitRecords(const TextFiles& files, RecordMode mode,
                         int64_t held_out_files) {
  RecordSplit split;
  // Another split of the same bytes is another run.
  if (held_out_files > 0) split.fingerprint = Mix(held_out_files);
  std::vector<Entry> entries = Index(files, mode, &split.fingerprint);
  split.duplicates = DropDuplicates(files, entries);
  split.records = static_cast<int64_t>(entries.size());
  if (entries.size() < 2) {
    throw FormatError("data", "two different records of text or more",
                      StrCat(entries.size(), " (", files.bytes(), " bytes, ",
                             split.duplicates, " duplicates)"));
  }
  // The hash is mixed again: its low bits order the table above.
  const auto rank = [](const Entry& e) { return Mix(e.hash ^ 0x5eed); };
  uint64_t least = UINT64_MAX;
  bool any = false;
  for (const Entry& entry : entries) {
    any = any || rank(entry) % kHoldOutOneIn == 0;
    least = std::min(least, rank(entry));
  }
  const auto is_held_out = [&](const Entry& entry) {
    if (held_out_files > 0) return entry.begin < files.base(held_out_files);
    return any ? rank(entry) % kHoldOutOneIn == 0 : rank(entry) == least;
  };
  for (const Entry& entry : entries) {
    const bool out = is_held_out(entry);
    Append(out ? split.held_out : split.training, entry, files);
    split.held_out_records += out;
  }
  if (split.training.empty() || split.held_out.empty()) {
    throw FormatError("data", "records to train on and others to hold out",
                      StrCat(split.records, " records, of which ",
                             split.held_out_records, " held out"));
  }
  return split;
}

}  // namespace tarn::train
