// Filters of texts. They take any value as str(value).
#include <algorithm>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

template <Case how>
Value CaseFilter(Machine& machine, const Value& value,
                 const Arguments& arguments) {
  const Bound bound(arguments, "the filter", {});
  Budget& budget = machine.budget();
  return machine.MakeString(ChangeCase(budget, Str(budget, value), how));
}

// Jinja's own title: words begin after white space and after - ( { [ <.
Value Title(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "title", {});
  Budget& budget = machine.budget();
  const MarkedText text = Str(budget, value);
  const std::string_view bytes = text.text();
  TextBuilder out(&budget);
  const auto cut = [](uint32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' ||
           c == '<';
  };
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint first = ReadCodePoint(bytes.substr(at));
    const bool between = cut(first.value);
    size_t end = at + first.bytes;
    while (end < bytes.size()) {
      const CodePoint c = ReadCodePoint(bytes.substr(end));
      if (cut(c.value) != between) break;
      end += c.bytes;
    }
    const size_t second = at + first.bytes;
    out.Append(
        ChangeCase(budget, Part(budget, text, at, second), Case::kUpper));
    out.Append(
        ChangeCase(budget, Part(budget, text, second, end), Case::kLower));
    at = end;
  }
  return machine.MakeString(out.Take());
}

Value Trim(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "trim", {"chars"});
  Budget& budget = machine.budget();
  return machine.MakeString(Strip(budget, Str(budget, value),
                                  bound.some(0) ? &bound.TextAt(0) : nullptr,
                                  true, true));
}

Value String(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "string", {});
  if (value.text() != nullptr) return value;
  return machine.MakeString(Str(machine.budget(), value));
}

Value Safe(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "safe", {});
  Budget& budget = machine.budget();
  return MakeText(&budget, Str(budget, value), true);
}

Value Escape(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "escape", {});
  Budget& budget = machine.budget();
  if (value.text() != nullptr && value.text()->markup) return value;
  return MakeText(&budget, Escaped(budget, Str(budget, value)), true);
}

Value ForceEscape(Machine& machine, const Value& value,
                  const Arguments& arguments) {
  const Bound bound(arguments, "forceescape", {});
  Budget& budget = machine.budget();
  return MakeText(&budget, Escaped(budget, Str(budget, value)), true);
}

Value ReplaceFilter(Machine& machine, const Value& value,
                    const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  Budget& budget = machine.budget();
  return machine.MakeString(
      Replace(budget, Str(budget, value), Str(budget, bound[0]),
              Str(budget, bound[1]), bound.some(2) ? bound.IntegerAt(2) : -1));
}

Value Indent(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "indent", {"width", "first", "blank"});
  Budget& budget = machine.budget();
  if (value.text() == nullptr)
    Fail("text for the filter indent", Describe(value));
  MarkedText indention;
  if (bound.given(0) && bound[0].text() != nullptr) {
    indention = bound[0].text()->marked;
  } else {
    TextBuilder spaces(&budget);
    const int64_t width = bound.IntegerOr(0, 4);
    for (int64_t i = 0; i < width; ++i) spaces.Append(" ");
    indention = spaces.Take();
  }
  const bool blank = bound.TruthOr(2, false);
  MarkedText text = value.text()->marked;
  budget.Work(text.size());
  text.Append("\n", false);
  TextBuilder out(&budget);
  if (bound.TruthOr(1, false)) out.Append(indention);
  bool first = true;
  for (const MarkedText& line : Lines(budget, text, false)) {
    if (!first) {
      out.Append("\n");
      if (blank || line.size() != 0) out.Append(indention);
    }
    first = false;
    out.Append(line);
  }
  return machine.MakeString(out.Take());
}

Value Format(Machine& machine, const Value& value, const Arguments& arguments) {
  Budget& budget = machine.budget();
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    Fail("arguments of the filter format all with or all without names",
         "both");
  }
  Value values = MakeRow(&budget, RowType::kTuple, arguments.positional);
  if (!arguments.named.empty()) {
    DictionaryBuilder made(&budget);
    for (const auto& [name, own] : arguments.named) {
      made.Set(machine.MakeString(name), own);
    }
    values = made.Take();
  }
  return machine.MakeString(PercentText(machine, Str(budget, value), values));
}

Value Center(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "center", {"width"});
  const Value text = String(machine, value, {});
  Arguments width;
  width.positional.push_back(bound.given(0) ? bound[0] : Value(int64_t{80}));
  return CallTextMethod(machine, text, "center", width);
}

Value Truncate(Machine& machine, const Value& value,
               const Arguments& arguments) {
  const Bound bound(arguments, "truncate",
                    {"length", "killwords", "end", "leeway"});
  Budget& budget = machine.budget();
  const int64_t length = bound.IntegerOr(0, 255);
  const int64_t leeway = bound.some(3) ? bound.IntegerAt(3) : 5;
  const MarkedText end =
      bound.given(2) ? bound.TextAt(2).marked : MarkedText("...", false);
  const auto cut = length - static_cast<int64_t>(CountCharacters(end.text()));
  if (cut < 0 || leeway < 0) {
    Fail("a length of at least that of the end, and a leeway of 0 or more",
         StrCat(length, " and ", leeway));
  }
  if (Length(machine, value) <= length + leeway) return value;
  const Text& text = *value.text();
  size_t size =
      ByteOffset(text.marked.text(), text.ascii, static_cast<size_t>(cut));
  if (!bound.TruthOr(1, false)) {
    const size_t space =
        std::string_view(text.marked.text()).substr(0, size).rfind(' ');
    if (space != std::string_view::npos) size = space;
  }
  TextBuilder out(&budget);
  out.Append(text.marked, 0, size);
  out.Append(end);
  return machine.MakeString(out.Take());
}

Value WordCount(Machine& machine, const Value& value,
                const Arguments& arguments) {
  const Bound bound(arguments, "wordcount", {});
  const MarkedText text = Str(machine.budget(), value);
  const std::string_view bytes = text.text();
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = ReadCodePoint(bytes.substr(at));
    const bool word = IsAlpha(c.value) || IsNumeric(c.value) || c.value == '_';
    words += word && !inside;
    inside = word;
    at += c.bytes;
  }
  return words;
}

Value UrlEncode(Machine& machine, const Value& value,
                const Arguments& arguments) {
  const Bound bound(arguments, "urlencode", {});
  if (value.row() != nullptr || value.dictionary() != nullptr) {
    Fail("text or a number for the filter urlencode", Describe(value));
  }
  const MarkedText text = Str(machine.budget(), value);
  constexpr std::string_view kPlain = "_.-~/";
  constexpr char kHex[] = "0123456789ABCDEF";
  TextBuilder out(&machine.budget());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.text()[i];
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 &&
        (std::isalnum(byte) != 0 || kPlain.find(c) != kPlain.npos)) {
      out.Append(text, i, i + 1);
    } else {
      const char escape[] = {'%', kHex[byte >> 4], kHex[byte & 15]};
      out.Append(std::string_view(escape, 3), text.DataAt(i));
    }
  }
  return machine.MakeString(out.Take());
}

constexpr Filter kTextFilters[] = {
    {"capitalize", CaseFilter<Case::kCapitalize>},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"forceescape", ForceEscape},
    {"format", Format},
    {"indent", Indent},
    {"lower", CaseFilter<Case::kLower>},
    {"replace", ReplaceFilter},
    {"safe", Safe},
    {"string", String},
    {"title", Title},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", CaseFilter<Case::kUpper>},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

MarkedText Escaped(Budget& budget, const MarkedText& text) {
  TextBuilder out(&budget);
  size_t plain = 0;
  const std::string& bytes = text.text();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char* escape = nullptr;
    switch (bytes[i]) {
      case '&':
        escape = "&amp;";
        break;
      case '<':
        escape = "&lt;";
        break;
      case '>':
        escape = "&gt;";
        break;
      case '\'':
        escape = "&#39;";
        break;
      case '"':
        escape = "&#34;";
        break;
      default:
        continue;
    }
    out.Append(text, plain, i);
    out.Append(escape, text.DataAt(i));
    plain = i + 1;
  }
  out.Append(text, plain, bytes.size());
  return out.Take();
}

const Filter* FindTextFilter(std::string_view name) {
  for (const Filter& filter : kTextFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace tarn::jinja
