// A name, a mark, and the arguments as a JSON object.
#include <algorithm>
#include <utility>

#include "runtime/chat/tool_forms/json_extent.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

// What comes between the mark of a call and that of its arguments.
constexpr size_t kMaxHeaderBytes = 2 * kMaxToolNameBytes;

// "functions.name:0" is name.
std::string_view NameOfIndexed(std::string_view name) {
  constexpr std::string_view kBefore = "functions.";
  if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
  const size_t colon = name.rfind(':');
  if (colon == name.npos || colon + 1 == name.size()) return name;
  const std::string_view index = name.substr(colon + 1);
  const bool digits = std::all_of(index.begin(), index.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return digits ? name.substr(0, colon) : name;
}

class NamedReader final : public ToolCallReader {
 public:
  explicit NamedReader(const ToolCallForm& form) : form_(&form) {}

  void Begin(size_t mark) override {
    const std::string_view call = form_->named.call;
    if (call.empty() || form_->marks[mark] == call) {
      BeginHeader();
    } else {
      where_ = Where::kOpen;
      next_ = NextText({call});
    }
  }

  ReaderStep Feed(char byte) override {
    switch (where_) {
      case Where::kOpen:
        return FeedOpen(byte);
      case Where::kHeader:
        return FeedHeader(byte);
      case Where::kBefore:
        if (IsWhite(byte)) return ReaderStep::kMore;
        if (byte != '{') return ReaderStep::kFailed;
        where_ = Where::kObject;
        object_.clear();
        extent_ = JsonExtent();
        return FeedObject(byte);
      case Where::kObject:
        return FeedObject(byte);
      case Where::kBetween:
        return FeedBetween(byte);
    }
    return ReaderStep::kFailed;
  }

  size_t Tail() const override {
    const bool texts = where_ == Where::kOpen || where_ == Where::kBetween;
    return texts ? next_.matched() : 0;
  }

 private:
  enum class Where { kOpen, kHeader, kBefore, kObject, kBetween };

  void BeginHeader() {
    where_ = Where::kHeader;
    header_.clear();
  }

  ReaderStep FeedOpen(char byte) {
    const NextText::Found found = next_.Feed(byte);
    if (found == NextText::Found::kNone) return ReaderStep::kFailed;
    if (found == NextText::Found::kText) BeginHeader();
    return ReaderStep::kMore;
  }

  ReaderStep FeedHeader(char byte) {
    if (byte == '{' || byte == '}' || byte == '"' ||
        header_.size() == kMaxHeaderBytes) {
      return ReaderStep::kFailed;
    }
    header_ += byte;
    if (!header_.ends_with(form_->named.arguments)) return ReaderStep::kMore;
    if (!SetName()) {
      header_.clear();
      return ReaderStep::kFailed;
    }
    where_ = Where::kBefore;
    return ReaderStep::kMore;
  }

  bool SetName() {
    const ToolCallForm::Named& named = form_->named;
    std::string_view name = header_;
    name.remove_suffix(named.arguments.size());
    if (const size_t at = name.rfind(named.name_after);
        !named.name_after.empty()) {
      if (at == name.npos) return false;
      name.remove_prefix(at + named.name_after.size());
    }
    if (!named.name_until.empty()) {
      name = name.substr(0, name.find(named.name_until));
    }
    name = Trimmed(name);
    if (named.indexed) name = NameOfIndexed(name);
    call_.name = name;
    return IsToolName(name);
  }

  ReaderStep FeedObject(char byte) {
    const JsonExtent::At at = extent_.Feed(byte);
    if (at == JsonExtent::At::kBad) return ReaderStep::kFailed;
    object_ += byte;
    if (at == JsonExtent::At::kInside) return ReaderStep::kMore;
    std::optional<std::string> arguments = ArgumentsText(object_);
    object_.clear();
    if (!arguments) return ReaderStep::kFailed;
    call_.arguments = *std::move(arguments);
    BeginBetween();
    return ReaderStep::kCall;
  }

  void BeginBetween() {
    where_ = Where::kBetween;
    const ToolCallForm::Named& named = form_->named;
    next_ = NextText({named.after[0], named.after[1], named.call, form_->end});
  }

  ReaderStep FeedBetween(char byte) {
    const NextText::Found found = next_.Feed(byte);
    if (found == NextText::Found::kMore) return ReaderStep::kMore;
    if (found == NextText::Found::kNone) return ReaderStep::kFailed;
    if (next_.which() == 3) return ReaderStep::kEnd;
    if (next_.which() == 2) {
      BeginHeader();
      return ReaderStep::kMore;
    }
    BeginBetween();
    return ReaderStep::kDropped;
  }

  const ToolCallForm* form_;
  Where where_ = Where::kOpen;
  NextText next_;
  std::string header_, object_;
  JsonExtent extent_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakeNamedReader(const ToolCallForm& form) {
  return std::make_unique<NamedReader>(form);
}

}  // namespace tarn
