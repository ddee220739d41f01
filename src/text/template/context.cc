// JSON to values. Texts of the context are data, unless the caller trusts them.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/text.h"
#include "text/template/interpreter.h"

namespace tarn::jinja {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void FailContext(std::string wanted, std::string given) {
  throw Fault{ErrorCode::kArgument,
              "the context to be " + std::move(wanted),
              std::move(given),
              {}};
}

// Builds values from the events of a parser, without recursion. Level 1 is the
// context itself, whose members become variables.
class ContextBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit ContextBuilder(Machine& machine) : machine_(machine) {}

  bool null() override { return Add(None{}); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override {
    return Add(int64_t{value});
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > uint64_t{INT64_MAX})
      FailContext("of integers of 64 bits", "more");
    return Add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!text.empty() && text.find_first_of(".eE") == text.npos) {
      FailContext("of integers of 64 bits", Quoted(text));
    }
    return Add(double{value});
  }
  bool string(string_t& text) override {
    machine_.budget().Work(text.size());
    return Add(machine_.MakeString(MarkedText(text, !Trusted(text))));
  }
  bool binary(binary_t&) override { FailContext("JSON", "binary data"); }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& text) override {
    levels_.back().key = text;
    return true;
  }
  bool parse_error(size_t byte, const std::string&,
                   const nlohmann::detail::exception&) override {
    FailContext("JSON", StrCat("a syntax error at byte ", byte));
  }

 private:
  struct Level {
    bool object = false;
    std::string key;
    std::vector<Value> items;
    std::unique_ptr<DictionaryBuilder> members;  // null: the context itself
  };

  // Whether a text counts as the template's own. Keys never do.
  bool Trusted(const std::string& text) const {
    const RenderOptions& options = machine_.options();
    if (levels_.size() == 1) {
      const auto& names = options.trusted;
      return std::find(names.begin(), names.end(), levels_[0].key) !=
             names.end();
    }
    // messages[i].role
    if (levels_.size() != 3 || levels_[0].key != "messages" ||
        !levels_[2].object || levels_[2].key != "role") {
      return false;
    }
    const auto& roles = options.trusted_roles;
    return std::find(roles.begin(), roles.end(), text) != roles.end();
  }

  bool Open(bool object) {
    if (levels_.empty() && !object) FailContext("an object", "a list");
    // One more than values may have, for the context itself.
    if (levels_.size() > machine_.budget().limits().max_value_depth) {
      FailContext(StrCat("at most ", machine_.budget().limits().max_value_depth,
                         " levels deep"),
                  "more");
    }
    Level level;
    level.object = object;
    if (object && !levels_.empty()) {
      level.members = std::make_unique<DictionaryBuilder>(&machine_.budget());
    }
    levels_.push_back(std::move(level));
    return true;
  }

  bool Close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    if (levels_.empty()) return true;
    return Add(level.object
                   ? level.members->Take()
                   : MakeList(&machine_.budget(), std::move(level.items)));
  }

  bool Add(Value value) {
    if (levels_.empty()) FailContext("an object", Describe(value));
    Level& level = levels_.back();
    machine_.budget().Step();
    if (!level.object) {
      level.items.push_back(std::move(value));
    } else if (level.members) {
      level.members->Set(machine_.MakeString(MarkedText(level.key, true)),
                         std::move(value));
    } else {
      machine_.SetVariable(level.key, std::move(value));
    }
    return true;
  }

  Machine& machine_;
  std::vector<Level> levels_;
};

// Gives the events of a document that is in memory.
void Visit(const Json& json, ContextBuilder& builder, uint32_t level,
           uint32_t most) {
  if (level > most + 1)
    FailContext(StrCat("at most ", most, " levels deep"), "more");
  switch (json.type()) {
    case Json::value_t::object:
      builder.start_object(0);
      for (const auto& [name, value] : json.items()) {
        std::string key = name;
        builder.key(key);
        Visit(value, builder, level + 1, most);
      }
      builder.end_object();
      break;
    case Json::value_t::array:
      builder.start_array(0);
      for (const Json& value : json) Visit(value, builder, level + 1, most);
      builder.end_array();
      break;
    case Json::value_t::string: {
      std::string text = json.get_ref<const std::string&>();
      builder.string(text);
      break;
    }
    case Json::value_t::boolean:
      builder.boolean(json.get<bool>());
      break;
    case Json::value_t::number_integer:
      builder.number_integer(json.get<int64_t>());
      break;
    case Json::value_t::number_unsigned:
      builder.number_unsigned(json.get<uint64_t>());
      break;
    case Json::value_t::number_float:
      builder.number_float(json.get<double>(), "");
      break;
    default:
      builder.null();
  }
}

}  // namespace

void SetContext(Machine& machine, const Json& context) {
  ContextBuilder builder(machine);
  Visit(context, builder, 0, machine.budget().limits().max_value_depth);
}

void SetContext(Machine& machine, std::string_view json) {
  ContextBuilder builder(machine);
  Json::sax_parse(json.begin(), json.end(), &builder);
}

}  // namespace tarn::jinja
