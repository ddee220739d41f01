// The filter tojson, as transformers defines it: json.dumps.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Machine& machine, const Arguments& arguments)
      : machine_(machine), out_(&machine.budget()) {
    const Bound bound(arguments, "tojson",
                      {"ensure_ascii", "indent", "separators", "sort_keys"});
    ascii_ = bound.TruthOr(0, false);
    sort_ = bound.TruthOr(3, false);
    if (bound.some(1)) {
      if (const Text* text = bound[1].text()) {
        indent_ = text->marked.text();
      } else {
        const int64_t width = bound.IntegerAt(1);
        if (width > 1000) Fail("an indent of at most 1000", StrCat(width));
        indent_ =
            std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
      }
    }
    comma_ = indent_ ? "," : ", ";
    if (bound.some(2)) {
      const std::vector<Value> parts = Items(machine, bound[2]);
      if (parts.size() != 2 || parts[0].text() == nullptr ||
          parts[1].text() == nullptr) {
        Fail("two texts as separators", Describe(bound[2]));
      }
      comma_ = parts[0].text()->marked.text();
      colon_ = parts[1].text()->marked.text();
    }
  }

  MarkedText Write(const Value& value) {
    Any(value, 0);
    return out_.Take();
  }

 private:
  void Any(const Value& value, size_t level) {
    machine_.budget().Step();
    if (const Text* text = value.text()) return String(text->marked);
    if (const Row* row = value.row()) {
      if (row->type <= RowType::kTuple) return List(*row, level);
    }
    if (const Dictionary* dictionary = value.dictionary()) {
      return Object(*dictionary, level);
    }
    const std::optional<std::string> scalar = Scalar(value);
    if (!scalar) Fail("a value that JSON has", Describe(value));
    out_.Append(*scalar);
  }

  static std::optional<std::string> Scalar(const Value& value) {
    if (value.none()) return "null";
    if (const bool* flag = value.If<bool>()) return *flag ? "true" : "false";
    if (const int64_t* number = value.If<int64_t>()) {
      return std::to_string(*number);
    }
    const double* number = value.If<double>();
    if (number == nullptr) return std::nullopt;
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    return FloatText(*number);
  }

  void Break(size_t level) {
    if (!indent_) return;
    out_.Append("\n");
    for (size_t i = 0; i < level; ++i) out_.Append(*indent_);
  }

  void List(const Row& row, size_t level) {
    if (row.items.empty()) return out_.Append("[]");
    out_.Append("[");
    for (size_t i = 0; i < row.items.size(); ++i) {
      if (i != 0) out_.Append(comma_);
      Break(level + 1);
      Any(row.items[i], level + 1);
    }
    Break(level);
    out_.Append("]");
  }

  void Object(const Dictionary& dictionary, size_t level) {
    if (dictionary.items.empty()) return out_.Append("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dictionary.items) items.push_back(&item);
    if (sort_) {
      std::stable_sort(items.begin(), items.end(), [&](auto* a, auto* b) {
        return Less(machine_.budget(), a->first, b->first);
      });
    }
    out_.Append("{");
    bool first = true;
    for (const auto* item : items) {
      if (!first) out_.Append(comma_);
      first = false;
      Break(level + 1);
      if (const Text* key = item->first.text()) {
        String(key->marked);
      } else {
        const std::optional<std::string> key_text = Scalar(item->first);
        if (!key_text) Fail("a key that JSON has", Describe(item->first));
        out_.Append("\"" + *key_text + "\"");
      }
      out_.Append(colon_);
      Any(item->second, level + 1);
    }
    Break(level);
    out_.Append("}");
  }

  static std::string Unicode(uint32_t unit) {
    constexpr char kHex[] = "0123456789abcdef";
    return {'\\',
            'u',
            kHex[unit >> 12],
            kHex[(unit >> 8) & 15],
            kHex[(unit >> 4) & 15],
            kHex[unit & 15]};
  }

  // What a character becomes; empty: itself.
  std::string EscapeOf(uint32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    if (c >= 0x20 && (!ascii_ || c < 0x7F)) return {};
    if (c < 0x10000) return Unicode(c);
    return Unicode(0xD800 + ((c - 0x10000) >> 10)) +
           Unicode(0xDC00 + ((c - 0x10000) & 0x3FF));
  }

  void String(const MarkedText& text) {
    const std::string_view bytes = text.text();
    out_.Append("\"");
    size_t plain = 0;
    for (size_t at = 0; at < bytes.size();) {
      const CodePoint c = ReadCodePoint(bytes.substr(at));
      const std::string escape = EscapeOf(c.value);
      if (!escape.empty()) {
        out_.Append(text, plain, at);
        out_.Append(escape, text.DataAt(at));
        plain = at + c.bytes;
      }
      at += c.bytes;
    }
    out_.Append(text, plain, bytes.size());
    out_.Append("\"");
  }

  Machine& machine_;
  TextBuilder out_;
  bool ascii_ = false, sort_ = false;
  std::optional<std::string> indent_;
  std::string comma_, colon_ = ": ";
};

}  // namespace

MarkedText JsonText(Machine& machine, const Value& value,
                    const Arguments& arguments) {
  return JsonWriter(machine, arguments).Write(value);
}

}  // namespace tarn::jinja
