#include "serve/api/chat_request.h"

#include <chrono>
#include <ctime>
#include <utility>

#include "runtime/chat/forced_calls.h"
#include "runtime/chat/openai_chat.h"
#include "text/template/ordered_json.h"

namespace tarn::serve {
namespace {

// For templates that write the date: the same for all requests of a day, so
// that what they share is found again.
CalendarTime Today() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, 0, 0, 0};
}

// The grammar of an answer that must be a call.
void ForceCalls(const ToolChoice& choice, const JsonObject& request,
                const ServedModel& model, const AnswerForm& answer,
                TextOptions& options) {
  const bool one = choice.mode == ToolChoice::Mode::kFunction;
  if (!one && choice.mode != ToolChoice::Mode::kRequired) return;
  if (answer.tool_calls == nullptr) {
    throw UnsupportedParameter(
        request.At("tool_choice"),
        "auto or none, as the model's template shows no form of calls");
  }
  const std::string source =
      ForcedCallsGrammar(*answer.tool_calls, answer.tools,
                         {.function = choice.function,
                          .several = answer.several_calls && !one,
                          .thinks = answer.thinks},
                         request.At("tools"));
  options.sequence.constraint = model.constraints->Get(
      GrammarKind::kParts, source, options.sequence.stop_tokens, "");
}

}  // namespace

ChatPrompt PromptOfChat(Chat chat, const std::string& where,
                        const ServedModel& model, TextOptions& options) {
  if (!model.format) {
    throw FormatError(where, "a model with a chat template",
                      "one without (/v1/completions serves it)");
  }
  ChatPrompt prompt;
  chat.add_generation_prompt = true;
  if (!chat.tools.is_null()) {
    prompt.answer.tools = chat.tools;
    prompt.answer.tool_calls = ToolCallFormOf(*model.format);
  }
  RenderOptions render;
  render.now = Today();
  const Result<RenderedText> rendered =
      model.format->Render(std::move(chat), render);
  if (!rendered.ok()) {
    throw FormatError(where, rendered.error().wanted(),
                      rendered.error().given());
  }
  Result<std::vector<int32_t>> ids =
      EncodeRendered(model.loaded.tokenizer, rendered.value());
  if (!ids.ok()) {
    throw FormatError(where, ids.error().wanted(), ids.error().given());
  }
  prompt.ids = std::move(ids).Take();
  if (prompt.ids.empty()) throw FormatError(where, "a text", "an empty one");
  prompt.answer.thinks = EndsThinking(rendered.value());
  SequenceOptions& sequence = options.sequence;
  sequence.begins_text = true;
  sequence.stop_tokens.insert(sequence.stop_tokens.end(),
                              model.ends.tokens.begin(),
                              model.ends.tokens.end());
  sequence.stop_texts.insert(sequence.stop_texts.end(),
                             model.ends.texts.begin(), model.ends.texts.end());
  return prompt;
}

ChatPrompt ReadChatPrompt(const JsonObject& request, const std::string& text,
                          const ServedModel& model, TextOptions& options) {
  const Json ordered =
      ParseOrderedJson(text, "request", kMaxRequestBytes).Take();
  OpenAiChat chat = ChatOfOpenAi(request.value(), &ordered);
  ChatPrompt prompt = PromptOfChat(std::move(chat.chat), request.At("messages"),
                                   model, options);
  prompt.answer.several_calls = chat.parallel_tool_calls;
  ForceCalls(chat.tool_choice, request, model, prompt.answer, options);
  return prompt;
}

AnswerReply::AnswerReply(ServedModel& model, TextOptions options,
                         Response response, AnswerForm form)
    : Reply(model, std::move(options), std::move(response)),
      form_(std::move(form)) {}

AnswerReply::Splitters& AnswerReply::Of(const ReplyChoice& choice) {
  const auto index = static_cast<size_t>(&choice - choices_.data());
  splitters_.resize(std::max(splitters_.size(), index + 1));
  if (splitters_[index] == nullptr) {
    splitters_[index] = std::make_unique<Splitters>(
        Splitters{ThinkingSplitter(form_.thinks),
                  ToolCallSplitter(form_.tool_calls, form_.tools)});
  }
  return *splitters_[index];
}

void AnswerReply::OnBytes(ReplyChoice& choice, std::string_view bytes) {
  Of(choice).thinking.Push(bytes, [&](AnswerPart part, std::string_view text) {
    OnPart(choice, part, text);
  });
}

void AnswerReply::OnPart(ReplyChoice& choice, AnswerPart part,
                         std::string_view bytes) {
  if (part == AnswerPart::kThinking) {
    choice.thinking += bytes;
    choice.unsent_thinking += bytes;
    return;
  }
  Of(choice).calls.Push(
      bytes, [&](std::string_view text) { OnText(choice, text); },
      [&](const ToolCallPart& call) { OnCall(choice, call); });
}

void AnswerReply::OnText(ReplyChoice& choice, std::string_view bytes) {
  choice.text += bytes;
  choice.unsent_text += bytes;
}

void AnswerReply::OnCall(ReplyChoice& choice, const ToolCallPart& call) {
  if (!form_.several_calls && !choice.tool_calls.empty()) return;
  const Json json = {
      {"id", StrCat("call_", id_, "_", choice.tool_calls.size())},
      {"type", "function"},
      {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  choice.tool_calls.push_back(json);
  choice.unsent_tool_calls.push_back(json);
}

void AnswerReply::OnLast(ReplyChoice& choice) {
  Splitters& splitters = Of(choice);
  splitters.thinking.Finish([&](AnswerPart part, std::string_view text) {
    OnPart(choice, part, text);
  });
  splitters.calls.Finish([&](std::string_view text) { OnText(choice, text); });
}

}  // namespace tarn::serve
