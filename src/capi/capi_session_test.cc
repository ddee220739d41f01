// Sessions of the C interface, against states that read the same tokens and
// against tarn_generate.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "capi/test_fixture.h"

namespace tarn {
namespace {

using Ids = std::vector<int32_t>;

class CApiSession : public CApi {
 protected:
  void SetUp() override {
    CApi::SetUp();
    ASSERT_EQ(tarn_session_new(model_, nullptr, &session_, &error_), TARN_OK);
  }
  void TearDown() override {
    tarn_session_free(session_);
    CApi::TearDown();
  }

  static Ids TokensOf(const tarn_session* session) {
    Ids ids(1000);
    uint64_t count = 0;
    EXPECT_EQ(
        tarn_session_tokens(session, ids.data(), ids.size(), &count, nullptr),
        TARN_OK);
    ids.resize(count);
    return ids;
  }
  static Ids PendingOf(const tarn_session* session) {
    Ids ids(1000);
    uint64_t count = 0;
    EXPECT_EQ(
        tarn_session_pending(session, ids.data(), ids.size(), &count, nullptr),
        TARN_OK);
    ids.resize(count);
    return ids;
  }
  // Reads everything else as a state that has read the same tokens says.
  void ExpectHasRead(const tarn_session* session, const Ids& tokens) {
    EXPECT_EQ(TokensOf(session), tokens);
    EXPECT_EQ(tarn_session_position(session), tokens.size());
    ASSERT_EQ(tarn_state_reset(state_, nullptr), TARN_OK);
    std::vector<float> wanted(tarn_model_n_outputs(model_));
    for (const int32_t token : tokens) {
      ASSERT_EQ(tarn_step(model_, state_, token, wanted.data(), nullptr),
                TARN_OK);
    }
    if (tokens.empty()) wanted.clear();
    uint64_t count = 0;
    const float* logits = tarn_session_logits(session, &count);
    EXPECT_EQ(std::vector<float>(logits, logits + count), wanted);
    EXPECT_EQ(tarn_session_state_bytes(session), tarn_state_bytes(state_));
  }
  void Append(const Ids& tokens) {
    ASSERT_EQ(
        tarn_session_append(session_, tokens.data(), tokens.size(), nullptr),
        TARN_OK);
  }
  static Ids Numbers(int32_t count) {
    Ids ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back((i * 37 + 5) % 256);
    return ids;
  }
  // The whole text, and why it ended.
  static std::string Draw(tarn_session* session, int32_t* end = nullptr) {
    std::string text;
    tarn_session_token next = TARN_SESSION_TOKEN_INIT;
    do {
      if (tarn_session_next(session, &next, nullptr) != TARN_OK) {
        return "failed";
      }
      text.append(next.text, next.bytes);
    } while (next.token >= 0);
    if (end != nullptr) *end = next.end;
    return text;
  }

  tarn_session* session_ = nullptr;
};

struct ToldText {
  std::string text;
  static int32_t Tell(void* user, int32_t, const char* text, uint64_t bytes) {
    static_cast<ToldText*>(user)->text.append(text, bytes);
    return 0;
  }
};

TEST_F(CApiSession, ATextIsThatOfGenerate) {
  const Ids prompt = Numbers(20);
  ToldText told;
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.max_tokens = 40;
  options.callback = ToldText::Tell;
  options.user = &told;
  ASSERT_EQ(tarn_generate(model_, state_, prompt.data(), prompt.size(),
                          &options, nullptr, &error_),
            TARN_OK);
  options.callback = nullptr;
  ASSERT_EQ(tarn_session_begin(session_, prompt.data(), prompt.size(), &options,
                               &error_),
            TARN_OK);
  EXPECT_EQ(PendingOf(session_), prompt);
  int32_t end = -1;
  EXPECT_EQ(Draw(session_, &end), told.text);
  EXPECT_EQ(end, TARN_END_BUDGET);
  EXPECT_TRUE(PendingOf(session_).empty());
  uint64_t count = 0;
  const float* wanted = tarn_state_last_logits(state_, &count);
  const float* logits = tarn_session_logits(session_, nullptr);
  EXPECT_EQ(std::vector<float>(logits, logits + count),
            std::vector<float>(wanted, wanted + count));
  ExpectHasRead(session_, TokensOf(session_));
}

TEST_F(CApiSession, BytesAreThoseOfTheFile) {
  Append(Numbers(70));
  ASSERT_EQ(tarn_session_mark(session_, "here", &error_), TARN_OK);
  uint64_t size = 0, needed = 0, position = 0;
  ASSERT_EQ(tarn_session_serialize(session_, nullptr, 0, &size, &error_),
            TARN_OK);
  std::vector<uint8_t> bytes(size);
  ASSERT_EQ(
      tarn_session_serialize(session_, bytes.data(), size, &size, &error_),
      TARN_OK);
  tarn_session* loaded = nullptr;
  ASSERT_EQ(tarn_session_deserialize(model_, bytes.data(), size, nullptr,
                                     &loaded, &error_),
            TARN_OK);
  EXPECT_EQ(tarn_session_equal(session_, loaded), 1);
  ASSERT_EQ(tarn_session_mark_position(loaded, "here", &position, &error_),
            TARN_OK);
  EXPECT_EQ(position, 70u);
  tarn_session_free(loaded);
  ExpectError(tarn_session_serialize(session_, bytes.data(), size - 1, &needed,
                                     &error_),
              TARN_ERROR_SHAPE, "capacity");
  EXPECT_EQ(needed, size);
  loaded = nullptr;
  for (const uint64_t less : {uint64_t{0}, uint64_t{9}, size - 1}) {
    ExpectError(tarn_session_deserialize(model_, bytes.data(), less, nullptr,
                                         &loaded, &error_),
                TARN_ERROR_FORMAT, "session");
  }
  EXPECT_EQ(loaded, nullptr);
}

TEST_F(CApiSession, DraftsDoNotChangeAText) {
  const Ids prompt = Numbers(20);
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.max_tokens = 60;
  std::string wanted;
  Ids tokens;
  for (const int32_t source :
       {TARN_DRAFT_NONE, TARN_DRAFT_NGRAM, TARN_DRAFT_MODEL}) {
    tarn_session* session = nullptr;
    ASSERT_EQ(tarn_session_new(model_, nullptr, &session, &error_), TARN_OK);
    ASSERT_EQ(tarn_session_speculate(session, source, model_, 6, &error_),
              TARN_OK);
    ASSERT_EQ(tarn_session_begin(session, prompt.data(), prompt.size(),
                                 &options, &error_),
              TARN_OK);
    int32_t end = -1;
    const std::string text = Draw(session, &end);
    if (source == TARN_DRAFT_NONE) {
      wanted = text;
      tokens = TokensOf(session);
    }
    EXPECT_EQ(text, wanted) << source;
    EXPECT_EQ(TokensOf(session), tokens) << source;
    EXPECT_TRUE(PendingOf(session).empty());
    uint64_t drafted = 99, accepted = 99;
    tarn_session_draft_counts(session, &drafted, &accepted);
    EXPECT_LE(accepted, drafted);
    EXPECT_TRUE(source != TARN_DRAFT_NONE || drafted == 0);
    tarn_session_free(session);
  }
  ExpectError(tarn_session_speculate(session_, 4, nullptr, 0, &error_),
              TARN_ERROR_ARGUMENT, "source");
  ExpectError(
      tarn_session_speculate(session_, TARN_DRAFT_MTP, nullptr, 0, &error_),
      TARN_ERROR_ARGUMENT, "extra prediction head");
  ExpectError(
      tarn_session_speculate(session_, TARN_DRAFT_NGRAM, nullptr, 65, &error_),
      TARN_ERROR_ARGUMENT, "speculation.most");
}

TEST_F(CApiSession, GenerateFollowsAGrammarToo) {
  ToldText told;
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.callback = ToldText::Tell;
  options.user = &told;
  options.grammar_kind = TARN_GRAMMAR_GBNF;
  options.grammar = "root ::= \"left\" | \"right\"";
  const int32_t prompt = 'x';
  ASSERT_EQ(
      tarn_generate(model_, state_, &prompt, 1, &options, nullptr, &error_),
      TARN_OK);
  EXPECT_TRUE(told.text == "left" || told.text == "right") << told.text;
  options.callback = nullptr;
  ASSERT_EQ(tarn_session_begin(session_, &prompt, 1, &options, &error_),
            TARN_OK);
  int32_t end = -1;
  EXPECT_EQ(Draw(session_, &end), told.text);
  EXPECT_EQ(end, TARN_END_GRAMMAR);
}

TEST_F(CApiSession, GoesBackToPositionsAndMarks) {
  const Ids tokens = Numbers(200);
  Append({tokens.begin(), tokens.begin() + 130});
  ASSERT_EQ(tarn_session_mark(session_, "here", &error_), TARN_OK);
  Append({tokens.begin() + 130, tokens.end()});
  ExpectHasRead(session_, tokens);
  EXPECT_GT(tarn_session_snapshot_bytes(session_), 0u);
  uint64_t replayed = 99;
  ASSERT_EQ(tarn_session_rollback(session_, 199, &replayed, &error_), TARN_OK);
  EXPECT_EQ(replayed, 7u);  // from the snapshot at 192
  ExpectHasRead(session_, {tokens.begin(), tokens.begin() + 199});
  ASSERT_EQ(tarn_session_rollback_to(session_, "here", &replayed, &error_),
            TARN_OK);
  EXPECT_EQ(replayed, 0u);
  ExpectHasRead(session_, {tokens.begin(), tokens.begin() + 130});
  EXPECT_EQ(tarn_session_unmark(session_, "here"), 1);
  EXPECT_EQ(tarn_session_unmark(session_, "here"), 0);
  ASSERT_EQ(tarn_session_rollback(session_, 0, nullptr, &error_), TARN_OK);
  ExpectHasRead(session_, {});
}

TEST_F(CApiSession, EveryTokenIsKeptOnRequest) {
  tarn_session_free(session_);
  session_ = nullptr;
  tarn_session_options options = TARN_SESSION_OPTIONS_INIT;
  options.every_token = 8;
  ASSERT_EQ(tarn_session_new(model_, &options, &session_, &error_), TARN_OK);
  Append(Numbers(100));
  uint64_t replayed = 99;
  ASSERT_EQ(tarn_session_rollback(session_, 94, &replayed, &error_), TARN_OK);
  EXPECT_EQ(replayed, 0u);
  ExpectHasRead(session_, Numbers(94));
}

TEST_F(CApiSession, ForksGoOnAlone) {
  const Ids prompt = Numbers(30);
  ASSERT_EQ(tarn_session_begin(session_, prompt.data(), prompt.size(), nullptr,
                               &error_),
            TARN_OK);
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  ASSERT_EQ(tarn_session_next(session_, &next, &error_), TARN_OK);
  tarn_session *same = nullptr, *other = nullptr;
  const uint64_t stream = 7;
  ASSERT_EQ(tarn_session_fork(session_, nullptr, &same, &error_), TARN_OK);
  ASSERT_EQ(tarn_session_fork(session_, &stream, &other, &error_), TARN_OK);
  EXPECT_EQ(tarn_session_equal(session_, same), 1);
  EXPECT_EQ(tarn_session_equal(session_, other), 1);
  std::string texts[3];
  std::thread threads[3];
  tarn_session* sessions[] = {session_, same, other};
  for (int i = 0; i < 3; ++i) {
    threads[i] = std::thread([&, i] { texts[i] = Draw(sessions[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
  EXPECT_EQ(tarn_session_equal(session_, same), 1);
  EXPECT_EQ(tarn_session_equal(session_, other), 0);
  tarn_session_free(same);
  tarn_session_free(other);
}

TEST_F(CApiSession, FilesKeepTheText) {
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.max_tokens = 30;
  options.grammar_kind = TARN_GRAMMAR_REGEX;
  options.grammar = "[a-z ]*";
  const Ids prompt = Numbers(80);
  ASSERT_EQ(tarn_session_begin(session_, prompt.data(), prompt.size(), &options,
                               &error_),
            TARN_OK);
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(tarn_session_next(session_, &next, &error_), TARN_OK);
  }
  const std::string path = Path("a.session");
  ASSERT_EQ(tarn_session_save(session_, path.c_str(), &error_), TARN_OK);
  tarn_session* loaded = nullptr;
  ASSERT_EQ(tarn_session_load(model_, path.c_str(), nullptr, &loaded, &error_),
            TARN_OK);
  EXPECT_EQ(tarn_session_equal(session_, loaded), 1);
  const std::string text = Draw(session_);
  EXPECT_EQ(Draw(loaded), text);
  EXPECT_EQ(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz "),
            std::string::npos);
  EXPECT_EQ(tarn_session_equal(session_, loaded), 1);
  tarn_session_free(loaded);
  loaded = nullptr;
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  ExpectError(
      tarn_session_load(model_, path.c_str(), nullptr, &loaded, &error_),
      TARN_ERROR_FORMAT, "");
  ExpectError(tarn_session_load(model_, Path("none").c_str(), nullptr, &loaded,
                                &error_),
              TARN_ERROR_IO, "none");
  EXPECT_EQ(loaded, nullptr);
}

TEST_F(CApiSession, OutlivesItsModel) {
  tarn_model* model = nullptr;
  tarn_session* session = nullptr;
  tarn_prefix_cache* cache = nullptr;
  ASSERT_EQ(tarn_model_open(Path("full").c_str(), nullptr, &model, &error_),
            TARN_OK);
  ASSERT_EQ(tarn_session_new(model, nullptr, &session, &error_), TARN_OK);
  ASSERT_EQ(tarn_prefix_cache_new(model, 1 << 20, &cache, &error_), TARN_OK);
  tarn_model_close(model);
  const Ids tokens = Numbers(50);
  ASSERT_EQ(tarn_session_append(session, tokens.data(), 50, &error_), TARN_OK);
  ASSERT_EQ(tarn_prefix_cache_insert(cache, nullptr, session, &error_),
            TARN_OK);
  tarn_session* fork = nullptr;
  ASSERT_EQ(tarn_session_fork(session, nullptr, &fork, &error_), TARN_OK);
  tarn_session_free(session);
  EXPECT_EQ(tarn_session_append(fork, tokens.data(), 50, &error_), TARN_OK);
  EXPECT_EQ(tarn_session_position(fork), 100u);
  tarn_session_free(fork);
  EXPECT_GT(tarn_prefix_cache_bytes(cache), 0u);
  tarn_prefix_cache_free(cache);
}

TEST_F(CApiSession, APrefixIsReadOnce) {
  tarn_prefix_cache* cache = nullptr;
  ASSERT_EQ(tarn_prefix_cache_new(model_, 1 << 22, &cache, &error_), TARN_OK);
  const Ids tokens = Numbers(150);
  Append({tokens.begin(), tokens.begin() + 100});
  ASSERT_EQ(tarn_prefix_cache_insert(cache, "us", session_, &error_), TARN_OK);
  uint64_t length = 99;
  ASSERT_EQ(tarn_prefix_cache_restore(cache, nullptr, tokens.data(), 150,
                                      session_, &length, &error_),
            TARN_OK);
  EXPECT_EQ(length, 0u);  // another space
  ASSERT_EQ(tarn_prefix_cache_restore(cache, "us", tokens.data(), 150, session_,
                                      &length, &error_),
            TARN_OK);
  EXPECT_EQ(length, 100u);
  ExpectHasRead(session_, {tokens.begin(), tokens.begin() + 100});
  Append({tokens.begin() + 100, tokens.end()});
  ExpectHasRead(session_, tokens);
  tarn_model* model = nullptr;
  tarn_session* other = nullptr;
  ASSERT_EQ(tarn_model_open(Path("full").c_str(), nullptr, &model, &error_),
            TARN_OK);
  ASSERT_EQ(tarn_session_new(model, nullptr, &other, &error_), TARN_OK);
  ExpectError(tarn_prefix_cache_insert(cache, "us", other, &error_),
              TARN_ERROR_ARGUMENT, "another model");
  ExpectError(tarn_prefix_cache_restore(cache, "us", tokens.data(), 1, other,
                                        &length, &error_),
              TARN_ERROR_ARGUMENT, "another model");
  EXPECT_EQ(tarn_session_equal(session_, other), 0);
  tarn_session_free(other);
  tarn_model_close(model);
  tarn_prefix_cache_free(cache);
}

int32_t StopAtOnce(void* user) { return *static_cast<int32_t*>(user); }

TEST_F(CApiSession, CanBeCancelledAndGoesOn) {
  int32_t stop = 1;
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.cancel = StopAtOnce;
  options.user = &stop;
  const Ids prompt = Numbers(100);
  ASSERT_EQ(tarn_session_begin(session_, prompt.data(), 100, &options, &error_),
            TARN_OK);
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  ExpectError(tarn_session_next(session_, &next, &error_),
              TARN_ERROR_INTERRUPTED, "");
  stop = 0;
  ASSERT_EQ(tarn_session_next(session_, &next, &error_), TARN_OK);
  EXPECT_GE(next.token, 0);
  ExpectHasRead(session_, prompt);
}

TEST_F(CApiSession, ErrorsChangeNothing) {
  const Ids prompt = Numbers(70);
  ASSERT_EQ(tarn_session_begin(session_, prompt.data(), 70, nullptr, &error_),
            TARN_OK);
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  ASSERT_EQ(tarn_session_next(session_, &next, &error_), TARN_OK);
  tarn_session* before = nullptr;
  ASSERT_EQ(tarn_session_fork(session_, nullptr, &before, &error_), TARN_OK);

  const Ids bad = {1, 256};
  ExpectError(tarn_session_append(session_, bad.data(), 2, &error_),
              TARN_ERROR_ARGUMENT, "tokens[1]");
  ExpectError(tarn_session_begin(session_, bad.data(), 2, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "tokens[1]");
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  options.callback = ToldText::Tell;
  ExpectError(tarn_session_begin(session_, bad.data(), 1, &options, &error_),
              TARN_ERROR_ARGUMENT, "callback");
  options = TARN_GENERATE_OPTIONS_INIT;
  options.grammar_kind = TARN_GRAMMAR_REGEX;
  ExpectError(tarn_session_begin(session_, bad.data(), 1, &options, &error_),
              TARN_ERROR_ARGUMENT, "grammar");
  options.grammar = "(";
  ExpectError(tarn_session_begin(session_, bad.data(), 1, &options, &error_),
              TARN_ERROR_FORMAT, "");
  options.grammar_kind = 5;
  ExpectError(tarn_session_begin(session_, bad.data(), 1, &options, &error_),
              TARN_ERROR_ARGUMENT, "grammar_kind");
  options.grammar_kind = TARN_GRAMMAR_JSON;
  ExpectError(tarn_session_begin(session_, bad.data(), 1, &options, &error_),
              TARN_ERROR_ARGUMENT, "grammar");
  uint64_t replayed = 99;
  ExpectError(tarn_session_rollback(session_, 71, &replayed, &error_),
              TARN_ERROR_ARGUMENT, "0 to 70");
  ExpectError(tarn_session_rollback(session_, UINT64_MAX, &replayed, &error_),
              TARN_ERROR_ARGUMENT, "0 to 70");
  ExpectError(tarn_session_rollback_to(session_, "x", &replayed, &error_),
              TARN_ERROR_ARGUMENT, "mark");
  EXPECT_EQ(replayed, 99u);
  ExpectError(tarn_session_mark(session_, "a b", &error_), TARN_ERROR_ARGUMENT,
              "mark");
  ExpectError(tarn_session_save(session_, "/nowhere/at/all", &error_),
              TARN_ERROR_IO, "nowhere");
  next.struct_size = 3;
  ExpectError(tarn_session_next(session_, &next, &error_), TARN_ERROR_ARGUMENT,
              "struct_size");
  int32_t few[3];
  uint64_t count = 0;
  ExpectError(tarn_session_tokens(session_, few, 3, &count, &error_),
              TARN_ERROR_SHAPE, "capacity");
  EXPECT_EQ(count, 70u);

  EXPECT_EQ(tarn_session_equal(session_, before), 1);
  EXPECT_EQ(Draw(session_), Draw(before));
  EXPECT_EQ(tarn_session_equal(session_, before), 1);
  tarn_session_free(before);
}

TEST_F(CApiSession, WantsATextAndATokenBeforeIt) {
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  ExpectError(tarn_session_next(session_, &next, &error_), TARN_ERROR_ARGUMENT,
              "text");
  ExpectError(tarn_session_begin(session_, nullptr, 0, nullptr, &error_),
              TARN_ERROR_ARGUMENT, "prompt");
  Append({1});
  EXPECT_EQ(tarn_session_begin(session_, nullptr, 0, nullptr, &error_),
            TARN_OK);
  // A struct of a first version that ends before the text.
  tarn_session_token small = TARN_SESSION_TOKEN_INIT;
  small.struct_size = offsetof(tarn_session_token, text);
  small.bytes = 77;
  ASSERT_EQ(tarn_session_next(session_, &small, &error_), TARN_OK);
  EXPECT_GE(small.token, 0);
  EXPECT_EQ(small.bytes, 77u);
}

TEST_F(CApiSession, RefusesOtherModels) {
  for (const char* name : {"seq2seq", "encoder", "image"}) {
    tarn_model* model = nullptr;
    ASSERT_EQ(tarn_model_open(Path(name).c_str(), nullptr, &model, &error_),
              TARN_OK);
    tarn_session* session = nullptr;
    ExpectError(tarn_session_new(model, nullptr, &session, &error_),
                TARN_ERROR_ARGUMENT, "");
    EXPECT_EQ(session, nullptr);
    tarn_model_close(model);
  }
  tarn_session_options options = TARN_SESSION_OPTIONS_INIT;
  options.every_token = 1025;
  tarn_session* session = nullptr;
  ExpectError(tarn_session_new(model_, &options, &session, &error_),
              TARN_ERROR_ARGUMENT, "1024");
}

TEST_F(CApiSession, TakesNullArguments) {
  tarn_session* session = nullptr;
  tarn_prefix_cache* cache = nullptr;
  uint64_t n = 0;
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  const tarn_status statuses[] = {
      tarn_session_new(nullptr, nullptr, &session, nullptr),
      tarn_session_new(model_, nullptr, nullptr, nullptr),
      tarn_session_append(nullptr, nullptr, 0, nullptr),
      tarn_session_append(session_, nullptr, 1, nullptr),
      tarn_session_begin(nullptr, nullptr, 0, nullptr, nullptr),
      tarn_session_begin(session_, nullptr, 1, nullptr, nullptr),
      tarn_session_next(nullptr, &next, nullptr),
      tarn_session_next(session_, nullptr, nullptr),
      tarn_session_fork(nullptr, nullptr, &session, nullptr),
      tarn_session_fork(session_, nullptr, nullptr, nullptr),
      tarn_session_speculate(nullptr, TARN_DRAFT_NGRAM, nullptr, 0, nullptr),
      tarn_session_speculate(session_, TARN_DRAFT_MODEL, nullptr, 0, nullptr),
      tarn_session_mark(nullptr, "a", nullptr),
      tarn_session_mark(session_, nullptr, nullptr),
      tarn_session_rollback(nullptr, 0, nullptr, nullptr),
      tarn_session_rollback_to(nullptr, "a", nullptr, nullptr),
      tarn_session_rollback_to(session_, nullptr, nullptr, nullptr),
      tarn_session_save(nullptr, "a", nullptr),
      tarn_session_save(session_, nullptr, nullptr),
      tarn_session_load(nullptr, "a", nullptr, &session, nullptr),
      tarn_session_load(model_, nullptr, nullptr, &session, nullptr),
      tarn_session_load(model_, "a", nullptr, nullptr, nullptr),
      tarn_session_serialize(nullptr, nullptr, 0, &n, nullptr),
      tarn_session_serialize(session_, nullptr, 0, nullptr, nullptr),
      tarn_session_deserialize(nullptr, "", 0, nullptr, &session, nullptr),
      tarn_session_deserialize(model_, nullptr, 1, nullptr, &session, nullptr),
      tarn_session_deserialize(model_, "", 0, nullptr, nullptr, nullptr),
      tarn_session_mark_position(nullptr, "a", &n, nullptr),
      tarn_session_mark_position(session_, nullptr, &n, nullptr),
      tarn_session_mark_position(session_, "a", &n, nullptr),
      tarn_session_tokens(nullptr, nullptr, 0, &n, nullptr),
      tarn_session_tokens(session_, nullptr, 0, nullptr, nullptr),
      tarn_session_pending(nullptr, nullptr, 0, &n, nullptr),
      tarn_session_pending(session_, nullptr, 0, nullptr, nullptr),
      tarn_prefix_cache_new(nullptr, 0, &cache, nullptr),
      tarn_prefix_cache_new(model_, 0, nullptr, nullptr),
      tarn_prefix_cache_restore(nullptr, "", nullptr, 0, session_, &n, nullptr),
      tarn_prefix_cache_insert(nullptr, "", session_, nullptr),
  };
  for (size_t i = 0; i < std::size(statuses); ++i) {
    EXPECT_EQ(statuses[i], TARN_ERROR_ARGUMENT) << i;
  }
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(cache, nullptr);
  tarn_session_free(nullptr);
  tarn_prefix_cache_free(nullptr);
  EXPECT_EQ(tarn_session_unmark(nullptr, "a"), 0);
  EXPECT_EQ(tarn_session_unmark(session_, nullptr), 0);
  EXPECT_EQ(tarn_session_position(nullptr), 0u);
  EXPECT_EQ(tarn_session_state_bytes(nullptr), 0u);
  EXPECT_EQ(tarn_session_snapshot_bytes(nullptr), 0u);
  EXPECT_EQ(tarn_prefix_cache_bytes(nullptr), 0u);
  tarn_session_draft_counts(nullptr, nullptr, nullptr);
  EXPECT_EQ(tarn_session_equal(nullptr, session_), 0);
  EXPECT_EQ(tarn_session_equal(session_, nullptr), 0);
  EXPECT_EQ(tarn_session_logits(nullptr, &n), nullptr);
  EXPECT_EQ(n, 0u);
}

}  // namespace
}  // namespace tarn
