#include "runtime/chat/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

std::unique_ptr<ToolCallReader> ReaderOf(const ToolCallForm* form,
                                         const nlohmann::ordered_json& tools) {
  if (form == nullptr) return nullptr;
  switch (form->body) {
    case ToolCallForm::Body::kObjects:
      return MakeObjectReader(*form, ToolSchemas(tools));
    case ToolCallForm::Body::kNamed:
      return MakeNamedReader(*form);
    case ToolCallForm::Body::kTagged:
      return MakeTaggedReader(*form, ToolSchemas(tools));
    case ToolCallForm::Body::kPythonic:
      return MakePythonicReader(*form, ToolSchemas(tools));
  }
  return nullptr;
}

}  // namespace

ToolCallSplitter::ToolCallSplitter(const ToolCallForm* form)
    : ToolCallSplitter(form, nlohmann::ordered_json()) {}

ToolCallSplitter::ToolCallSplitter(const ToolCallForm* form,
                                   const nlohmann::ordered_json& tools)
    : form_(form), reader_(ReaderOf(form, tools)) {}

ToolCallSplitter::~ToolCallSplitter() = default;
ToolCallSplitter::ToolCallSplitter(ToolCallSplitter&&) noexcept = default;
ToolCallSplitter& ToolCallSplitter::operator=(ToolCallSplitter&&) noexcept =
    default;

void ToolCallSplitter::Tell(const TextSink& on_text) {
  if (settled_.empty()) return;
  const std::string text = std::exchange(settled_, {});
  on_text(text);
}

// One byte of text, in order.
void ToolCallSplitter::Settle(char byte) {
  if (IsWhite(byte)) {
    if (after_call_) return;
    white_ += byte;
    if (white_.size() <= kMaxHeldWhiteBytes) return;
    settled_ += std::exchange(white_, {});
    return;
  }
  settled_ += std::exchange(white_, {});
  settled_ += byte;
  after_call_ = at_start_ = false;
}

// Whether mark_ is a mark: then a call has begun. Bytes that no mark begins
// with are settled, so that the rest of mark_ begins one.
bool ToolCallSplitter::Begins() {
  while (!mark_.empty()) {
    bool open = false;
    for (size_t i = 0; i < form_->marks.size(); ++i) {
      const std::string_view mark = form_->marks[i];
      if (mark.empty() || !mark.starts_with(mark_)) continue;
      open = true;
      if (mark.size() != mark_.size()) continue;
      held_ = std::exchange(white_, {}) + std::exchange(mark_, {});
      reader_->Begin(i);
      return true;
    }
    if (open) return false;
    Settle(mark_.front());
    mark_.erase(0, 1);
  }
  return false;
}

void ToolCallSplitter::TakeText(char byte) {
  if (byte == '{' && at_start_ && mark_.empty() &&
      form_->objects.without_mark) {
    held_ = std::exchange(white_, {}) + byte;
    reader_->Begin(form_->marks.size());
    reader_->Feed(byte);
    in_call_ = true;
    return;
  }
  mark_ += byte;
  in_call_ = Begins();
}

// Puts into `next` what must be read again, as text.
void ToolCallSplitter::TakeCall(char byte, std::string& next,
                                const TextSink& on_text,
                                const CallSink& on_call) {
  const ReaderStep step = reader_->Feed(byte);
  if (step == ReaderStep::kMore) {
    held_ += byte;
    if (held_.size() <= kMaxToolCallBytes) return;
  }
  in_call_ = step == ReaderStep::kDropped || step == ReaderStep::kCall;
  size_t text = 0;
  if (step == ReaderStep::kMore) {
    text = held_.size();
  } else if (step == ReaderStep::kFailed) {
    text = held_.size() - std::min(reader_->Tail(), held_.size());
    next.insert(0, held_.substr(text) + byte);
  }
  for (const char settled : held_.substr(0, text)) Settle(settled);
  held_.clear();
  if (step != ReaderStep::kCall) return;
  Tell(on_text);
  after_call_ = true;
  at_start_ = false;
  ToolCallPart call = std::exchange(reader_->call(), {});
  call.index = calls_++;
  on_call(call);
}

void ToolCallSplitter::Push(std::string_view bytes, const TextSink& on_text,
                            const CallSink& on_call) {
  if (form_ == nullptr) {
    if (!bytes.empty()) on_text(bytes);
    return;
  }
  std::string next;
  for (const char byte : bytes) {
    char first = byte;
    // A failure gives back at most a mark's bytes and settles one or ends a
    // call: this ends, after some 60 steps for each byte of the answer.
    while (true) {
      if (in_call_) {
        TakeCall(first, next, on_text, on_call);
      } else {
        TakeText(first);
      }
      if (next.empty()) break;
      first = next.front();
      next.erase(0, 1);
    }
  }
  Tell(on_text);
}

void ToolCallSplitter::Finish(const TextSink& on_text) {
  for (const char byte : std::exchange(held_, {})) Settle(byte);
  for (const char byte : std::exchange(mark_, {})) Settle(byte);
  settled_ += std::exchange(white_, {});
  in_call_ = false;
  Tell(on_text);
}

}  // namespace tarn
