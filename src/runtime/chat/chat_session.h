// A conversation with a model: its messages, and the state that has read them,
// kept from turn to turn so that what has been read is not read again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/thinking.h"
#include "runtime/generate/generate.h"
#include "runtime/session/draft.h"
#include "runtime/session/session.h"
#include "text/template/chat_format.h"

namespace tarn {

struct ChatOptions {
  SamplerOptions sampler;
  int64_t max_tokens = 2048;  // of an answer; fewer where positions end
  std::vector<std::string> stop_texts;  // besides those of the template
  RenderOptions render;
  /// More variables of the template, an object or null: enable_thinking, ...
  nlohmann::ordered_json variables;
};

/// Bytes of the states that a conversation keeps for going back to; the oldest
/// are dropped first, the latest is always kept.
inline constexpr int64_t kMaxSavedStateBytes = int64_t{1} << 30;

/// Figures of one answer.
struct ChatTurn {
  int64_t prompt_tokens = 0;  // of the conversation, up to the answer
  int64_t read_tokens = 0;    // of them, that were not in the state
  int64_t tokens = 0;         // of the answer
  double prefill_ms = 0, first_token_ms = 0, decode_ms = 0;
  SequenceEnd end = SequenceEnd::kNone;  // none where it was stopped
  bool answered = false;  // false: stopped before the first token, and the
                          // message was taken back
};

/// What is shown as it comes; false ends the answer.
using AnswerSink = std::function<bool(AnswerPart, std::string_view)>;

/// Refers to the model. One thread at a time.
class ChatSession {
 public:
  /// drafts: makes what Session::Speculate takes, also for forks and what is
  /// loaded; none: no draft tokens. Throws ArgumentError for a model that
  /// writes no text.
  ChatSession(const LoadedModel& model, ChatFormat format,
              std::function<std::unique_ptr<DraftSource>()> drafts = {});
  ChatSession(ChatSession&&) noexcept = default;
  ChatSession& operator=(ChatSession&&) noexcept = default;

  /// Adds a user's message and the model's answer. The ids of the conversation
  /// are compared with those that the state has read, and reading continues
  /// where they first differ, from the nearest state kept: after each message
  /// and each answer one is, and others between them (Snapshots). An answer
  /// that a special token of the template follows is never read again, whatever
  /// its text's own ids would be. Stopped within the answer, that much of it is
  /// kept. Throws what the template, the tokenizer or the model refuse, with
  /// the conversation unchanged.
  ChatTurn Say(const std::string& text, const ChatOptions& options,
               const AnswerSink& sink, const StopCheck& stop = {});

  /// Takes the last message and its answer away; false where there is none.
  bool Undo();
  /// A copy that continues by itself. It shares the states kept. O(state).
  ChatSession Fork() const;
  /// The first message with the role system; "" for none. From the next answer
  /// on.
  void SetSystem(const std::string& text);

  const std::vector<ChatMessage>& messages() const { return messages_; }
  int64_t turns() const;  // messages of the user
  /// Tokens that the state has read, and its bytes.
  int64_t position() const { return session_.position(); }
  int64_t state_bytes() const { return session_.state_bytes(); }
  int64_t saved_bytes() const { return session_.snapshot_bytes(); }
  SpeculationCounts speculation() const { return session_.speculation(); }

  /// Writes the messages to a file (JSON) and the state to `path`.state: that
  /// of the conversation, or after an Undo the nearest one kept before it.
  /// Throws IoError, or NumericError for a state that holds NaN.
  void Save(const std::string& path) const;
  /// Replaces the conversation by that of a file. Returns why `path`.state was
  /// not used, so that the messages will be read again; nothing where it was.
  /// Throws FormatError or IoError with the conversation unchanged.
  std::optional<std::string> Load(const std::string& path);

 private:
  // The text that session_ has read: a prompt as it was rendered, and what was
  // drawn.
  struct ReadText {
    std::string prompt;
    std::vector<ByteRange> data;  // of the prompt
    std::string answer;
  };

  Session SessionAt(const State& state, std::vector<int32_t> tokens) const;
  std::vector<int32_t> IdsOf(const RenderedText& text) const;
  int64_t GoBackTo(std::span<const int32_t> ids, const StopCheck& stop);
  int64_t NextStart() const;
  GenerateOptions OptionsFor(const ChatOptions& options,
                             int64_t prompt_tokens) const;
  bool Read(std::span<const int32_t> ids, const StopCheck& stop,
            ChatTurn& turn);
  ChatTurn Answer(const RenderedText& text, const ChatOptions& options,
                  const AnswerSink& sink, const StopCheck& stop);

  const LoadedModel* model_;
  ChatFormat format_;
  std::vector<ChatMessage> messages_;
  std::function<std::unique_ptr<DraftSource>()> drafts_;
  Session session_;
  std::optional<ReadText> read_;  // empty: not known
};

}  // namespace tarn
