#include "text/unicode/nfc.h"

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

// Appends the full decomposition of one character, canonical or compatible.
void Decompose(uint32_t point, bool compatible, Points& out) {
  constexpr int kLongest = 32;  // Unicode's longest are 4 and 18
  utf8proc_int32_t parts[kLongest];
  int state = 0;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(point), parts, kLongest, options, &state);
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

void AppendPoints(const utf8proc_int32_t* points, utf8proc_ssize_t count,
                  std::string& out) {
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>(points[i]), out);
  }
}

// Linear; UTF8PROC_STABLE leaves out the composition exclusions, as NFC does.
void AppendComposed(Points& points, std::string& out) {
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  AppendPoints(points.data(), count, out);
}

// `points` is scratch, kept between stretches.
void AppendNfc(std::string_view stretch, Points& points, std::string& out) {
  points.clear();
  for (size_t at = 0; at < stretch.size();) {
    const Utf8Head head = ReadUtf8(stretch.substr(at));
    Decompose(head.code_point, false, points);
    at += head.bytes;
  }
  Reorder(points);
  AppendComposed(points, out);
}

// Capitals that Unicode 16 and 17 gave a lower case, in runs. With U+0130, all
// that the package's lower case has and utf8proc's has not.
struct NewCapitals {
  uint32_t first, last;
  int64_t to_lower;
};
constexpr NewCapitals kNewCapitals[] = {
    {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
    {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}};

uint32_t LowerOf(uint32_t point) {
  for (const NewCapitals& run : kNewCapitals) {
    if (point >= run.first && point <= run.last) {
      return static_cast<uint32_t>(point + run.to_lower);
    }
  }
  return static_cast<uint32_t>(
      utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
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
    AppendNfc(text.substr(stretch.begin, stretch.end - stretch.begin), points,
              out);
    text.remove_prefix(stretch.end);
  }
  return out;
}

std::string ToForm(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  Points points;
  const auto flush = [&] {
    Reorder(points);
    if (form.compose) {
      AppendComposed(points, out);
    } else {
      AppendPoints(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                   out);
    }
    points.clear();
  };
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    const bool valid = head.kind == Utf8Head::kValid;
    // A starter begins the stretches, so that they stay short; it must join
    // nothing before it.
    const bool apart = !valid || head.code_point == kBeforeTails ||
                       head.code_point < kFirstMark;
    if (apart) flush();
    if (valid) {
      Decompose(head.code_point, form.compatible, points);
    } else {
      out += text.substr(0, head.bytes);
    }
    text.remove_prefix(head.bytes);
  }
  flush();
  return out;
}

std::string ToLower(std::string_view text) {
  constexpr uint32_t kDottedI = 0x130;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    if (head.kind != Utf8Head::kValid) {
      out += text.substr(0, head.bytes);
    } else if (head.code_point == kDottedI) {
      out += "i\xCC\x87";
    } else {
      AppendUtf8(LowerOf(head.code_point), out);
    }
    text.remove_prefix(head.bytes);
  }
  return out;
}

}  // namespace tarn
