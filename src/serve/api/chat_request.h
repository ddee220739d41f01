// From a conversation in a request to a prompt, and from an answer to its
// parts. Included by .cc files only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/chat/tool_calls.h"
#include "serve/api/reply.h"
#include "text/template/chat.h"

namespace tarn::serve {

/// What must be known to read an answer.
struct AnswerForm {
  bool thinks = false;  // the prompt ends within its thinking
  const ToolCallForm* tool_calls = nullptr;  // null: none are looked for
  Json tools;                                // their schemas, or null
  bool several_calls = true;                 // else only the first one counts
};

struct ChatPrompt {
  std::vector<int32_t> ids;
  AnswerForm answer;
};

/// Renders a conversation as the model's template does, ready for an answer,
/// and adds where answers end to the options. Throws FormatError with the
/// field's path; for a model without a template, too.
ChatPrompt PromptOfChat(Chat chat, const std::string& where,
                        const ServedModel& model, TextOptions& options);
/// The same of a request's messages, tools, tool_choice and
/// chat_template_kwargs. text: the document, which has the order of its
/// members. An answer that must be a call gets a grammar.
ChatPrompt ReadChatPrompt(const JsonObject& request, const std::string& text,
                          const ServedModel& model, TextOptions& options);

/// A reply whose texts are answers: thinking and tool calls are told apart.
class AnswerReply : public Reply {
 public:
  AnswerReply(ServedModel& model, TextOptions options, Response response,
              AnswerForm form);

 protected:
  void OnBytes(ReplyChoice& choice, std::string_view bytes) override;
  void OnLast(ReplyChoice& choice) override;

 private:
  struct Splitters {
    ThinkingSplitter thinking;
    ToolCallSplitter calls;
  };
  Splitters& Of(const ReplyChoice& choice);
  void OnPart(ReplyChoice& choice, AnswerPart part, std::string_view bytes);
  void OnText(ReplyChoice& choice, std::string_view bytes);
  void OnCall(ReplyChoice& choice, const ToolCallPart& call);

  const AnswerForm form_;
  std::vector<std::unique_ptr<Splitters>> splitters_;  // by choice
};

}  // namespace tarn::serve
