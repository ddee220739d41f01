// A name and parameters between tags, whose values are written without quotes.
#include <set>
#include <utility>

#include "runtime/chat/tool_forms/json_extent.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

class TaggedReader final : public ToolCallReader {
 public:
  TaggedReader(const ToolCallForm& form, ToolSchemas schemas)
      : tags_(form.tagged), form_(&form), schemas_(std::move(schemas)) {}

  void Begin(size_t mark) override {
    if (tags_.function.empty() || form_->marks[mark] == tags_.function) {
      BeginName();
    } else {
      Expect(Where::kOpen, {tags_.function});
    }
  }

  ReaderStep Feed(char byte) override {
    switch (where_) {
      case Where::kName:
        return FeedName(byte);
      case Where::kKey:
        return FeedKey(byte);
      case Where::kValue:
        return FeedValue(byte);
      case Where::kAfterValue:
        return FeedAfterValue(byte);
      default:
        return FeedTag(byte);
    }
  }

  size_t Tail() const override {
    const bool tag = where_ != Where::kName && where_ != Where::kKey &&
                     where_ != Where::kValue && where_ != Where::kAfterValue;
    return tag ? next_.matched() : 0;
  }

 private:
  enum class Where {
    kOpen,  // before the tag of a function
    kName,  // of the function
    kNameEnd,
    kParameters,  // before a key's tag, or the end of the call
    kKey,
    kKeyEnd,
    kValueBegin,
    kValue,
    kAfterValue,  // within kValue, after what may be its end
    kBetween,     // calls
  };

  void Expect(Where where, std::initializer_list<std::string_view> texts) {
    where_ = where;
    next_ = NextText(texts);
  }

  void BeginName() {
    where_ = Where::kName;
    call_.name.clear();
    arguments_.clear();
    keys_.clear();
  }

  void BeginKey() {
    where_ = Where::kKey;
    key_.clear();
  }

  void BeginValue() {
    where_ = Where::kValue;
    value_.clear();
  }

  ReaderStep FeedName(char byte) {
    const bool white = IsWhite(byte);
    if (white && call_.name.empty()) return ReaderStep::kMore;
    if (!white && byte != '<' && byte != '>') {
      if (call_.name.size() == kMaxToolNameBytes) return ReaderStep::kFailed;
      call_.name += byte;
      return ReaderStep::kMore;
    }
    if (!IsToolName(call_.name)) return ReaderStep::kFailed;
    if (tags_.name_end.empty()) {
      Expect(Where::kParameters, {tags_.key, tags_.call_end});
    } else {
      Expect(Where::kNameEnd, {tags_.name_end});
    }
    return FeedTag(byte);
  }

  ReaderStep FeedKey(char byte) {
    if (byte != '<' && byte != '>') {
      if (key_.size() == kMaxToolNameBytes) return ReaderStep::kFailed;
      key_ += byte;
      return ReaderStep::kMore;
    }
    key_ = std::string(Trimmed(key_));
    if (key_.empty()) return ReaderStep::kFailed;
    Expect(Where::kKeyEnd, {tags_.key_end});
    return FeedTag(byte);
  }

  ReaderStep FeedTag(char byte) {
    const NextText::Found found = next_.Feed(byte);
    if (found == NextText::Found::kMore) return ReaderStep::kMore;
    if (found == NextText::Found::kNone) return ReaderStep::kFailed;
    switch (where_) {
      case Where::kOpen:
        BeginName();
        break;
      case Where::kNameEnd:
        Expect(Where::kParameters, {tags_.key, tags_.call_end});
        break;
      case Where::kParameters:
        if (next_.which() == 1) return Complete();
        BeginKey();
        break;
      case Where::kKeyEnd:
        if (tags_.value.empty()) {
          BeginValue();
        } else {
          Expect(Where::kValueBegin, {tags_.value});
        }
        break;
      case Where::kValueBegin:
        BeginValue();
        break;
      default:  // kBetween
        if (next_.which() == 1) return ReaderStep::kEnd;
        BeginName();
        break;
    }
    return ReaderStep::kMore;
  }

  ReaderStep FeedValue(char byte) {
    value_ += byte;
    if (!value_.ends_with(tags_.value_end)) return ReaderStep::kMore;
    value_size_ = value_.size() - tags_.value_end.size();
    Expect(Where::kAfterValue, {tags_.key, tags_.call_end, form_->end});
    return ReaderStep::kMore;
  }

  // A value may have the text of its end tag within it: the tag counts where
  // another parameter or the end of the call follows.
  ReaderStep FeedAfterValue(char byte) {
    const NextText::Found found = next_.Feed(byte);
    if (found == NextText::Found::kNone) {
      where_ = Where::kValue;
      return FeedValue(byte);
    }
    value_ += byte;
    if (found == NextText::Found::kMore) return ReaderStep::kMore;
    if (!AddArgument()) return ReaderStep::kFailed;
    if (next_.which() != 0) return Complete();
    BeginKey();
    return ReaderStep::kMore;
  }

  // False for a second value of a parameter.
  bool AddArgument() {
    std::string_view value = std::string_view(value_).substr(0, value_size_);
    if (tags_.own_lines && value.starts_with('\n')) value.remove_prefix(1);
    if (tags_.own_lines && value.ends_with('\n')) value.remove_suffix(1);
    if (!keys_.insert(key_).second) return false;
    if (!arguments_.empty()) arguments_ += ", ";
    arguments_ += JsonString(key_) + ": ";
    arguments_ += TypedArgument(schemas_.TypesOf(call_.name, key_), value);
    value_.clear();
    return true;
  }

  ReaderStep Complete() {
    call_.arguments = "{" + arguments_ + "}";
    arguments_.clear();
    Expect(Where::kBetween, {tags_.function, form_->end});
    return ReaderStep::kCall;
  }

  const ToolCallForm::Tagged tags_;
  const ToolCallForm* form_;
  ToolSchemas schemas_;
  Where where_ = Where::kOpen;
  NextText next_;
  std::string key_, value_, arguments_;
  size_t value_size_ = 0;  // without the end tag and what follows it
  std::set<std::string> keys_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakeTaggedReader(const ToolCallForm& form,
                                                 ToolSchemas schemas) {
  return std::make_unique<TaggedReader>(form, std::move(schemas));
}

}  // namespace tarn
