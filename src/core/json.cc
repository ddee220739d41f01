#include "core/json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/text.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

// The most of the parser's own message that an error repeats.
constexpr size_t kMaxDetailBytes = 200;

// Receives the parser's events, adds the rules the parser lacks (depth,
// duplicate keys, count of values) and builds the values. The parser keeps its
// own stack on the heap, so depth costs no stack here or there.
class StrictBuilder final : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(const std::string& where, uint64_t max_values,
                const JsonMember* member)
      : where_(where), max_values_(max_values), member_(member) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return Refuse("no binary", "some"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return CloseLevel(); }
  bool end_array() override { return CloseLevel(); }

  bool key(std::string& name) override {
    Level& level = levels_.back();
    const bool fresh =
        Streams() ? seen_.insert(name).second : !level.value.contains(name);
    if (!fresh) return Refuse("each key once", Quoted(name) + " twice");
    level.key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const Json::exception& exception) override {
    // "[json.exception.parse_error.101] parse error at line 1, ...": the part
    // in brackets names the parser's exception, which tells the reader nothing.
    std::string_view detail = exception.what();
    const size_t bracket = detail.find("] ");
    if (bracket != detail.npos) detail.remove_prefix(bracket + 2);
    error_ = FormatError(
        StrCat(where_, ": byte ", std::max<size_t>(position, 1) - 1),
        "strict JSON", Printable(detail, kMaxDetailBytes));
    return false;
  }

  std::optional<Error>& error() { return error_; }
  Json& root() { return root_; }

 private:
  struct Level {
    Json value;       // an array or an object under construction
    std::string key;  // of the member being read, in an object
  };

  // Are the members of the innermost open object handed over one by one?
  bool Streams() const { return member_ != nullptr && levels_.size() == 1; }

  bool Refuse(const std::string& wanted, const std::string& given) {
    error_ = FormatError(where_, wanted, given);
    return false;
  }

  bool CountValue() {
    if (++values_ <= max_values_) return true;
    return Refuse(StrCat("at most ", max_values_, " values"), "more");
  }

  bool Open(Json container) {
    if (levels_.size() == kMaxJsonDepth) {
      return Refuse(StrCat("at most ", kMaxJsonDepth, " levels of nesting"),
                    "more");
    }
    if (!CountValue()) return false;
    if (member_ != nullptr && levels_.empty() && !container.is_object()) {
      return Refuse("an object", JsonGiven(container));
    }
    levels_.push_back({std::move(container), {}});
    if (Streams()) values_ = 0;
    return true;
  }

  bool CloseLevel() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return Attach(std::move(value));
  }

  bool Add(Json value) {
    if (!CountValue()) return false;
    if (member_ != nullptr && levels_.empty()) {
      return Refuse("an object", JsonGiven(value));
    }
    return Attach(std::move(value));
  }

  bool Attach(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (Streams()) {
      values_ = 0;
      error_ = (*member_)(level.key, value);
      return !error_;
    }
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      level.value.emplace(std::move(level.key), std::move(value));
    }
    return true;
  }

  const std::string& where_;
  const uint64_t max_values_;
  const JsonMember* member_;
  std::vector<Level> levels_;
  std::set<std::string> seen_;  // keys of an object that is handed over
  Json root_;
  uint64_t values_ = 0;
  std::optional<Error> error_;
};

// Checks what the parser would let pass: sizes, and bytes it skips or stops at.
std::optional<Error> CheckBytes(std::string_view text, const std::string& where,
                                uint64_t max_bytes) {
  if (text.size() > max_bytes) {
    return FormatError(where, StrCat("at most ", max_bytes, " bytes"),
                       StrCat(text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return FormatError(where + ": byte 0", "strict JSON", "a byte order mark");
  }
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return FormatError(StrCat(where, ": byte ", nul), "strict JSON",
                       "a NUL byte");
  }
  return std::nullopt;
}

std::optional<Error> Parse(std::string_view text, uint64_t max_bytes,
                           const std::string& where, StrictBuilder& builder) {
  if (auto error = CheckBytes(text, where, max_bytes)) return error;
  const char* begin = text.data();
  if (!Json::sax_parse(begin, begin + text.size(), &builder)) {
    if (builder.error()) return std::move(builder.error());
    return FormatError(where, "strict JSON", "something else");
  }
  return std::nullopt;
}

}  // namespace

Result<nlohmann::json> ParseStrictJson(std::string_view text,
                                       const std::string& where,
                                       uint64_t max_bytes) {
  StrictBuilder builder(where, kMaxJsonValues, nullptr);
  if (auto error = Parse(text, max_bytes, where, builder)) return *error;
  return std::move(builder.root());
}

std::optional<Error> VisitStrictJson(std::string_view text,
                                     const std::string& where,
                                     uint64_t max_bytes, uint64_t max_values,
                                     const JsonMember& member) {
  StrictBuilder builder(where, max_values, &member);
  return Parse(text, max_bytes, where, builder);
}

std::optional<int64_t> JsonInteger(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > INT64_MAX) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > 0x1p53 || number != std::trunc(number)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

std::string JsonGiven(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) {
    return "the text " + Quoted(value.get_ref<const std::string&>());
  }
  return value.dump();
}

}  // namespace tarn
