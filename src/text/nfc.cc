#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/utf8.h"

namespace tarn {
namespace {

using Points = std::vector<utf8proc_int32_t>;

constexpr uint32_t kFirstMark = 0x300;  // all before it stay as they are
// The vowel jamo before the first trailing consonant. It composes with nothing,
// yet utf8proc 2.8 takes it for a trailing consonant and drops it: it must not
// follow a syllable within one stretch.
constexpr uint32_t kBeforeTails = 0x11A7;

int CombiningClass(utf8proc_int32_t point) {
  return utf8proc_get_property(point)->combining_class;
}

// May it change in NFC, or join what is before it? Also true for a few
// others, which only costs time. Canonically equivalent texts have the same
// grapheme clusters (UAX #29, section 3), so what composes with the character
// before it never begins a cluster: it extends one, or it is a Hangul jamo.
bool IsUnsafe(uint32_t point) {
  if (point < kFirstMark || point == kBeforeTails) return false;
  const utf8proc_property_t& facts =
      *utf8proc_get_property(static_cast<utf8proc_int32_t>(point));
  const bool decomposes =
      facts.decomp_seqindex != UINT16_MAX && facts.decomp_type == 0;
  return decomposes || facts.combining_class != 0 ||
         facts.boundclass == UTF8PROC_BOUNDCLASS_EXTEND ||
         facts.boundclass == UTF8PROC_BOUNDCLASS_SPACINGMARK ||
         facts.boundclass == UTF8PROC_BOUNDCLASS_V ||
         facts.boundclass == UTF8PROC_BOUNDCLASS_T;
}

// Appends the full canonical decomposition of one character.
void Decompose(uint32_t point, Points& out) {
  constexpr int kLongest = 16;  // Unicode's longest is 4
  utf8proc_int32_t parts[kLongest];
  int state = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts,
                              kLongest, UTF8PROC_DECOMPOSE, &state);
  out.insert(out.end(), parts, parts + count);
}

// Sorts the marks between two starters by their class; equal ones keep their
// order. utf8proc_decompose() exchanges neighbours for that, which takes
// quadratic time for a long run.
void Reorder(Points& points) {
  const auto is_starter = [](utf8proc_int32_t p) {
    return CombiningClass(p) == 0;
  };
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if_not(run, points.end(), is_starter);
    const auto end = std::find_if(run, points.end(), is_starter);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    run = end;
  }
}

// The first stretch of `text` that must be checked: [begin, end). It begins at
// the starter that an unsafe character may join and ends before the next safe
// one. Empty when there is none.
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
      // Nothing joins bytes that are not a character.
      starter = valid ? at : at + head.bytes;
    }
    at += head.bytes;
  }
  if (inside) stretch.end = text.size();
  return stretch;
}

// `points` is scratch, kept between stretches.
void AppendComposed(std::string_view stretch, Points& points,
                    std::string& out) {
  points.clear();
  for (size_t at = 0; at < stretch.size();) {
    const Utf8Head head = ReadUtf8(stretch.substr(at));
    Decompose(head.code_point, points);
    at += head.bytes;
  }
  Reorder(points);
  // Linear; UTF8PROC_STABLE leaves out the composition exclusions, as NFC does.
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), out);
  }
}

}  // namespace

size_t NfcPrefix(std::string_view text) { return FindStretch(text).begin; }

std::string ToNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Points points;
  while (!text.empty()) {
    const Stretch stretch = FindStretch(text);
    out += text.substr(0, stretch.begin);
    AppendComposed(text.substr(stretch.begin, stretch.end - stretch.begin),
                   points, out);
    text.remove_prefix(stretch.end);
  }
  return out;
}

}  // namespace tarn
