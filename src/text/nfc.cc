#include "text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace tarn {
namespace {

// Hangul syllables are composed by arithmetic (Unicode 15, section 3.12).
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161,
                   kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

constexpr uint64_t kPartMask = (uint64_t{1} << 21) - 1;

uint32_t PointOf(uint64_t entry) { return static_cast<uint32_t>(entry >> 42); }
uint64_t PartsOf(uint64_t entry) { return entry & ~(~uint64_t{0} << 42); }

uint32_t ValueAt(std::span<const uint32_t> starts, int bits, uint32_t point) {
  const auto after = std::upper_bound(
      starts.begin(), starts.end(), point,
      [bits](uint32_t p, uint32_t entry) { return p < entry >> bits; });
  return *(after - 1) & ((1u << bits) - 1);
}

uint8_t CombiningClass(uint32_t point) {
  if (point < 0x300) return 0;  // the first combining mark
  return static_cast<uint8_t>(ValueAt(kCombiningClasses, 8, point));
}

bool IsUnsafe(uint32_t point) {
  return point >= 0x300 && ValueAt(kNfcUnsafe, 1, point) != 0;
}

struct Mark {
  uint32_t point;
  uint8_t combining;  // class; 0 begins a new run
};
using Marks = std::vector<Mark>;

void Add(uint32_t point, Marks& out) {
  out.push_back({point, CombiningClass(point)});
}

// Appends the full canonical decomposition of one character.
void Decompose(uint32_t point, Marks& out) {
  if (point >= kSyllables && point < kSyllables + kSyllableCount) {
    const uint32_t index = point - kSyllables;
    Add(kLeads + index / (kVowelCount * kTailCount), out);
    Add(kVowels + index / kTailCount % kVowelCount, out);
    if (index % kTailCount != 0) Add(kTails + index % kTailCount, out);
    return;
  }
  // Mappings nest in their first part only: the seconds come off in reverse.
  const auto place = static_cast<Marks::difference_type>(out.size());
  for (;;) {
    const auto found = std::lower_bound(
        kDecompositions.begin(), kDecompositions.end(), point,
        [](uint64_t entry, uint32_t p) { return PointOf(entry) < p; });
    if (found == kDecompositions.end() || PointOf(*found) != point) break;
    const auto second = static_cast<uint32_t>(*found & kPartMask);
    if (second != 0) Add(second, out);
    point = static_cast<uint32_t>(*found >> 21 & kPartMask);
  }
  Add(point, out);
  std::reverse(out.begin() + place, out.end());
}

// Marks between two starters in order of their class; equal ones keep theirs.
void Reorder(Marks& marks) {
  for (auto run = marks.begin(); run != marks.end();) {
    if (run->combining == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(
        run, marks.end(), [](const Mark& m) { return m.combining == 0; });
    std::stable_sort(run, end, [](const Mark& a, const Mark& b) {
      return a.combining < b.combining;
    });
    run = end;
  }
}

// The character that two compose into, or 0.
uint32_t Composed(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables +
           ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount &&
      (first - kSyllables) % kTailCount == 0 &&
      second - kTails - 1 < kTailCount - 1) {
    return first + (second - kTails);
  }
  const uint64_t parts = uint64_t{first} << 21 | second;
  const auto found =
      std::lower_bound(kCompositionOrder.begin(), kCompositionOrder.end(),
                       parts, [](uint16_t index, uint64_t p) {
                         return PartsOf(kDecompositions[index]) < p;
                       });
  if (found == kCompositionOrder.end() ||
      PartsOf(kDecompositions[*found]) != parts) {
    return 0;
  }
  return PointOf(kDecompositions[*found]);
}

// Joins each mark to the last starter unless one between blocks it: a starter,
// or a mark of the same or a higher class (Unicode 15, D115).
void Compose(Marks& marks) {
  size_t kept = 0;      // marks that stay, written in place
  size_t starter = 0;   // index of the last one among them
  bool found = false;   // is there a starter yet?
  int last_class = -1;  // of the mark kept after it; -1: none
  for (const Mark mark : marks) {
    const bool blocked = last_class >= int{mark.combining} && last_class != -1;
    if (found && !blocked) {
      const uint32_t joined = Composed(marks[starter].point, mark.point);
      if (joined != 0) {
        marks[starter].point = joined;
        continue;
      }
    }
    if (mark.combining == 0) {
      starter = kept;
      found = true;
      last_class = -1;
    } else {
      last_class = mark.combining;
    }
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

// The first stretch of `text` that must be looked at: [begin, end). It begins
// at the starter that an unsafe character may join and ends before the next
// safe one. Empty when there is none.
struct Stretch {
  size_t begin = 0, end = 0;
};

Stretch FindStretch(std::string_view text) {
  Stretch stretch{text.size(), text.size()};
  size_t starter = 0;  // where the last safe character began
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      if (inside) return {stretch.begin, at};
      starter = at++;
      continue;
    }
    const Utf8Head head = ReadUtf8(text.substr(at));
    const bool valid = head.kind == Utf8Head::kValid;
    if (valid && IsUnsafe(head.code_point)) {
      if (!inside) stretch.begin = starter;
      inside = true;
    } else {
      if (inside) return {stretch.begin, at};
      // Nothing joins to what is no character.
      starter = valid ? at : at + head.bytes;
    }
    at += head.bytes;
  }
  if (inside) stretch.end = text.size();
  return stretch;
}

void AppendComposed(std::string_view stretch, std::string& out) {
  Marks marks;
  for (size_t at = 0; at < stretch.size();) {
    const Utf8Head head = ReadUtf8(stretch.substr(at));
    Decompose(head.code_point, marks);
    at += head.bytes;
  }
  Reorder(marks);
  Compose(marks);
  for (const Mark& mark : marks) AppendUtf8(mark.point, out);
}

}  // namespace

size_t NfcPrefix(std::string_view text) { return FindStretch(text).begin; }

std::string ToNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Stretch stretch = FindStretch(text);
    out += text.substr(0, stretch.begin);
    AppendComposed(text.substr(stretch.begin, stretch.end - stretch.begin),
                   out);
    text.remove_prefix(stretch.end);
  }
  return out;
}

}  // namespace tarn
