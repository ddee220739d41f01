#include <algorithm>
#include <array>

#include "runtime/chat/tool_calls.h"
#include "runtime/chat/tool_forms/form.h"

namespace tarn {
namespace {

using Body = ToolCallForm::Body;

// The special tokens of DeepSeek's templates, with U+FF5C and U+2581.
#define TARN_DEEPSEEK(words) "<\xEF\xBD\x9C" words "\xEF\xBD\x9C>"
#define TARN_LOW "\xE2\x96\x81"
constexpr char kDeepSeekCalls[] =
    TARN_DEEPSEEK("tool" TARN_LOW "calls" TARN_LOW "begin");
constexpr char kDeepSeekCallsEnd[] =
    TARN_DEEPSEEK("tool" TARN_LOW "calls" TARN_LOW "end");
constexpr char kDeepSeekCall[] =
    TARN_DEEPSEEK("tool" TARN_LOW "call" TARN_LOW "begin");
constexpr char kDeepSeekCallEnd[] =
    TARN_DEEPSEEK("tool" TARN_LOW "call" TARN_LOW "end");
constexpr char kDeepSeekSeparator[] = TARN_DEEPSEEK("tool" TARN_LOW "sep");
constexpr char kDeepSeekFunction[] =
    TARN_DEEPSEEK("tool" TARN_LOW "call" TARN_LOW
                  "begin") "function" TARN_DEEPSEEK("tool" TARN_LOW "sep");
constexpr char kDeepSeekFenceEnd[] =
    "\n```" TARN_DEEPSEEK("tool" TARN_LOW "call" TARN_LOW "end");
#undef TARN_LOW
#undef TARN_DEEPSEEK

// What a template shows is looked for from the first row on: a text of a later
// row may be part of an earlier one's.
constexpr std::array kForms = {
    ToolCallForm{
        .name = "kimi",
        .shown_by = {"<|tool_calls_section_begin|>"},
        .body = Body::kNamed,
        .marks = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
        .end = "<|tool_calls_section_end|>",
        .written = {.open = "<|tool_calls_section_begin|>",
                    .before = "<|tool_call_begin|>functions.",
                    .middle = "<|tool_call_argument_begin|>",
                    .after = "<|tool_call_end|>",
                    .close = "<|tool_calls_section_end|>"},
        .named = {.call = "<|tool_call_begin|>",
                  .arguments = "<|tool_call_argument_begin|>",
                  .after = {"<|tool_call_end|>"},
                  .indexed = true}},
    ToolCallForm{.name = "deepseek-r1",
                 .shown_by = {kDeepSeekCalls},
                 .with = "```json",
                 .body = Body::kNamed,
                 .marks = {kDeepSeekCalls, kDeepSeekCall},
                 .end = kDeepSeekCallsEnd,
                 .written = {.open = kDeepSeekCalls,
                             .before = kDeepSeekFunction,
                             .middle = "\n```json\n",
                             .after = kDeepSeekFenceEnd,
                             .between = "\n",
                             .close = kDeepSeekCallsEnd},
                 .named = {.call = kDeepSeekCall,
                           .arguments = "```json",
                           .after = {"```", kDeepSeekCallEnd},
                           .name_after = kDeepSeekSeparator}},
    ToolCallForm{.name = "deepseek-v3.1",
                 .shown_by = {kDeepSeekCalls},
                 .body = Body::kNamed,
                 .marks = {kDeepSeekCalls, kDeepSeekCall},
                 .end = kDeepSeekCallsEnd,
                 .written = {.open = kDeepSeekCalls,
                             .before = kDeepSeekCall,
                             .middle = kDeepSeekSeparator,
                             .after = kDeepSeekCallEnd,
                             .close = kDeepSeekCallsEnd},
                 .named = {.call = kDeepSeekCall,
                           .arguments = kDeepSeekSeparator,
                           .after = {kDeepSeekCallEnd}}},
    ToolCallForm{.name = "seed",
                 .shown_by = {"<seed:tool_call>"},
                 .body = Body::kTagged,
                 .marks = {"<seed:tool_call>"},
                 .end = "</seed:tool_call>",
                 .written = {.before = "<seed:tool_call>\n<function=",
                             .middle = ">\n",
                             .after = "</function>\n</seed:tool_call>",
                             .between = "\n"},
                 .tagged = {.function = "<function=",
                            .name_end = ">",
                            .key = "<parameter=",
                            .key_end = ">",
                            .value_end = "</parameter>",
                            .call_end = "</function>"}},
    // Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5; some answers leave the first
    // mark out.
    ToolCallForm{.name = "function-tags",
                 .shown_by = {"<function="},
                 .with = "<parameter=",
                 .body = Body::kTagged,
                 .marks = {"<tool_call>", "<function="},
                 .end = "</tool_call>",
                 .written = {.before = "<tool_call>\n<function=",
                             .middle = ">\n",
                             .after = "</function>\n</tool_call>",
                             .between = "\n"},
                 .tagged = {.function = "<function=",
                            .name_end = ">",
                            .key = "<parameter=",
                            .key_end = ">",
                            .value_end = "</parameter>",
                            .call_end = "</function>",
                            .own_lines = true}},
    // GLM 4.5 and later, Ling.
    ToolCallForm{.name = "argument-tags",
                 .shown_by = {"<arg_key>"},
                 .with = "<tool_call>",
                 .body = Body::kTagged,
                 .marks = {"<tool_call>"},
                 .written = {.before = "<tool_call>",
                             .middle = "\n",
                             .after = "</tool_call>",
                             .between = "\n"},
                 .tagged = {.key = "<arg_key>",
                            .key_end = "</arg_key>",
                            .value = "<arg_value>",
                            .value_end = "</arg_value>",
                            .call_end = "</tool_call>"}},
    // Functionary 3.1, and Llama 3 asked for it.
    ToolCallForm{.name = "function-json",
                 .shown_by = {"<function="},
                 .with = "</function>",
                 .body = Body::kNamed,
                 .marks = {"<function="},
                 .end = "</function>",
                 .written = {.before = "<function=",
                             .middle = ">",
                             .after = "</function>",
                             .between = "\n"},
                 .named = {.arguments = ">"}},
    // LFM2, whose templates for the most part show the list of tools alone.
    ToolCallForm{.name = "lfm2",
                 .shown_by = {"<|tool_call_start|>", "<|tool_list_start|>",
                              "List of tools: ["},
                 .body = Body::kPythonic,
                 .marks = {"<|tool_call_start|>"},
                 .end = "<|tool_call_end|>",
                 .written = {.open = "<|tool_call_start|>[",
                             .before = "",
                             .middle = "(",
                             .after = ")",
                             .between = ", ",
                             .close = "]<|tool_call_end|>"}},
    ToolCallForm{.name = "mistral-named",
                 .shown_by = {"[TOOL_CALLS]"},
                 .with = "[ARGS]",
                 .body = Body::kNamed,
                 .marks = {"[TOOL_CALLS]"},
                 .written = {.before = "[TOOL_CALLS]", .middle = "[ARGS]"},
                 .named = {.call = "[TOOL_CALLS]",
                           .arguments = "[ARGS]",
                           .name_until = "[CALL_ID]"}},
    ToolCallForm{
        .name = "mistral",
        .shown_by = {"[TOOL_CALLS]"},
        .marks = {"[TOOL_CALLS]"},
        .written = {.open = "[TOOL_CALLS][", .between = ", ", .close = "]"}},
    ToolCallForm{.name = "nemotron",
                 .shown_by = {"<TOOLCALL>"},
                 .marks = {"<TOOLCALL>"},
                 .end = "</TOOLCALL>",
                 .written = {.open = "<TOOLCALL>[",
                             .between = ", ",
                             .close = "]</TOOLCALL>"}},
    // Apriel and Jamba (a list), MiniMax-M1 (a line each).
    ToolCallForm{.name = "tool-calls",
                 .shown_by = {"<tool_calls>"},
                 .marks = {"<tool_calls>"},
                 .end = "</tool_calls>",
                 .written = {.open = "<tool_calls>[",
                             .between = ", ",
                             .close = "]</tool_calls>"}},
    // Granite 3; its models also write the mark without bars.
    ToolCallForm{
        .name = "granite",
        .shown_by = {"<|tool_call|>"},
        .marks = {"<|tool_call|>", "<tool_call>"},
        .end = "</tool_call>",
        .written = {.open = "<|tool_call|>[", .between = ", ", .close = "]"}},
    // Hermes, Qwen 2.5 and 3, Granite 4, Falcon-H1.
    ToolCallForm{.name = "hermes",
                 .shown_by = {"<tool_call>"},
                 .with = "\"name",
                 .marks = {"<tool_call>"},
                 .end = "</tool_call>",
                 .written = {.before = "<tool_call>\n",
                             .after = "\n</tool_call>",
                             .between = "\n"}},
    ToolCallForm{.name = "llama3",
                 .shown_by = {"<|python_tag|>",
                              "\"parameters\": dictionary of argument name"},
                 .marks = {"<|python_tag|>"},
                 .written = {.between = "; "},
                 .objects = {.without_mark = true,
                             .semicolons = true,
                             .arguments = "parameters"}},
};

bool ShowsForm(std::string_view source, const ToolCallForm& form) {
  const auto has = [&](std::string_view text) {
    return !text.empty() && source.find(text) != source.npos;
  };
  return std::any_of(form.shown_by.begin(), form.shown_by.end(), has) &&
         (form.with.empty() || has(form.with));
}

}  // namespace

std::span<const ToolCallForm> ToolCallForms() { return kForms; }

const ToolCallForm* ToolCallFormOf(std::string_view template_source) {
  const auto found = std::find_if(
      kForms.begin(), kForms.end(),
      [&](const ToolCallForm& f) { return ShowsForm(template_source, f); });
  return found == kForms.end() ? nullptr : &*found;
}

const ToolCallForm* ToolCallFormOf(const ChatFormat& format) {
  return ToolCallFormOf(std::string_view(format.source));
}

}  // namespace tarn
