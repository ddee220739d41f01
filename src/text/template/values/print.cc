// Python's str() and repr().
#include <charconv>
#include <cmath>

#include "core/numbers/number_text.h"
#include "text/template/interpreter.h"
#include "text/template/values/fault.h"
#include "text/template/values/python_text.h"
#include "text/template/values/value.h"
#include "text/utf8.h"

namespace tarn::jinja {
namespace {

void AppendQuoted(TextBuilder& out, const MarkedText& text) {
  const std::string& bytes = text.text();
  const bool doubled = bytes.find('\'') != std::string::npos &&
                       bytes.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out.Append(std::string_view(&quote, 1));
  size_t plain = 0;  // where text that needs no escape begins
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = ReadCodePoint(std::string_view(bytes).substr(at));
    std::string escape;
    if (c.value == static_cast<uint32_t>(quote) || c.value == '\\') {
      escape = {'\\', bytes[at]};
    } else if (c.value == '\n') {
      escape = "\\n";
    } else if (c.value == '\r') {
      escape = "\\r";
    } else if (c.value == '\t') {
      escape = "\\t";
    } else if (!IsPrintable(c.value)) {
      escape = HexEscape(c.value);
    }
    if (!escape.empty()) {
      out.Append(text, plain, at);
      out.Append(escape, text.DataAt(at));
      plain = at + c.bytes;
    }
    at += c.bytes;
  }
  out.Append(text, plain, bytes.size());
  out.Append(std::string_view(&quote, 1));
}

void AppendRow(TextBuilder& out, const Row& row, uint32_t level) {
  if (row.type == RowType::kRange) {
    out.Append(StrCat("range(", row.range[0], ", ", row.range[1]));
    if (row.range[2] != 1) out.Append(StrCat(", ", row.range[2]));
    out.Append(")");
    return;
  }
  if (row.type == RowType::kGenerator) {
    Fail("a list (the filter 'list' makes one)", "a generator to print");
  }
  const bool view = row.type >= RowType::kKeys;
  if (view) {
    out.Append(row.type == RowType::kKeys     ? "dict_keys("
               : row.type == RowType::kValues ? "dict_values("
                                              : "dict_items(");
  }
  const bool tuple = row.type == RowType::kTuple;
  out.Append(tuple ? "(" : "[");
  for (size_t i = 0; i < row.items.size(); ++i) {
    if (i != 0) out.Append(", ");
    AppendRepr(out, row.items[i], level + 1);
  }
  out.Append(tuple ? (row.items.size() == 1 ? ",)" : ")") : "]");
  if (view) out.Append(")");
}

template <typename Key>
void AppendPair(TextBuilder& out, bool first, const Key& key,
                const Value& value, uint32_t level) {
  if (!first) out.Append(", ");
  key();
  out.Append(": ");
  AppendRepr(out, value, level + 1);
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = ToChars(buffer, buffer + sizeof buffer, value,
                           std::chars_format::scientific);
  // D.DDDe+XX: the shortest digits that read back as the same number.
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(negative, e - negative)) {
    if (c != '.') digits += c;
  }
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(buffer + sign, end.ptr, exponent);
  const int count = static_cast<int>(digits.size());
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    const int magnitude = exponent < 0 ? -exponent : exponent;
    return StrCat(out, exponent < 0 ? "e-" : "e+", magnitude < 10 ? "0" : "",
                  magnitude);
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') +
           digits;
  }
  if (count <= exponent + 1) {
    return out + digits +
           std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const size_t point = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

void AppendStr(TextBuilder& out, const Value& value) {
  if (const Text* text = value.text()) {
    out.Append(text->marked);
  } else if (!value.undefined()) {
    AppendRepr(out, value);
  }
}

void AppendRepr(TextBuilder& out, const Value& value, uint32_t level) {
  if (level > kMaxTemplateDepth) {
    Fail(StrCat("at most ", kMaxTemplateDepth, " levels to print"), "more");
  }
  if (value.undefined()) return out.Append("Undefined");
  if (value.none()) return out.Append("None");
  if (const bool* flag = value.If<bool>()) {
    return out.Append(*flag ? "True" : "False");
  }
  if (const int64_t* number = value.If<int64_t>()) {
    return out.Append(std::to_string(*number));
  }
  if (const double* number = value.If<double>()) {
    return out.Append(FloatText(*number));
  }
  if (const Text* text = value.text()) {
    if (text->markup) out.Append("Markup(");
    AppendQuoted(out, text->marked);
    if (text->markup) out.Append(")");
    return;
  }
  if (const Row* row = value.row()) return AppendRow(out, *row, level);
  const bool is_namespace = value.If<NamespaceObject*>() != nullptr;
  if (const Dictionary* dictionary = value.dictionary()) {
    out.Append("{");
    for (const auto& [key, item] : dictionary->items) {
      AppendPair(
          out, &key == &dictionary->items[0].first,
          [&, &key = key] { AppendRepr(out, key, level + 1); }, item, level);
    }
    return out.Append("}");
  }
  if (is_namespace) {
    const NamespaceObject& object = **value.If<NamespaceObject*>();
    out.Append("<Namespace {");
    for (const auto& [name, item] : object.items) {
      AppendPair(
          out, &name == &object.items[0].first,
          [&, &name = name] { AppendQuoted(out, MarkedText(name, false)); },
          item, level);
    }
    return out.Append("}>");
  }
  if (const auto* macro = value.If<MacroObject*>()) {
    out.Append("<Macro ");
    AppendQuoted(out, MarkedText((*macro)->definition->name, false));
    return out.Append(">");
  }
  Fail("a value that can be printed", Describe(value));
}

MarkedText Str(Budget& budget, const Value& value) {
  if (const Text* text = value.text()) {
    budget.Work(text->marked.size());
    return text->marked;
  }
  TextBuilder out(&budget);
  AppendStr(out, value);
  return out.Take();
}

}  // namespace tarn::jinja
