// [name(parameter=value, ...), ...] with Python's literals.
#include <set>
#include <utility>

#include "runtime/chat/tool_forms/json_extent.h"
#include "runtime/chat/tool_forms/python_values.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

class PythonicReader final : public ToolCallReader {
 public:
  PythonicReader(const ToolCallForm& form, ToolSchemas schemas)
      : form_(&form), schemas_(std::move(schemas)) {}

  void Begin(size_t) override { where_ = Where::kFirst; }

  ReaderStep Feed(char byte) override {
    switch (where_) {
      case Where::kFirst:
        if (IsWhite(byte)) return ReaderStep::kMore;
        if (byte != '[') return ReaderStep::kFailed;
        BeginName();
        return ReaderStep::kMore;
      case Where::kName:
        return FeedName(byte);
      case Where::kArguments:
        return FeedArguments(byte);
      case Where::kBetween:
      case Where::kClosed:
        return FeedBetween(byte);
    }
    return ReaderStep::kFailed;
  }

  size_t Tail() const override {
    const bool texts = where_ == Where::kBetween || where_ == Where::kClosed;
    return texts ? end_.matched() : 0;
  }

 private:
  enum class Where { kFirst, kName, kArguments, kBetween, kClosed };

  void BeginName() {
    where_ = Where::kName;
    call_.name.clear();
  }

  ReaderStep FeedName(char byte) {
    if (IsWhite(byte) && call_.name.empty()) return ReaderStep::kMore;
    if (byte == '(' && IsToolName(call_.name)) {
      where_ = Where::kArguments;
      extent_ = PythonExtent();
      text_.clear();
      return ReaderStep::kMore;
    }
    call_.name += byte;
    if (IsToolName(call_.name)) return ReaderStep::kMore;
    call_.name.clear();
    return ReaderStep::kFailed;
  }

  ReaderStep FeedArguments(char byte) {
    if (byte != ')' || !extent_.Outside()) {
      if (!extent_.Feed(byte)) return ReaderStep::kFailed;
      text_ += byte;
      return ReaderStep::kMore;
    }
    const bool complete = SetArguments();
    text_.clear();
    if (!complete) return ReaderStep::kFailed;
    Between(Where::kBetween);
    return ReaderStep::kCall;
  }

  bool SetArguments() {
    const auto arguments = PythonArguments(text_);
    if (!arguments) return false;
    std::set<std::string> names;
    std::string& json = call_.arguments = "{";
    for (const PythonArgument& argument : *arguments) {
      if (!names.insert(argument.name).second) return false;
      const std::string value = TypedPython(
          schemas_.TypesOf(call_.name, argument.name), argument.value);
      if (value.empty()) return false;
      if (json.size() > 1) json += ", ";
      json += JsonString(argument.name) + ": " + value;
    }
    json += "}";
    return true;
  }

  void Between(Where where) {
    where_ = where;
    end_ = NextText({form_->end});
  }

  ReaderStep FeedBetween(char byte) {
    if (where_ == Where::kBetween && end_.matched() == 0) {
      if (byte == ',') {
        BeginName();
        return ReaderStep::kMore;
      }
      if (byte == ']') {
        Between(Where::kClosed);
        return ReaderStep::kDropped;
      }
    }
    switch (end_.Feed(byte)) {
      case NextText::Found::kMore:
        return ReaderStep::kMore;
      case NextText::Found::kText:
        return ReaderStep::kEnd;
      case NextText::Found::kNone:
        break;
    }
    return ReaderStep::kFailed;
  }

  const ToolCallForm* form_;
  ToolSchemas schemas_;
  Where where_ = Where::kFirst;
  PythonExtent extent_;
  std::string text_;  // of the arguments
  NextText end_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakePythonicReader(const ToolCallForm& form,
                                                   ToolSchemas schemas) {
  return std::make_unique<PythonicReader>(form, std::move(schemas));
}

}  // namespace tarn
