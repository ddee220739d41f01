// `tarn chat`: a conversation in the terminal, or over pipes.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/chat/chat_commands.h"
#include "cli/chat/chat_input.h"
#include "cli/chat/chat_screen.h"
#include "cli/cli.h"
#include "cli/console/parse.h"
#include "cli/console/sampling.h"
#include "cli/console/seed.h"
#include "cli/console/signals.h"
#include "cli/generate/session_run.h"
#include "runtime/chat/chat_session.h"

namespace tarn::cli {
namespace {

struct ChatFlags {
  std::string dir, system, template_path, speculate = kNoGuesses;
  ModelFlags model;
  ChatOptions chat;
  SamplingLists sampling;
  bool hide_thinking = false, no_thinking = false;
  int64_t seed = -1;
};

constexpr char kChatFooter[] =
    "A line is a message; one that ends in a backslash continues on the next "
    "line,\n"
    "and the lines between two lines of \"\"\" are one message. Only answers "
    "go to\n"
    "stdout. Ctrl-C ends an answer, of which what was written is kept; Ctrl-D "
    "or\n"
    "/quit ends the chat. Nothing that the model has read is read again: its "
    "state\n"
    "stays from turn to turn.\n\n"
    "The directory needs a chat template: chat_template.jinja, or "
    "chat_template in\n"
    "tokenizer_config.json. An answer ends at the tokens that "
    "generation_config.json\n"
    "names, and at what the template writes after an answer.\n\n"
    "Commands:\n";

constexpr char kChatExamples[] =
    "\nExamples:\n"
    "  tarn chat path/to/model\n"
    "  tarn chat path/to/model --system 'Answer in one sentence.'\n"
    "  echo 'What is a fixed point?' | tarn chat path/to/model\n"
    "  tarn chat models/demo --template plain.jinja --max-tokens 200\n";

void DeclareChat(ArgumentParser& parser, ChatFlags& flags) {
  parser.Add("DIR", flags.dir, "model directory or GGUF file").Required();
  parser.Add("--system", flags.system, "system message to begin with");
  parser.Add("--template", flags.template_path,
             "chat template, instead of the directory's");
  parser
      .Add("--max-tokens", flags.chat.max_tokens,
           "most tokens of an answer, thinking included")
      .Whole(1, INT64_MAX)
      .ShowDefault();
  DeclareSampling(parser, flags.sampling, flags.chat.sampler);
  parser
      .Add("--stop", flags.chat.stop_texts,
           "end an answer before this text appears; may be given several "
           "times")
      .OneEachTime();
  parser.AddFlag("--hide-thinking", flags.hide_thinking,
                 "do not show what is between <think> and </think>");
  parser.AddFlag("--no-thinking", flags.no_thinking,
                 "ask the template for answers without thinking "
                 "(enable_thinking)");
  parser
      .Add("--speculate", flags.speculate,
           "draft tokens for answers, which they do not change: off; ngram "
           "(what the conversation repeats); mtp (the model's extra prediction "
           "head); or the directory of a small model with the same tokenizer")
      .ShowDefault();
  DeclareSeed(parser, flags.seed);
  DeclareModelFlags(parser, flags.model);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kChatFooter + ChatCommandHelp() + kChatExamples);
}

// The time at the start of the chat: were it to change, a template that writes
// it would change what has been read.
CalendarTime LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
          local.tm_hour,        local.tm_min,     local.tm_sec};
}

class ChatLoop {
 public:
  ChatLoop(ChatSession session, ChatOptions options, bool hide_thinking)
      : branches_(std::move(session)),
        options_(std::move(options)),
        screen_(hide_thinking) {}

  ChatSession& session() { return branches_.current(); }

  // Returns the exit code.
  int Run() {
    if (input_.terminal()) {
      std::fputs("/help shows the commands, Ctrl-D ends.\n", stderr);
    }
    for (;;) {
      const auto message = input_.Next();
      if (PendingSignal() != 0) {
        if (!Continues()) return SignalExitCode(PendingSignal());
        std::fputs("\n/quit or Ctrl-D ends.\n", stderr);
        continue;
      }
      if (!message) break;
      if (message->text.empty() && !message->literal) continue;
      try {
        if (!Take(*message)) break;
      } catch (const Error& error) {
        // A script must not continue as if nothing had happened.
        if (!input_.terminal()) throw;
        std::fprintf(stderr, "%s\n", error.what());
      }
      if (PendingSignal() == 0) continue;
      if (PendingSignal() != SIGINT) return SignalExitCode(PendingSignal());
      ForgetInterrupt();
    }
    if (input_.terminal()) std::fputc('\n', stderr);
    return kExitOk;
  }

 private:
  // Whether a signal at the prompt is taken back.
  bool Continues() {
    if (PendingSignal() != SIGINT || !input_.terminal()) return false;
    ForgetInterrupt();
    return true;
  }

  // False where the chat ends.
  bool Take(const ChatInput::Message& message) {
    if (!message.literal && message.text.starts_with('/')) {
      return branches_.Run(message.text, last_);
    }
    bool reader = true;
    last_ = session().Say(
        message.text, options_,
        [&](AnswerPart part, std::string_view bytes) {
          reader = screen_.Show(part, bytes);
          return reader;
        },
        [] { return PendingSignal() != 0; });
    if (!last_.answered) {
      std::fputs("stopped; the message was taken back\n", stderr);
      return true;
    }
    screen_.EndAnswer();
    if (last_.end == SequenceEnd::kBudget) {
      std::fputs("(ended after --max-tokens)\n", stderr);
    } else if (last_.end == SequenceEnd::kNone && reader) {
      std::fputs("(stopped)\n", stderr);
    }
    return reader;
  }

  ChatBranches branches_;
  ChatOptions options_;
  ChatInput input_;
  ChatScreen screen_;
  ChatTurn last_;
};

}  // namespace

int Chat(int argc, char** argv) {
  ChatFlags flags;
  ArgumentParser parser("Talks with a model that has a chat template.",
                        "tarn chat");
  DeclareChat(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  FinishSampling(parser, flags.sampling, flags.chat.sampler);
  const StopTexts checked(flags.chat.stop_texts);
  const ModelPath path(flags.dir);
  const LoadedModel opened = OpenModelPath(path, flags.model.Options());
  const ModelConfig& config = opened.model.config();
  if (config.task == Task::kImage || config.arch != Arch::kDecoder) {
    throw ExitError(kExitBadModel,
                    StrCat(flags.dir, ": want a language model, got another"));
  }
  Result<ChatFormat> format = flags.template_path.empty()
                                  ? ChatFormat::Open(path)
                                  : ChatFormat::Open(path, flags.template_path);
  if (!format.ok()) throw ExitError(kExitBadModel, format.error().what());
  UseDefaultSampling(parser, opened.defaults, flags.chat.sampler);
  flags.chat.sampler.seed = ChooseSeed(flags.seed);
  flags.chat.render.now = LocalTime();
  if (flags.no_thinking) flags.chat.variables["enable_thinking"] = false;
  const Drafts drafts =
      OpenDrafts(flags.speculate, opened, flags.model.Options());
  std::function<std::unique_ptr<DraftSource>()> make;
  if (!drafts.none()) make = [&drafts] { return drafts.Make(); };
  ChatLoop loop(ChatSession(opened, std::move(format).Take(), make), flags.chat,
                flags.hide_thinking);
  loop.session().SetSystem(flags.system);
  return loop.Run();
}

}  // namespace tarn::cli
