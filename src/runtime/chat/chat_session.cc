#include "runtime/chat/chat_session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "runtime/chat/turn_end.h"
#include "runtime/generate/generate_session.h"
#include "runtime/model/elapsed.h"
#include "text/utf8.h"

namespace tarn {
namespace {

size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most),
                    b.begin())
          .first -
      a.begin());
}

std::vector<ByteRange> DataOf(const RenderedText& text) {
  std::vector<ByteRange> data;
  size_t at = 0;
  for (const RenderedPiece& piece : text.pieces) {
    if (piece.from_data) data.push_back({at, at + piece.text.size()});
    at += piece.text.size();
  }
  return data;
}

}  // namespace

ChatSession::ChatSession(const LoadedModel& model, ChatFormat format,
                         std::function<std::unique_ptr<DraftSource>()> drafts)
    : model_(&model),
      format_(std::move(format)),
      drafts_(std::move(drafts)),
      session_(SessionAt(State(model.model), {})) {}

Session ChatSession::SessionAt(const State& state,
                               std::vector<int32_t> tokens) const {
  const ModelConfig& config = model_->model.config();
  if (config.task == Task::kImage || config.arch != Arch::kDecoder) {
    throw ArgumentError("chat: model", "a language model", "another model");
  }
  Session session = Session::At(*model_, state, std::move(tokens),
                                {.max_bytes = kMaxSavedStateBytes});
  session.KeepHere();
  if (drafts_) session.Speculate(drafts_());
  return session;
}

// The ids of a conversation. Where the state has read the beginning of its text
// and a special token follows, the ids read are kept: an answer's text may have
// others than those that were drawn.
std::vector<int32_t> ChatSession::IdsOf(const RenderedText& text) const {
  const std::span<const int32_t> has_read = session_.tokens();
  std::vector<int32_t> ids = EncodeRendered(model_->tokenizer, text).Take();
  if (!read_ || CommonPrefix(ids, has_read) == has_read.size()) return ids;
  const std::string all = text.Text();
  const std::string known = read_->prompt + read_->answer;
  if (known.size() >= all.size() || !all.starts_with(known) ||
      RangesWithin(DataOf(text), 0, read_->prompt.size()) != read_->data) {
    return ids;
  }
  const std::vector<int32_t> rest =
      EncodeRendered(model_->tokenizer, text, known.size()).Take();
  if (rest.empty() || !IsAddedToken(model_->tokenizer, rest[0])) return ids;
  ids.assign(has_read.begin(), has_read.end());
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

// Leaves the session where it has read the longest known beginning of `ids`,
// and returns how many tokens it read again for that.
int64_t ChatSession::GoBackTo(std::span<const int32_t> ids,
                              const StopCheck& stop) {
  const size_t common = CommonPrefix(ids, session_.tokens());
  if (common == session_.tokens().size()) return 0;
  return session_.RollBack(static_cast<int64_t>(common), stop);
}

// The latest position with a state that is kept, from which another message
// would be read.
int64_t ChatSession::NextStart() const {
  Chat chat;
  chat.messages = messages_;
  const Result<RenderedText> text = format_.Render(std::move(chat));
  // A template may want another message.
  if (!text.ok()) return session_.position();
  const auto common = static_cast<int64_t>(
      CommonPrefix(IdsOf(text.value()), session_.tokens()));
  if (common == session_.position()) return common;
  const auto& kept = session_.snapshots();
  for (auto one = kept.rbegin(); one != kept.rend(); ++one) {
    if (one->position <= common && one->has_logits()) return one->position;
  }
  return 0;
}

GenerateOptions ChatSession::OptionsFor(const ChatOptions& options,
                                        int64_t prompt_tokens) const {
  GenerateOptions generate;
  generate.sampler = options.sampler;
  // At least one: where there is no room the error comes from the model.
  const int64_t room = model_->model.max_tokens() - prompt_tokens;
  generate.max_tokens =
      std::min(options.max_tokens, std::max<int64_t>(room, 1));
  generate.begins_text = true;
  const TurnEnds ends = TurnEndsOf(format_, model_->tokenizer, options.render);
  generate.stop_tokens = model_->defaults.stop_tokens;
  generate.stop_tokens.insert(generate.stop_tokens.end(), ends.tokens.begin(),
                              ends.tokens.end());
  generate.stop_texts = options.stop_texts;
  generate.stop_texts.insert(generate.stop_texts.end(), ends.texts.begin(),
                             ends.texts.end());
  return generate;
}

// Reads what the session has not read yet; false where `stop` ended it.
bool ChatSession::Read(std::span<const int32_t> ids, const StopCheck& stop,
                       ChatTurn& turn) {
  const auto begin = std::chrono::steady_clock::now();
  bool whole = true;
  try {
    const int64_t again = GoBackTo(ids, stop);
    turn.read_tokens = turn.prompt_tokens - session_.position() + again;
    const auto rest = ids.subspan(session_.tokens().size());
    if (!rest.empty()) session_.Append(rest, stop);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    whole = false;
  }
  turn.prefill_ms = MillisecondsSince(begin);
  return whole && !(stop && stop());
}

ChatTurn ChatSession::Answer(const RenderedText& text,
                             const ChatOptions& options, const AnswerSink& sink,
                             const StopCheck& stop) {
  const std::vector<int32_t> ids = IdsOf(text);
  if (ids.empty()) {
    throw FormatError("chat template", "a text", "an empty one");
  }
  const GenerateOptions generate =
      OptionsFor(options, static_cast<int64_t>(ids.size()));
  const StopTexts checked(generate.stop_texts);
  ChatTurn turn;
  turn.prompt_tokens = static_cast<int64_t>(ids.size());
  read_.reset();
  if (!Read(ids, stop, turn)) return turn;
  read_ = ReadText{text.Text(), DataOf(text), ""};
  session_.KeepHere();

  ThinkingSplitter splitter(EndsThinking(text));
  std::string thinking, answer;
  bool thought = splitter.thinks(), wanted = true;
  const auto show = [&](AnswerPart part, std::string_view bytes) {
    (part == AnswerPart::kThinking ? thinking : answer) += bytes;
    wanted = sink(part, bytes) && wanted;
  };
  const auto on_token = [&](const GeneratedToken& token) {
    ++turn.tokens;
    model_->tokenizer.Decode(token.id, read_->answer);
    splitter.Push(token.text, show);
    thought = thought || splitter.thinks();
    return wanted;
  };
  try {
    const GenerateResult drawn =
        GenerateWith(session_, {}, generate, on_token, stop);
    turn.first_token_ms = turn.prefill_ms + drawn.first_token_ms;
    turn.decode_ms = drawn.decode_ms;
    turn.end = drawn.end;
    splitter.Push(drawn.held, show);
    // Tokens that a draft brought forward are read for good.
    session_.Settle();
    session_.Consume();
  } catch (...) {
    read_.reset();
    throw;
  }
  turn.answered = turn.tokens > 0 || turn.end != SequenceEnd::kNone;
  splitter.Finish(show);
  if (!turn.answered) return turn;
  session_.KeepHere();
  ChatMessage message{.role = "assistant",
                      .content = ReplaceInvalidUtf8(answer)};
  if (thought) message.reasoning = ReplaceInvalidUtf8(thinking);
  messages_.push_back(std::move(message));
  return turn;
}

ChatTurn ChatSession::Say(const std::string& text, const ChatOptions& options,
                          const AnswerSink& sink, const StopCheck& stop) {
  const size_t before = messages_.size();
  messages_.push_back({.role = "user", .content = ReplaceInvalidUtf8(text)});
  try {
    Chat chat;
    chat.messages = messages_;
    chat.add_generation_prompt = true;
    chat.variables = options.variables;
    const RenderedText rendered =
        format_.Render(std::move(chat), options.render).Take();
    const ChatTurn turn = Answer(rendered, options, sink, stop);
    if (!turn.answered) messages_.resize(before);
    return turn;
  } catch (...) {
    messages_.resize(before);
    throw;
  }
}

bool ChatSession::Undo() {
  size_t count = messages_.size();
  while (count > 0 && messages_[count - 1].role != "user") --count;
  if (count == 0) return false;
  messages_.resize(count - 1);
  return true;
}

ChatSession ChatSession::Fork() const {
  ChatSession copy(*model_, format_, drafts_);
  copy.messages_ = messages_;
  copy.session_ = session_.Fork();
  copy.read_ = read_;
  return copy;
}

void ChatSession::SetSystem(const std::string& text) {
  const bool has = !messages_.empty() && messages_[0].role == "system";
  if (has) messages_.erase(messages_.begin());
  if (text.empty()) return;
  messages_.insert(messages_.begin(),
                   {.role = "system", .content = ReplaceInvalidUtf8(text)});
}

int64_t ChatSession::turns() const {
  return std::count_if(messages_.begin(), messages_.end(),
                       [](const ChatMessage& m) { return m.role == "user"; });
}

}  // namespace tarn
