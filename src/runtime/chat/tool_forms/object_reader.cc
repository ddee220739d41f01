// {"name": ..., "arguments": {...}}: one, several in a row, or a list.
#include <array>
#include <utility>

#include "runtime/chat/tool_forms/json_extent.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

// An object whose first member has another name is no call: an answer that is
// JSON is held back no longer than that.
bool BeginsCall(std::string_view key) {
  for (const char* known : {"name", "arguments", "parameters", "function",
                            "type", "id", "tool_call_id"}) {
    if (key == known) return true;
  }
  return false;
}

class ObjectReader final : public ToolCallReader {
 public:
  ObjectReader(const ToolCallForm& form, ToolSchemas schemas)
      : form_(&form), schemas_(std::move(schemas)) {}

  void Begin(size_t mark) override {
    where_ = Where::kFirst;
    in_list_ = closed_ = false;
    without_mark_ = mark == form_->marks.size();
    end_ = NextText({form_->end});
  }

  ReaderStep Feed(char byte) override {
    switch (where_) {
      case Where::kFirst:
        if (byte == '[' && !without_mark_) {
          in_list_ = true;
          where_ = Where::kItem;
          return ReaderStep::kMore;
        }
        return FeedItem(byte);
      case Where::kItem:
        return FeedItem(byte);
      case Where::kObject:
        return FeedObject(byte);
      case Where::kBetween:
        return FeedBetween(byte);
    }
    return ReaderStep::kFailed;
  }

  size_t Tail() const override {
    return where_ == Where::kBetween ? end_.matched() : 0;
  }

 private:
  enum class Where { kFirst, kItem, kObject, kBetween };

  ReaderStep FeedItem(char byte) {
    if (IsWhite(byte)) return ReaderStep::kMore;
    if (byte != '{') return ReaderStep::kFailed;
    where_ = Where::kObject;
    object_.clear();
    extent_ = JsonExtent();
    key_begin_ = 0;
    key_known_ = false;
    return FeedObject(byte);
  }

  ReaderStep FeedObject(char byte) {
    const JsonExtent::At at = extent_.Feed(byte);
    if (at == JsonExtent::At::kBad) return ReaderStep::kFailed;
    object_ += byte;
    if (at == JsonExtent::At::kEnd) return Complete();
    if (!key_known_ && !CheckFirstKey()) return ReaderStep::kFailed;
    return ReaderStep::kMore;
  }

  // After each byte of the object until its first key is complete.
  bool CheckFirstKey() {
    const char byte = object_.back();
    if (object_.size() == 1) return true;
    if (key_begin_ == 0) {
      if (byte == '"') key_begin_ = object_.size();
      return byte == '"' || IsWhite(byte);
    }
    if (byte != '"') return object_.size() - key_begin_ <= kLongestKey;
    key_known_ = true;
    return BeginsCall(std::string_view(object_).substr(
        key_begin_, object_.size() - 1 - key_begin_));
  }

  ReaderStep Complete() {
    std::optional<ToolCallPart> call = CallOfObject(object_);
    object_.clear();
    if (!call || (without_mark_ && !schemas_.Has(call->name))) {
      return ReaderStep::kFailed;
    }
    call_ = *std::move(call);
    where_ = Where::kBetween;
    end_ = NextText({form_->end});
    return ReaderStep::kCall;
  }

  ReaderStep FeedBetween(char byte) {
    if (end_.matched() == 0 && !IsWhite(byte)) {
      if (in_list_ && byte == ',') {
        where_ = Where::kItem;
        return ReaderStep::kMore;
      }
      if (in_list_ && byte == ']') {
        in_list_ = false;
        closed_ = true;
        return ReaderStep::kDropped;
      }
      if (!in_list_ && !closed_ && byte == '{') return FeedItem(byte);
      if (form_->objects.semicolons && byte == ';') {
        where_ = Where::kItem;
        return ReaderStep::kMore;
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

  static constexpr size_t kLongestKey = 16;  // that begins a call

  const ToolCallForm* form_;
  ToolSchemas schemas_;
  Where where_ = Where::kFirst;
  bool in_list_ = false, closed_ = false, without_mark_ = false;
  JsonExtent extent_;
  std::string object_;
  size_t key_begin_ = 0;  // of the first key in object_, after its quote
  bool key_known_ = false;
  NextText end_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakeObjectReader(const ToolCallForm& form,
                                                 ToolSchemas schemas) {
  return std::make_unique<ObjectReader>(form, std::move(schemas));
}

}  // namespace tarn
