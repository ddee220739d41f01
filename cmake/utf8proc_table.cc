// Prints what cmake/utf8proc_wasm.cc needs of this machine's utf8proc, as C++:
// a cross build has its header and no library for its target.
#include <utf8proc.h>

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace {

using Points = std::vector<utf8proc_int32_t>;
constexpr int32_t kPoints = 0x110000;
constexpr int32_t kFirstSyllable = 0xAC00, kSyllables = 11172;

Points Decomposed(int32_t point, bool compatible) {
  Points parts(32);
  int state = 0;
  parts.resize(static_cast<size_t>(utf8proc_decompose_char(
      point, parts.data(), 32,
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE |
                                     (compatible ? UTF8PROC_COMPAT : 0)),
      &state)));
  return parts;
}

Points Composed(Points points) {
  points.resize(static_cast<size_t>(utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE))));
  return points;
}

// A row of kRecords: the fields of a property that are read, and the steps to
// the other cases of a letter.
std::string RecordOf(int32_t point) {
  const utf8proc_property_t& facts = *utf8proc_get_property(point);
  char row[160];
  std::snprintf(
      row, sizeof row, "{%d,%d,%d,%d,%d,%d,%d,%d,%d,%d}", facts.category,
      facts.combining_class, facts.decomp_type,
      facts.decomp_seqindex == UINT16_MAX ? 0 : 1,
      static_cast<int>(facts.boundclass), utf8proc_tolower(point) - point,
      utf8proc_toupper(point) - point, utf8proc_totitle(point) - point,
      utf8proc_islower(point) != 0, utf8proc_isupper(point) != 0);
  return row;
}

void PrintPages() {
  std::map<std::string, int> records;
  std::vector<std::string> rows;
  std::map<std::string, int> pages;
  std::vector<std::string> page_texts;
  std::vector<int> page_of;
  for (int32_t first = 0; first < kPoints; first += 256) {
    std::string page;
    for (int32_t point = first; point < first + 256; ++point) {
      const std::string row = RecordOf(point);
      const auto [found, added] =
          records.emplace(row, static_cast<int>(rows.size()));
      if (added) rows.push_back(row);
      page += std::to_string(found->second) + ",";
    }
    const auto [found, added] =
        pages.emplace(page, static_cast<int>(page_texts.size()));
    if (added) page_texts.push_back(page);
    page_of.push_back(found->second);
  }
  std::puts("const Record kRecords[] = {");
  for (const std::string& row : rows) std::printf("%s,\n", row.c_str());
  std::puts("};\nconst uint16_t kPages[][256] = {");
  for (const std::string& page : page_texts) {
    std::printf("{%s},\n", page.c_str());
  }
  std::puts("};\nconst uint16_t kPageOf[] = {");
  for (const int page : page_of) std::printf("%d,", page);
  std::puts("};");
}

// Rows [point, begin, end) over `parts`, for what changes.
void PrintDecompositions(const char* name, bool compatible) {
  std::string parts;
  int count = 0;
  std::printf("const Decomposition k%s[] = {\n", name);
  for (int32_t point = 0; point < kPoints; ++point) {
    if (point >= kFirstSyllable && point < kFirstSyllable + kSyllables) {
      continue;  // by arithmetic
    }
    const Points all = Decomposed(point, compatible);
    if (all == Points{point}) continue;
    if (compatible && all == Decomposed(point, false)) continue;
    std::printf("{%d,%d,%d},\n", point, count,
                count + static_cast<int>(all.size()));
    count += static_cast<int>(all.size());
    for (const int32_t part : all) parts += std::to_string(part) + ",";
  }
  std::printf("};\nconst int32_t k%sParts[] = {%s};\n", name, parts.c_str());
}

// Pairs that compose, sorted: what a character's decomposition becomes without
// its last part, that part, and the character.
void PrintCompositions() {
  std::map<std::pair<int32_t, int32_t>, int32_t> pairs;
  for (int32_t point = 0; point < kPoints; ++point) {
    if (point >= kFirstSyllable && point < kFirstSyllable + kSyllables) {
      continue;
    }
    Points all = Decomposed(point, false);
    if (all.size() < 2 || Composed(all) != Points{point}) continue;
    const int32_t last = all.back();
    all.pop_back();
    all = Composed(all);
    if (all.size() == 1) pairs[{all[0], last}] = point;
  }
  std::puts("const Composition kCompositions[] = {");
  for (const auto& [pair, whole] : pairs) {
    std::printf("{%d,%d,%d},\n", pair.first, pair.second, whole);
  }
  std::puts("};");
}

}  // namespace

int main() {
  PrintPages();
  PrintDecompositions("Canonical", false);
  PrintDecompositions("Compatible", true);
  PrintCompositions();
}
