#include "runtime/chat/chat_session.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "runtime/chat/turn_end.h"
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

ChatSession::ChatSession(const LoadedModel& model, ChatFormat format)
    : model_(&model), format_(std::move(format)), state_(model.model) {
  const ModelConfig& config = model.model.config();
  if (config.task == Task::kImage || config.arch != Arch::kDecoder) {
    throw ArgumentError("chat: model", "a language model", "another model");
  }
}

// The ids of a conversation. Where the state has read the beginning of its text
// and a special token follows, the ids read are kept: an answer's text may have
// others than those that were drawn.
std::vector<int32_t> ChatSession::IdsOf(const RenderedText& text) const {
  std::vector<int32_t> ids = EncodeRendered(model_->tokenizer, text).Take();
  if (!read_ || CommonPrefix(ids, ids_) == ids_.size()) return ids;
  const std::string all = text.Text();
  const std::string known = read_->prompt + read_->answer;
  if (known.size() >= all.size() || !all.starts_with(known) ||
      RangesWithin(DataOf(text), 0, read_->prompt.size()) != read_->data) {
    return ids;
  }
  const std::vector<int32_t> rest =
      EncodeRendered(model_->tokenizer, text, known.size()).Take();
  if (rest.empty() || !IsAddedToken(model_->tokenizer, rest[0])) return ids;
  ids = ids_;
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

// Leaves the state where it has read the longest known beginning of `ids`.
void ChatSession::GoBackTo(std::span<const int32_t> ids) {
  const size_t common = CommonPrefix(ids, ids_);
  if (common == ids_.size()) {
    // Going on: the states before answers served templates that rewrite them.
    std::erase_if(saved_, [](const SavedState& s) { return s.before_answer; });
    return;
  }
  std::erase_if(saved_, [&](const SavedState& s) { return s.tokens > common; });
  if (saved_.empty()) {
    state_.Reset();
  } else {
    state_.CopyFrom(*saved_.back().state);
  }
  ids_.resize(saved_.empty() ? 0 : saved_.back().tokens);
}

void ChatSession::SaveHere(bool before_answer) {
  if (!saved_.empty() && saved_.back().tokens == ids_.size()) return;
  saved_.push_back({ids_.size(), before_answer,
                    std::make_shared<const State>(state_.Clone())});
  while (saved_.size() > 1 && saved_bytes() > kMaxSavedStateBytes) {
    saved_.erase(saved_.begin());
  }
}

// The state from which another message would be read, with `state` null where
// that is state_.
ChatSession::SavedState ChatSession::NearestState() const {
  Chat chat;
  chat.messages = messages_;
  const Result<RenderedText> text = format_.Render(std::move(chat));
  const SavedState here{ids_.size(), false, nullptr};
  if (!text.ok()) return here;  // a template may want another message
  const size_t common = CommonPrefix(IdsOf(text.value()), ids_);
  if (common == ids_.size()) return here;
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    if (saved->tokens <= common) return *saved;
  }
  return {0, false, std::make_shared<const State>(model_->model)};
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

ChatTurn ChatSession::Answer(const RenderedText& text,
                             const ChatOptions& options, const AnswerSink& sink,
                             const StopCheck& stop) {
  const std::vector<int32_t> ids = IdsOf(text);
  if (ids.empty()) {
    throw FormatError("chat template", "a text", "an empty one");
  }
  GenerateOptions generate =
      OptionsFor(options, static_cast<int64_t>(ids.size()));
  const StopTexts checked(generate.stop_texts);
  GoBackTo(ids);
  read_.reset();
  ChatTurn turn;
  turn.prompt_tokens = static_cast<int64_t>(ids.size());
  turn.read_tokens = turn.prompt_tokens - state_.position();

  ThinkingSplitter splitter(EndsThinking(text));
  std::string thinking, answer;
  bool thought = splitter.thinks(), wanted = true;
  const auto show = [&](AnswerPart part, std::string_view bytes) {
    (part == AnswerPart::kThinking ? thinking : answer) += bytes;
    wanted = sink(part, bytes) && wanted;
  };
  // Whatever ends the call, ids_ are those that the state has read.
  const auto follow = [&] {
    if (ids_.size() < ids.size()) {
      ids_.assign(ids.begin(), ids.begin() + state_.position());
    }
  };
  const auto on_token = [&](const GeneratedToken& token) {
    if (turn.tokens++ == 0) {
      ids_ = ids;
    }
    ids_.push_back(token.id);
    model_->tokenizer.Decode(token.id, read_->answer);
    splitter.Push(token.text, show);
    thought = thought || splitter.thinks();
    return wanted;
  };
  try {
    const std::span<const int32_t> rest =
        std::span<const int32_t>(ids).subspan(ids_.size());
    GenerateResult read = Generate(model_->model, model_->tokenizer, state_,
                                   rest, {.max_tokens = 0}, {}, stop);
    follow();
    turn.prefill_ms = read.prefill_ms;
    if (read.stopped) return turn;
    read_ = ReadText{text.Text(), DataOf(text), ""};
    SaveHere(true);
    generate.history = ids;
    GenerateResult drawn = Generate(model_->model, model_->tokenizer, state_,
                                    {}, generate, on_token, stop);
    turn.first_token_ms = read.prefill_ms + drawn.first_token_ms;
    turn.decode_ms = drawn.decode_ms;
    turn.end = drawn.end;
    splitter.Push(drawn.held, show);
    turn.answered = turn.tokens > 0 || turn.end != SequenceEnd::kNone;
  } catch (...) {
    follow();
    throw;
  }
  splitter.Finish(show);
  if (!turn.answered) return turn;
  SaveHere(false);
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
  ChatSession copy(*model_, format_);
  copy.messages_ = messages_;
  copy.state_.CopyFrom(state_);
  copy.ids_ = ids_;
  copy.read_ = read_;
  copy.saved_ = saved_;
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

int64_t ChatSession::saved_bytes() const {
  int64_t bytes = 0;
  const int64_t logits =
      model_->model.n_outputs() * static_cast<int64_t>(sizeof(float));
  for (const SavedState& saved : saved_) {
    bytes += saved.state->bytes() + logits;
  }
  return bytes;
}

}  // namespace tarn
