// Methods of Python's str. Every part keeps its marks.
#include <algorithm>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

constexpr int64_t kAll = INT64_MAX;

Value Texts(Machine& machine, std::vector<MarkedText> parts) {
  std::vector<Value> items;
  for (MarkedText& part : parts) {
    items.push_back(machine.MakeString(std::move(part)));
  }
  return MakeList(&machine.budget(), std::move(items));
}

// str.split and rsplit at white space.
std::vector<MarkedText> SplitSpaces(Budget& budget, const MarkedText& text,
                                    int64_t most, bool from_right) {
  const std::string_view bytes = text.text();
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    bool space = false;
    while (at < bytes.size() && !space) {
      const CodePoint c = ReadCodePoint(bytes.substr(at));
      space = IsSpace(c.value);
      if (space && at > begin) words.emplace_back(begin, at);
      at += c.bytes;
    }
    if (!space && at > begin) words.emplace_back(begin, at);
  }
  // After that many cuts the rest is one piece, and keeps the white space at
  // its outer end.
  const auto limit = static_cast<uint64_t>(most) + 1;
  if (words.size() >= limit) {
    if (from_right) {
      const size_t last = words.size() - limit;
      words[last].first = 0;
      words.erase(words.begin(),
                  words.begin() + static_cast<std::ptrdiff_t>(last));
    } else {
      words[limit - 1].second = bytes.size();
      words.resize(limit);
    }
  }
  std::vector<MarkedText> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto [begin, end] = words[i];
    parts.push_back(Part(budget, text, begin, end));
  }
  return parts;
}

std::vector<MarkedText> SplitAt(Budget& budget, const MarkedText& text,
                                const std::string& separator, int64_t most,
                                bool from_right) {
  if (separator.empty()) Fail("a separator that is not empty", "''");
  const std::string& bytes = text.text();
  budget.Work(bytes.size());
  std::vector<MarkedText> parts;
  if (from_right) {
    size_t end = bytes.size();
    while (most-- > 0 && end >= separator.size()) {
      const size_t found = bytes.rfind(separator, end - separator.size());
      if (found == bytes.npos) break;
      parts.push_back(Part(budget, text, found + separator.size(), end));
      end = found;
    }
    parts.push_back(Part(budget, text, 0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (most-- > 0) {
    const size_t found = bytes.find(separator, begin);
    if (found == bytes.npos) break;
    parts.push_back(Part(budget, text, begin, found));
    begin = found + separator.size();
  }
  parts.push_back(Part(budget, text, begin, bytes.size()));
  return parts;
}

Value Split(Machine& machine, const MarkedText& text, const std::string& name,
            const Arguments& arguments) {
  const Bound bound(arguments, name, {"sep", "maxsplit"});
  const int64_t given = bound.IntegerOr(1, -1);
  const int64_t most = given < 0 ? kAll - 1 : given;
  const bool right = name == "rsplit";
  Budget& budget = machine.budget();
  budget.Work(text.size());
  return Texts(machine, bound.some(0) ? SplitAt(budget, text,
                                                bound.TextAt(0).marked.text(),
                                                most, right)
                                      : SplitSpaces(budget, text, most, right));
}

// The bytes of text[start:end], by arguments 1 and 2.
std::pair<size_t, size_t> Window(Machine& machine, const Value& text,
                                 const Bound& bound) {
  const Text& whole = *text.text();
  const std::string& bytes = whole.marked.text();
  if (!bound.some(1) && !bound.some(2)) return {0, bytes.size()};
  const int64_t size = Length(machine, text);
  const auto offset = [&](size_t i, int64_t otherwise) {
    int64_t at = bound.some(i) ? bound.IntegerAt(i) : otherwise;
    if (at < 0) at = std::max<int64_t>(at + size, 0);
    return ByteOffset(bytes, whole.ascii,
                      static_cast<size_t>(std::min(at, size)));
  };
  // A window that begins after the text contains nothing, not even "".
  if (bound.some(1) && bound.IntegerAt(1) > size) return {1, 0};
  return {offset(1, 0), offset(2, size)};
}

Value Affix(Machine& machine, const Value& text, const std::string& name,
            const Arguments& arguments) {
  const Bound bound(arguments, name, {"", "", ""}, 1);
  const auto [begin, end] = Window(machine, text, bound);
  if (begin > end) return false;
  const std::string_view window =
      std::string_view(text.text()->marked.text()).substr(begin, end - begin);
  const auto fits = [&](const Value& wanted) {
    const Text* affix = wanted.text();
    if (affix == nullptr) Fail("text or a tuple of texts", Describe(wanted));
    const std::string& bytes = affix->marked.text();
    machine.budget().Work(bytes.size());
    return name == "startswith" ? window.starts_with(bytes)
                                : window.ends_with(bytes);
  };
  const Row* row = bound[0].row();
  if (row == nullptr || row->type != RowType::kTuple) return fits(bound[0]);
  return std::any_of(row->items.begin(), row->items.end(), fits);
}

Value FindText(Machine& machine, const Value& text, const std::string& name,
               const Arguments& arguments) {
  const Bound bound(arguments, name, {"", "", ""}, 1);
  const auto [begin, end] = Window(machine, text, bound);
  const Text& whole = *text.text();
  const std::string_view bytes = whole.marked.text();
  const std::string& wanted = bound.TextAt(0).marked.text();
  machine.budget().Work(bytes.size());
  if (name == "count") {
    if (begin > end) return int64_t{0};
    const std::string_view window = bytes.substr(begin, end - begin);
    if (wanted.empty()) {
      return static_cast<int64_t>(CountCharacters(window)) + 1;
    }
    int64_t count = 0;
    for (size_t at = 0; (at = window.find(wanted, at)) != window.npos;
         at += wanted.size()) {
      ++count;
    }
    return count;
  }
  size_t found = bytes.npos;
  if (begin <= end) {
    const std::string_view window = bytes.substr(begin, end - begin);
    found = name[0] == 'r' ? window.rfind(wanted) : window.find(wanted);
  }
  if (found == bytes.npos) {
    if (name.ends_with("index")) Fail("a part of the text", Quoted(wanted));
    return int64_t{-1};
  }
  return static_cast<int64_t>(CountCharacters(bytes.substr(0, begin + found)));
}

Value Partition(Machine& machine, const MarkedText& text,
                const std::string& name, const Arguments& arguments) {
  const Bound bound(arguments, name, {""}, 1);
  const Text& separator = bound.TextAt(0);
  const std::string& bytes = separator.marked.text();
  if (bytes.empty()) Fail("a separator that is not empty", "''");
  Budget& budget = machine.budget();
  budget.Work(text.size());
  const bool right = name == "rpartition";
  const size_t found =
      right ? text.text().rfind(bytes) : text.text().find(bytes);
  std::vector<Value> parts(3, machine.MakeString(""));
  if (found == std::string::npos) {
    parts[right ? 2 : 0] = machine.MakeString(text);
  } else {
    const size_t after = found + bytes.size();
    parts[0] = machine.MakeString(Part(budget, text, 0, found));
    parts[1] = machine.MakeString(Part(budget, text, found, after));
    parts[2] = machine.MakeString(Part(budget, text, after, text.size()));
  }
  return MakeRow(&budget, RowType::kTuple, std::move(parts));
}

// ljust, rjust, center, zfill.
Value Pad(Machine& machine, const Value& text, const std::string& name,
          const Arguments& arguments) {
  const Bound bound(arguments, name, {"", ""}, 1);
  const MarkedText& own = text.text()->marked;
  MarkedText fill = bound.given(1)
                        ? bound.TextAt(1).marked
                        : MarkedText(name == "zfill" ? "0" : " ", false);
  if (CountCharacters(fill.text()) != 1) {
    Fail("one character to fill with", Quoted(fill.text()));
  }
  const int64_t missing = bound.IntegerAt(0) - Length(machine, text);
  if (missing <= 0) return text;
  int64_t left = name == "ljust" ? 0 : missing;
  if (name == "center") {
    left = missing / 2 + (missing & bound.IntegerAt(0) & 1);
  }
  TextBuilder out(&machine.budget());
  size_t begin = 0;
  if (name == "zfill" && own.size() != 0 &&
      (own.text()[0] == '-' || own.text()[0] == '+')) {
    out.Append(own, 0, 1);
    begin = 1;
  }
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(own, begin, own.size());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return machine.MakeString(out.Take());
}

// isalpha and the like; false for an empty text.
bool Is(const std::string& bytes, const std::string& name) {
  bool (*holds)(uint32_t) =
      name == "isspace"       ? IsSpace
      : name == "isalpha"     ? IsAlpha
      : name == "isnumeric"   ? IsNumeric
      : name == "isprintable" ? IsPrintable
      : name == "isalnum"     ? static_cast<bool (*)(uint32_t)>([](uint32_t c) {
          return IsAlpha(c) || IsNumeric(c);
        })
                              : IsDecimal;
  if (name == "isascii") return IsAscii(bytes);
  bool any = false, cased = name == "islower" || name == "isupper";
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = ReadCodePoint(std::string_view(bytes).substr(at));
    if (cased) {
      const bool lower = IsLower(c.value), upper = IsUpper(c.value);
      if (name == "islower" ? upper : lower) return false;
      any = any || lower || upper;
    } else if (name == "isidentifier") {
      if (at == 0 ? !IsIdentifierStart(c.value) : !IsIdentifierPart(c.value)) {
        return false;
      }
      any = true;
    } else if (!holds(c.value)) {
      return false;
    } else {
      any = true;
    }
    at += c.bytes;
  }
  return any || name == "isprintable";
}

Value JoinTexts(Machine& machine, const MarkedText& separator,
                const Arguments& arguments) {
  const Bound bound(arguments, "join", {""}, 1);
  TextBuilder out(&machine.budget());
  bool first = true;
  for (const Value& item : Items(machine, bound[0])) {
    if (item.text() == nullptr) Fail("texts to join", Describe(item));
    if (!first) out.Append(separator);
    first = false;
    out.Append(item.text()->marked);
  }
  return machine.MakeString(out.Take());
}

}  // namespace

MarkedText Part(Budget& budget, const MarkedText& text, size_t begin,
                size_t end) {
  budget.Work(end - begin);
  MarkedText part;
  part.Append(text, begin, end);
  return part;
}

MarkedText Strip(Budget& budget, const MarkedText& text, const Text* characters,
                 bool left, bool right) {
  const std::string_view bytes = text.text();
  std::vector<uint32_t> set;
  if (characters != nullptr) {
    const std::string_view wanted = characters->marked.text();
    for (size_t at = 0; at < wanted.size();) {
      const CodePoint c = ReadCodePoint(wanted.substr(at));
      set.push_back(c.value);
      at += c.bytes;
    }
    budget.Work(wanted.size());
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](size_t at) {
    budget.Step();
    const uint32_t c = ReadCodePoint(bytes.substr(at)).value;
    return characters != nullptr ? std::binary_search(set.begin(), set.end(), c)
                                 : IsSpace(c);
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && goes(begin)) {
    begin += ReadCodePoint(bytes.substr(begin)).bytes;
  }
  while (right && end > begin && goes(Before(bytes, end))) {
    end = Before(bytes, end);
  }
  return Part(budget, text, begin, end);
}

MarkedText Replace(Budget& budget, const MarkedText& text,
                   const MarkedText& old, const MarkedText& with,
                   int64_t count) {
  const std::string_view bytes = text.text();
  if (count < 0) count = kAll;
  budget.Work(bytes.size());
  TextBuilder out(&budget);
  size_t begin = 0;
  if (old.size() == 0) {  // before every character and at the end
    while (count-- > 0) {
      out.Append(with);
      if (begin == bytes.size()) return out.Take();
      const size_t end = begin + ReadCodePoint(bytes.substr(begin)).bytes;
      out.Append(text, begin, end);
      begin = end;
    }
    out.Append(text, begin, bytes.size());
    return out.Take();
  }
  while (count-- > 0) {
    const size_t found = bytes.find(old.text(), begin);
    if (found == bytes.npos) break;
    out.Append(text, begin, found);
    out.Append(with);
    begin = found + old.size();
  }
  out.Append(text, begin, bytes.size());
  return out.Take();
}

std::vector<MarkedText> Lines(Budget& budget, const MarkedText& text,
                              bool keep_ends) {
  const std::string_view bytes = text.text();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = ReadCodePoint(bytes.substr(at));
    const size_t end = at;
    at += c.bytes;
    if (!IsLineBreak(c.value)) continue;
    if (c.value == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(Part(budget, text, begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) {
    lines.push_back(Part(budget, text, begin, bytes.size()));
  }
  return lines;
}

Value CallTextMethod(Machine& machine, const Value& receiver,
                     const std::string& name, const Arguments& arguments) {
  const MarkedText& text = receiver.text()->marked;
  Budget& budget = machine.budget();
  constexpr std::pair<std::string_view, Case> kCases[] = {
      {"lower", Case::kLower},   {"upper", Case::kUpper},
      {"title", Case::kTitle},   {"capitalize", Case::kCapitalize},
      {"swapcase", Case::kSwap}, {"casefold", Case::kFold}};
  for (const auto& [own, how] : kCases) {
    if (own != name) continue;
    const Bound bound(arguments, name, {});
    return machine.MakeString(ChangeCase(budget, text, how));
  }
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Bound bound(arguments, name, {""});
    return machine.MakeString(Strip(budget, text,
                                    bound.some(0) ? &bound.TextAt(0) : nullptr,
                                    name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    return Split(machine, text, name, arguments);
  }
  if (name == "startswith" || name == "endswith") {
    return Affix(machine, receiver, name, arguments);
  }
  if (name == "find" || name == "rfind" || name == "index" ||
      name == "rindex" || name == "count") {
    return FindText(machine, receiver, name, arguments);
  }
  if (name == "partition" || name == "rpartition") {
    return Partition(machine, text, name, arguments);
  }
  if (name == "ljust" || name == "rjust" || name == "center" ||
      name == "zfill") {
    return Pad(machine, receiver, name, arguments);
  }
  if (name == "replace") {
    const Bound bound(arguments, name, {"", "", ""}, 2);
    return machine.MakeString(Replace(budget, text, bound.TextAt(0).marked,
                                      bound.TextAt(1).marked,
                                      bound.IntegerOr(2, -1)));
  }
  if (name == "splitlines") {
    const Bound bound(arguments, name, {"keepends"});
    return Texts(machine, Lines(budget, text, bound.TruthOr(0, false)));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Bound bound(arguments, name, {""}, 1);
    const std::string& part = bound.TextAt(0).marked.text();
    size_t begin = 0, end = text.size();
    if (name == "removeprefix" && text.text().starts_with(part)) {
      begin = part.size();
    } else if (name == "removesuffix" && text.text().ends_with(part)) {
      end -= part.size();
    }
    return machine.MakeString(Part(budget, text, begin, end));
  }
  if (name == "join") return JoinTexts(machine, text, arguments);
  if (name == "format") {
    return machine.MakeString(FormatText(machine, text, arguments));
  }
  if (name == "format_map") {
    const Bound bound(arguments, name, {""}, 1);
    Arguments named;
    const Dictionary* map = bound[0].dictionary();
    if (map == nullptr) Fail("an object for format_map", Describe(bound[0]));
    for (const auto& [key, value] : map->items) {
      if (const Text* own = key.text()) {
        named.named.emplace_back(own->marked.text(), value);
      }
    }
    return machine.MakeString(FormatText(machine, text, named));
  }
  if (name.starts_with("is") && name != "istitle") {
    const Bound bound(arguments, name, {});
    budget.Work(text.size());
    return Is(text.text(), name);
  }
  Fail("a method of texts that is supported", Quoted(name));
}

}  // namespace tarn::jinja
