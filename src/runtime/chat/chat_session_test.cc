// Conversations: what the state has read is what a new state would have read,
// whatever was said, taken back, forked, saved or stopped.
#include "runtime/chat/chat_session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "reference/random_model.h"
#include "runtime/speculate/drafts.h"

namespace tarn {
namespace {

// The alphabet of the model: ASCII, so that every answer is a text whose ids
// are those that were drawn.
constexpr char kAlphabet[] = "abcd <>/\n";
// A message is <...>, an answer its text and a slash.
constexpr char kPlain[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}/"
    "{% else %}<{{ m.content }}>{% endif %}{% endfor %}";
// Of earlier answers only an a is left.
constexpr char kRewrites[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}/a/"
    "{% else %}<{{ m.content }}>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}/{% endif %}";

class Chatting : public testing::TestWithParam<AttentionKind> {
 protected:
  Chatting()
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("tarn_chat_" + std::to_string(getpid()))) {
    ModelConfig config = TinyConfig(GetParam());
    config.max_positions = 4096;
    config.tokenizer = TokenizerKind::kChar;
    const Tokenizer tokenizer = Tokenizer::CharFromText(kAlphabet).Take();
    config.vocab_size = tokenizer.vocab_size();
    FinishConfig(config);
    WriteRandomModel(dir_, config, tokenizer, 1);
    model_.emplace(LoadedModel::Open(dir_).Take());
    options_.max_tokens = 12;
    options_.sampler.seed = 3;
  }
  ~Chatting() override { std::filesystem::remove_all(dir_); }

  static ChatFormat Format(const char* source) {
    return {source, ChatTemplate::Parse(source).Take(), {}};
  }
  ChatSession Session(const char* source = kPlain) {
    return ChatSession(*model_, Format(source));
  }
  ChatTurn Say(ChatSession& session, const std::string& text) {
    return session.Say(text, options_,
                       [](AnswerPart, std::string_view) { return true; });
  }
  // The answer that a new session gives to the same messages.
  std::string FreshAnswer(const ChatSession& session, const char* source) {
    const std::string path = dir_ / "fresh.json";
    session.Save(path);
    std::filesystem::remove(path + ".state");
    ChatSession fresh = Session(source);
    EXPECT_TRUE(fresh.Load(path));
    EXPECT_EQ(fresh.position(), 0);
    const ChatTurn turn = Say(fresh, "ab");
    EXPECT_EQ(turn.read_tokens, turn.prompt_tokens);
    return fresh.messages().back().content;
  }

  const std::filesystem::path dir_;
  std::optional<LoadedModel> model_;
  ChatOptions options_;
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, Chatting, testing::Values(MixerKind("linear"), MixerKind("full")),
    [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(Chatting, NothingIsReadTwice) {
  ChatSession session = Session();
  const ChatTurn first = Say(session, "ab");
  EXPECT_EQ(first.prompt_tokens, 4);  // <ab>
  EXPECT_EQ(first.read_tokens, 4);
  EXPECT_GT(first.tokens, 0);
  for (int turn = 1; turn < 5; ++turn) {
    const int64_t before = session.position();
    const ChatTurn next = Say(session, "cd");
    EXPECT_EQ(next.read_tokens, next.prompt_tokens - before);
    EXPECT_EQ(session.position(), next.prompt_tokens + next.tokens);
  }
  EXPECT_EQ(session.turns(), 5);
  const std::string fresh = FreshAnswer(session, kPlain);
  Say(session, "ab");
  EXPECT_EQ(session.messages().back().content, fresh);
}

TEST_P(Chatting, EveryTemplateGivesTheAnswersOfANewState) {
  for (const char* source : {kPlain, kRewrites}) {
    ChatSession session = Session(source);
    for (const char* text : {"ab", "c", "", "dd a"}) Say(session, text);
    const std::string fresh = FreshAnswer(session, source);
    Say(session, "ab");
    EXPECT_EQ(session.messages().back().content, fresh);
  }
}

TEST_P(Chatting, ARewrittenTurnIsReadFromTheStateBeforeItsAnswer) {
  ChatSession session = Session(kRewrites);
  Say(session, "abcd");  // <abcd>/
  const ChatTurn next = Say(session, "a");
  EXPECT_EQ(next.prompt_tokens, 13);  // <abcd>/ and a/<a>/
  EXPECT_EQ(next.read_tokens, 6);
  EXPECT_EQ(session.position(), next.prompt_tokens + next.tokens);
}

TEST_P(Chatting, UndoGivesTheSameAnswerAgain) {
  ChatSession session = Session();
  EXPECT_FALSE(session.Undo());
  Say(session, "ab");
  Say(session, "cd");
  const std::string answer = session.messages().back().content;
  const int64_t position = session.position();
  ASSERT_TRUE(session.Undo());
  EXPECT_EQ(session.turns(), 1);
  const ChatTurn again = Say(session, "cd");
  EXPECT_EQ(session.messages().back().content, answer);
  EXPECT_EQ(session.position(), position);
  EXPECT_EQ(again.read_tokens, 0);  // the state before the answer was kept
}

TEST_P(Chatting, ForksContinueByThemselves) {
  ChatSession session = Session();
  Say(session, "ab");
  ChatSession fork = session.Fork();
  Say(fork, "cd");
  Say(fork, "d");
  EXPECT_EQ(session.turns(), 1);
  Say(session, "cd");
  ASSERT_EQ(fork.messages().size(), 6u);
  ASSERT_EQ(session.messages().size(), 4u);
  EXPECT_EQ(session.messages()[3].content, fork.messages()[3].content);
}

TEST_P(Chatting, ASystemMessageComesFirst) {
  ChatSession session = Session();
  session.SetSystem("a b");
  Say(session, "ab");
  EXPECT_EQ(session.messages()[0].role, "system");
  session.SetSystem("c");
  const ChatTurn turn = Say(session, "d");
  EXPECT_EQ(session.messages()[0].content, "c");
  EXPECT_EQ(turn.read_tokens, turn.prompt_tokens);
  session.SetSystem("");
  EXPECT_EQ(session.messages()[0].role, "user");
}

TEST_P(Chatting, AFileBringsTheStateBack) {
  const std::string path = dir_ / "chat.json";
  ChatSession session = Session();
  Say(session, "ab");
  Say(session, "cd");
  session.Save(path);
  ChatSession other = Session();
  Say(other, "d");
  EXPECT_EQ(other.Load(path), std::nullopt);
  EXPECT_EQ(other.position(), session.position());
  Say(session, "a");
  Say(other, "a");
  EXPECT_EQ(other.messages().back().content, session.messages().back().content);

  // After an undo the file has the state before what was taken back.
  session.Undo();
  session.Undo();
  session.Save(path);
  ChatSession early = Session();
  EXPECT_EQ(early.Load(path), std::nullopt);
  EXPECT_EQ(early.turns(), 1);
  EXPECT_LT(early.position(), session.position());
}

TEST_P(Chatting, FaultyFilesAreRefusedWithTheConversationUnchanged) {
  const std::string path = dir_ / "chat.json";
  ChatSession session = Session();
  Say(session, "ab");
  const std::string head = R"({"format_version": 1, "prompt": "ab",)";
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "chat.json"},
           {"[]", "an object"},
           {R"({"format_version": 2})", "format_version"},
           {R"({"format_version": 1})", "messages"},
           {head + R"("x": 1})", "no other keys"},
           {head + R"("messages": [3]})", "messages[0]"},
           {head + R"("messages": [{"role": "user"}]})", "content"},
           {head + R"("messages": [{"role": "cat", "content": ""}]})", "role"},
           {head + R"("messages": [], "ids": [-1]})", "ids[0]"},
           {head + R"("messages": [], "ids": [], "answer": ""})",
            "prompt_data"},
           {head + R"("messages": [], "ids": [], "answer": "",
                      "prompt_data": [[0, 3]]})",
            "prompt_data[0]"}}) {
    std::ofstream(path) << text;
    try {
      session.Load(path);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(session.turns(), 1);
  }
  EXPECT_THROW(session.Load(dir_ / "none.json"), Error);
  // A state of other tokens is not used.
  std::ofstream(path) << head + R"("messages": [], "ids": [1], "answer": "",
                                   "prompt_data": []})";
  Session().Save(dir_ / "empty.json");
  std::filesystem::copy(dir_ / "empty.json.state", path + ".state");
  const auto unused = session.Load(path);
  ASSERT_TRUE(unused);
  EXPECT_NE(unused->find("want a state of 1 tokens"), std::string::npos);
}

TEST_P(Chatting, StoppedItKeepsWhatWasWritten) {
  ChatSession session = Session();
  int tokens = 0;
  ChatTurn turn = session.Say(
      "ab", options_,
      [&](AnswerPart, std::string_view) { return ++tokens < 100; },
      [&] { return tokens >= 4; });
  EXPECT_EQ(turn.end, SequenceEnd::kNone);
  EXPECT_TRUE(turn.answered);
  EXPECT_GE(turn.tokens, 4);
  EXPECT_LT(turn.tokens, 12);
  EXPECT_EQ(session.messages().size(), 2u);
  // Before the first token nothing was said.
  turn = session.Say(
      "cd", options_, [](AnswerPart, std::string_view) { return true; },
      [] { return true; });
  EXPECT_FALSE(turn.answered);
  EXPECT_EQ(session.messages().size(), 2u);
  const std::string fresh = FreshAnswer(session, kPlain);
  Say(session, "ab");
  EXPECT_EQ(session.messages().back().content, fresh);
}

TEST_P(Chatting, DraftsChangeNoAnswerAndNoTokenThatIsRead) {
  options_.max_tokens = 60;
  const Drafts drafts = Drafts::Open(kNgramGuesses, *model_).Take();
  const auto make = [&drafts] { return drafts.Make(); };
  for (const char* source : {kPlain, kRewrites}) {
    ChatSession plain = Session(source);
    ChatSession drafting(*model_, Format(source), make);
    const auto same = [&](const char* text) {
      const ChatTurn a = Say(plain, text), b = Say(drafting, text);
      EXPECT_EQ(a.read_tokens, b.read_tokens);
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.end, b.end);
      EXPECT_EQ(plain.position(), drafting.position());
      EXPECT_EQ(plain.messages().back().content,
                drafting.messages().back().content);
    };
    for (const char* text : {"ab", "abab", ""}) same(text);
    plain.Undo();
    drafting.Undo();
    same("dcba");
    plain = plain.Fork();
    drafting = drafting.Fork();
    same("ab");
    const std::string path = dir_ / "chat.json";
    drafting.Save(path);
    EXPECT_EQ(std::nullopt, plain.Load(path));
    EXPECT_EQ(std::nullopt, drafting.Load(path));
    same("ab");
    EXPECT_GT(drafting.speculation().drafted, 0);
    EXPECT_EQ(plain.speculation().drafted, 0);
  }
}

TEST_P(Chatting, WhatTheTemplateRefusesChangesNothing) {
  constexpr char kRefuses[] =
      "{% for m in messages %}{% if m.content == 'a' %}"
      "{{ raise_exception('no a') }}{% endif %}{{ m.content }}{% endfor %}";
  ChatSession session = Session(kRefuses);
  Say(session, "ab");
  EXPECT_THROW(Say(session, "a"), ArgumentError);
  EXPECT_THROW(Say(session, "xyz"), FormatError);  // no tokens for them
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_THROW(ChatSession(*model_, Format("")).Say("a", options_, {}), Error);
}

TEST_P(Chatting, TheTextBeforeTheNextMessageEndsAnAnswer) {
  // What follows an answer is "c<": the answer ends before it.
  constexpr char kLines[] =
      "{% for m in messages %}{% if m.role == 'user' %}<{{ m.content }}>"
      "{% else %}{{ m.content }}c{% endif %}{% endfor %}";
  options_.max_tokens = 2000;
  ChatSession session = Session(kLines);
  const ChatTurn turn = Say(session, "ab");
  EXPECT_EQ(turn.end, SequenceEnd::kStopText);
  EXPECT_EQ(session.messages().back().content.find("c<"), std::string::npos);
}

}  // namespace
}  // namespace tarn
