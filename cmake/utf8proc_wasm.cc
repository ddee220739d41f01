// The functions of utf8proc that src/text calls, for the WebAssembly build,
// over tables that cmake/utf8proc_table.cc writes of the host's utf8proc. The
// tests of src/text run there too.
#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace {

struct Record {
  int16_t category, combining_class, decomp_type;
  bool decomposes;
  uint8_t boundclass;
  int32_t to_lower, to_upper, to_title;
  bool is_lower, is_upper;
};
struct Decomposition {
  int32_t point;
  uint32_t begin, end;  // of the parts
};
struct Composition {
  int32_t first, second, whole;
};

#include "utf8proc_table.inc"

constexpr int32_t kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr int32_t kSyllable = 0xAC00;
constexpr int32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr int32_t kSyllables = kLeads * kVowels * kTails;

uint16_t IndexOf(int32_t point) {
  // As utf8proc: what is no character is unassigned, as the last one is.
  if (point < 0 || point > 0x10FFFF) point = 0x10FFFF;
  return kPages[kPageOf[point >> 8]][point & 255];
}

const Record& RecordOf(int32_t point) { return kRecords[IndexOf(point)]; }

template <size_t kCount>
const Decomposition* Find(const Decomposition (&rows)[kCount], int32_t point) {
  const auto* found = std::lower_bound(
      std::begin(rows), std::end(rows), point,
      [](const Decomposition& row, int32_t p) { return row.point < p; });
  return found != std::end(rows) && found->point == point ? found : nullptr;
}

// What two neighbours become; -1: they stay.
int32_t Compose(int32_t first, int32_t second) {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel &&
      second < kVowel + kVowels) {
    return kSyllable + ((first - kLead) * kVowels + second - kVowel) * kTails;
  }
  if (first >= kSyllable && first < kSyllable + kSyllables &&
      (first - kSyllable) % kTails == 0 && second > kTail &&
      second < kTail + kTails) {
    return first + second - kTail;
  }
  const auto* found = std::lower_bound(
      std::begin(kCompositions), std::end(kCompositions), 0,
      [&](const Composition& row, int) {
        return row.first != first ? row.first < first : row.second < second;
      });
  const bool same = found != std::end(kCompositions) && found->first == first &&
                    found->second == second;
  return same ? found->whole : -1;
}

std::vector<utf8proc_property_t> AllProperties() {
  std::vector<utf8proc_property_t> all(std::size(kRecords));
  for (size_t i = 0; i < all.size(); ++i) {
    const Record& record = kRecords[i];
    all[i].category = record.category;
    all[i].combining_class = record.combining_class;
    all[i].decomp_type = record.decomp_type;
    all[i].decomp_seqindex = record.decomposes ? 0 : UINT16_MAX;
    all[i].boundclass = record.boundclass;
  }
  return all;
}

}  // namespace

extern "C" {

const utf8proc_property_t* utf8proc_get_property(utf8proc_int32_t point) {
  static const std::vector<utf8proc_property_t> properties = AllProperties();
  return &properties[IndexOf(point)];
}

utf8proc_category_t utf8proc_category(utf8proc_int32_t point) {
  return static_cast<utf8proc_category_t>(RecordOf(point).category);
}
utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t point) {
  return point + RecordOf(point).to_lower;
}
utf8proc_int32_t utf8proc_toupper(utf8proc_int32_t point) {
  return point + RecordOf(point).to_upper;
}
utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t point) {
  return point + RecordOf(point).to_title;
}
int utf8proc_islower(utf8proc_int32_t point) {
  return RecordOf(point).is_lower;
}
int utf8proc_isupper(utf8proc_int32_t point) {
  return RecordOf(point).is_upper;
}

// Of the options UTF8PROC_COMPAT alone is looked at.
utf8proc_ssize_t utf8proc_decompose_char(utf8proc_int32_t point,
                                         utf8proc_int32_t* parts,
                                         utf8proc_ssize_t size,
                                         utf8proc_option_t options, int*) {
  std::vector<int32_t> all;
  const Decomposition* row = nullptr;
  const int32_t* from = kCompatibleParts;
  if (options & UTF8PROC_COMPAT) row = Find(kCompatible, point);
  if (row == nullptr) {
    row = Find(kCanonical, point);
    from = kCanonicalParts;
  }
  if (row != nullptr) {
    all.assign(from + row->begin, from + row->end);
  } else if (point >= kSyllable && point < kSyllable + kSyllables) {
    const int32_t index = point - kSyllable;
    all = {kLead + index / (kVowels * kTails),
           kVowel + index / kTails % kVowels};
    if (index % kTails != 0) all.push_back(kTail + index % kTails);
  } else {
    all = {point};
  }
  std::copy_n(all.begin(),
              std::min(static_cast<utf8proc_ssize_t>(all.size()), size), parts);
  return static_cast<utf8proc_ssize_t>(all.size());
}

// Composes (UAX #15), whatever the options: callers ask for nothing else.
utf8proc_ssize_t utf8proc_normalize_utf32(utf8proc_int32_t* points,
                                          utf8proc_ssize_t count,
                                          utf8proc_option_t) {
  int32_t* starter = nullptr;
  int highest = -1;  // the class of what stays after the starter
  int32_t* out = points;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const int32_t point = points[i];
    const int order = RecordOf(point).combining_class;
    if (starter != nullptr && order > highest) {
      const int32_t whole = Compose(*starter, point);
      if (whole >= 0) {
        *starter = whole;
        continue;
      }
    }
    *out = point;
    if (order == 0) {
      starter = out;
      highest = -1;
    } else {
      highest = std::max(highest, order);
    }
    ++out;
  }
  return out - points;
}

}  // extern "C"
