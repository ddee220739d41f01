// Sessions in files: what continues from them, and what is refused.
#include "runtime/session/session_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "reference/test_model.h"
#include "runtime/session/session_parts.h"

namespace tarn::testing {
namespace {

using Bytes = std::string;

class SessionFileTest : public ::testing::Test {
 protected:
  SessionFileTest() : model_(Open("model", 1)) {}

  LoadedModel Open(const std::string& name, uint64_t seed) {
    ModelConfig config = SmallConfig();
    config.tokenizer = TokenizerKind::kIds;
    config.positions = Positions::kNone;
    SetLayers(config, "linear,full");
    FinishConfig(config);
    const std::string dir = folder_ / name;
    std::filesystem::create_directories(dir);
    WriteModel(dir, config, RandomTensors(config, seed));
    WriteFileAtomically(dir + "/tokenizer.json",
                        Tokenizer::Ids(config.vocab_size).ToJson());
    return LoadedModel::Open(ModelPath(dir), {.threads = 1}).Take();
  }

  // A session in the middle of a text, with marks and snapshots.
  Session Busy() {
    Session session(model_);
    session.Append(RandomTokens(model_.model.config(), 150, 2));
    session.Mark("early");
    SequenceOptions options;
    options.sampler.seed = uint64_t{1} << 63;
    options.sampler.temperature = 1.25;
    options.stop_tokens = {3};
    options.stop_texts = {"\xff no text"};
    session.Begin(RandomTokens(model_.model.config(), 9, 3), options, 1000);
    for (int i = 0; i < 12; ++i) {
      session.Consume();
      session.Draw();
      if (session.text()->ended()) break;
    }
    session.Mark("late");
    return session;
  }
  static Bytes Saved(const Session& session) {
    Bytes bytes;
    StringSink sink(bytes);
    SaveSession(session, sink);
    return bytes;
  }
  static Result<Session> Load(const LoadedModel& model, const Bytes& bytes) {
    // A copy of exactly these bytes: reading past them is found.
    const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
    return LoadSession(model, exact, "session");
  }
  // Replaces a text of the head by another of the same length.
  static Bytes Replaced(Bytes bytes, const std::string& from,
                        const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    const size_t at = bytes.find(from);
    EXPECT_NE(Bytes::npos, at) << from;
    return at == Bytes::npos ? bytes : bytes.replace(at, to.size(), to);
  }
  std::string MessageOf(const Bytes& bytes) {
    const Result<Session> loaded = Load(model_, bytes);
    return loaded.ok() ? "no error" : loaded.error().what();
  }

  TemporaryFolder folder_;
  LoadedModel model_;
};

TEST_F(SessionFileTest, ARestoredTextContinuesAsIfItHadNotBeenParked) {
  Session session = Busy();
  const std::string path = folder_ / "a.session";
  SaveSession(session, path);
  Session loaded = LoadSession(model_, path).Take();
  EXPECT_TRUE(loaded == session);
  ASSERT_NE(nullptr, loaded.text());
  EXPECT_EQ(session.text()->tokens(), loaded.text()->tokens());
  ASSERT_FALSE(session.text()->ended());
  for (int i = 0; i < 60 && !session.text()->ended(); ++i) {
    session.Consume();
    loaded.Consume();
    EXPECT_EQ(session.Draw(), loaded.Draw());
    EXPECT_EQ(session.text()->text(), loaded.text()->text());
    EXPECT_EQ(session.text()->end(), loaded.text()->end());
  }
  EXPECT_TRUE(loaded == session);
  for (const char* mark : {"late", "early"}) {
    EXPECT_EQ(session.RollBackTo(mark), loaded.RollBackTo(mark)) << mark;
    EXPECT_TRUE(loaded == session) << mark;
  }
}

TEST_F(SessionFileTest, AnExactRepeatNeedsNoStep) {
  Session session(model_);
  session.Append(RandomTokens(model_.model.config(), 200, 2));
  const Session loaded = Load(model_, Saved(session)).Take();
  ASSERT_FALSE(loaded.logits().empty());
  EXPECT_TRUE(std::equal(loaded.logits().begin(), loaded.logits().end(),
                         session.logits().begin()));
}

TEST_F(SessionFileTest, EmptyEndedAndWaitingSessions) {
  Session empty(model_);
  EXPECT_TRUE(Load(model_, Saved(empty)).Take() == empty);
  Session ended(model_);
  SequenceOptions all;
  for (int32_t id = 0; id < 29; ++id) all.stop_tokens.push_back(id);
  ended.Begin(RandomTokens(model_.model.config(), 5, 2), all, 9);
  EXPECT_EQ(5u, Load(model_, Saved(ended)).Take().pending().size());
  ended.Consume();
  ended.Draw();
  ASSERT_EQ(SequenceEnd::kStopToken, ended.text()->end());
  EXPECT_EQ(SequenceEnd::kStopToken,
            Load(model_, Saved(ended)).Take().text()->end());
  // A prompt of which a part has been read.
  Session half(model_);
  half.Begin(RandomTokens(model_.model.config(), 50, 2), {}, 9);
  const Job job = half.NextJob(20);
  model_.model.Prefill(const_cast<State&>(half.state()), job.tokens,
                       job.logits);
  half.JobDone(job);
  Session loaded = Load(model_, Saved(half)).Take();
  EXPECT_EQ(30u, loaded.pending().size());
  loaded.Consume();
  half.Consume();
  EXPECT_TRUE(loaded == half);
  EXPECT_EQ(half.Draw(), loaded.Draw());
}

TEST_F(SessionFileTest, MarksBeforeTheFirstToken) {
  Session session(model_);
  session.Mark("begin");
  session.Append(RandomTokens(model_.model.config(), 9, 2));
  for (int i = 0; i < 2; ++i) {
    Session loaded = Load(model_, Saved(session)).Take();
    EXPECT_TRUE(loaded == session);
    EXPECT_EQ(loaded.RollBackTo("begin"), 0);
    EXPECT_TRUE(loaded == Session(model_));
    session.RollBackTo("begin");
  }
}

TEST_F(SessionFileTest, OtherModelsVersionsAndDamageAreRefused) {
  const Bytes good = Saved(Busy());
  EXPECT_EQ("no error", MessageOf(good));
  const LoadedModel other = Open("other", 2);
  EXPECT_NE(std::string::npos,
            std::string(Load(other, good).error().what()).find("model: want"));
  EXPECT_NE(std::string::npos,
            MessageOf(Replaced(good, "\"version\":\"2\"", "\"version\":\"9\""))
                .find("session: version: want 2, got '9'"));
  EXPECT_NE(
      std::string::npos,
      MessageOf(Replaced(good, "tarn-session", "tarn-sessioN")).find("format"));
  EXPECT_NE("no error", MessageOf(good.substr(0, good.size() - 1)));
  EXPECT_NE("no error", MessageOf(good + '\0'));
  EXPECT_NE("no error", MessageOf(""));
}

TEST_F(SessionFileTest, EveryChangedByteIsFoundOrChangesNothingOfValue) {
  const Session session = Busy();
  const Bytes good = Saved(session);
  Rng rng(5);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    // Half of them in the head, where the facts are.
    const size_t at = i % 2 == 0 ? rng.Below(3000) : rng.Below(good.size());
    Bytes bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << rng.Below(8)));
    const Result<Session> loaded = Load(model_, bad);
    if (!loaded.ok()) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(loaded.value() == session) << "byte " << at;
  }
  EXPECT_GT(refused, 2900);
}

// Files whose hash is right, as an attacker would write them.
class HostileSessionFile : public SessionFileTest {
 protected:
  // Rewrites the facts and the tensors of a good file, hash included.
  std::string Message(const std::string& from, const std::string& to,
                      int32_t token = -1, float number = 0) {
    const Bytes good = Saved(Busy());
    const auto data = reinterpret_cast<const uint8_t*>(good.data());
    const SafetensorsFile file =
        SafetensorsFile::OfBytes("good", {data, good.size()},
                                 SafetensorsTypes::kNumbersAndBytes)
            .Take();
    auto metadata = file.metadata();
    std::string& facts = metadata["session"];
    const size_t at = facts.find(from);
    EXPECT_NE(std::string::npos, at) << from << " in " << facts;
    if (at != std::string::npos) facts.replace(at, from.size(), to);
    std::map<std::string, Bytes> tensors;
    for (const TensorEntry& entry : file.tensors()) {
      tensors[entry.name].assign(
          reinterpret_cast<const char*>(file.Data(entry)),
          static_cast<size_t>(entry.elements()));
    }
    if (token != -1) std::memcpy(tensors["tokens"].data(), &token, 4);
    if (number != 0) {
      std::memcpy(tensors["earlier_states"].data(), &number, 4);
    }
    session_file::ContentsHash hash;
    hash.Add(facts);
    hash.Add(tensors["tokens"]);
    // By state, its block and its logits, as the writer does.
    const Session session = Busy();
    size_t next = 0;
    const auto add = [&](const SharedFloats& floats) {
      const auto bytes = static_cast<size_t>(floats.bytes());
      if (next + bytes > tensors["earlier_states"].size()) return;
      hash.Add(std::string_view(tensors["earlier_states"]).substr(next, bytes));
      next += bytes;
    };
    std::vector<std::shared_ptr<const StateMark>> states;
    const auto once = [&](const std::shared_ptr<const StateMark>& state) {
      if (state == nullptr ||
          std::find(states.begin(), states.end(), state) != states.end()) {
        return;
      }
      states.push_back(state);
      add(state->block);
      add(state->logits);
    };
    for (const Snapshot& s : session.snapshots()) once(s.mark);
    for (const auto& [name, mark] : session.marks()) once(mark.state);
    metadata["contents"] = hash.Text();
    std::vector<TensorToWrite> list;
    for (const char* name : {"state", "tokens", "earlier_states"}) {
      list.push_back({name,
                      DType::kF32,
                      {static_cast<int64_t>(tensors[name].size())},
                      nullptr,
                      true});
    }
    Bytes bytes = SafetensorsHead(list, metadata, SafetensorsOrder::kAsGiven);
    for (const char* name : {"state", "tokens", "earlier_states"}) {
      bytes += tensors[name];
    }
    return MessageOf(bytes);
  }
};

TEST_F(HostileSessionFile, FactsAreChecked) {
  EXPECT_EQ("no error", Message("\"text\"", "\"text\""));
  const std::pair<const char*, const char*> changes[] = {
      {"\"pending\":[", "\"pending\":[29,"},
      {"\"pending\":[", "\"pending\":[true,"},
      {"\"begin\":159", "\"begin\":99999"},
      {"\"begin\":159", "\"begin\":-1"},
      {"\"max_tokens\":1000", "\"max_tokens\":2"},
      {"\"max_tokens\":1000", "\"max_tokens\":-1"},
      {"\"stop_tokens\":[3]", "\"stop_tokens\":[29]"},
      {"\"stop_texts\":[[255", "\"stop_texts\":[[256"},
      {"\"temperature\":1.25", "\"temperature\":101"},
      {"\"temperature\":1.25", "\"temperature\":\"x\""},
      {"\"seed\":\"9", "\"seed\":\"-9"},
      {"\"state\":0", "\"state\":7"},
      {"\"state\":0", "\"state\":-1"},
      {"\"position\":64", "\"position\":0"},
      {"\"position\":64", "\"position\":9999"},
      {"\"logits\":false", "\"logits\":true"},
      {"\"logits\":true", "\"logits\":false"},
      {"\"early\":{\"position\":150", "\"early\":{\"position\":149"},
      {"\"early\"", "\"ear ly\""},
      {"\"marks\":{", "\"more\":1,\"marks\":{"},
      {"\"text\":{", "\"text\":[],\"x\":{"},
  };
  for (const auto& [from, to] : changes) {
    EXPECT_NE("no error", Message(from, to)) << from << " -> " << to;
  }
  EXPECT_NE("no error", Message("\"text\"", "\"text\"", 29));
  EXPECT_NE("no error", Message("\"text\"", "\"text\"", -1,
                                std::numeric_limits<float>::infinity()));
}

TEST_F(SessionFileTest, AFileHasFewOfTheSnapshotsAndAllThatWereAskedFor) {
  Session session(model_);
  session.KeepAt(100);
  session.Append(RandomTokens(model_.model.config(), 640, 2));
  const std::string path = folder_ / "long.session";
  SaveSession(session, path);
  Session loaded = LoadSession(model_, path).Take();
  EXPECT_TRUE(loaded == session);
  std::vector<int64_t> positions;
  for (const Snapshot& s : loaded.snapshots()) positions.push_back(s.position);
  // Of 64, 128, ... 640, at distances 0, 64, 128, 256 and 512.
  EXPECT_EQ((std::vector<int64_t>{100, 128, 384, 512, 576, 640}), positions);
  // What is read again is at most what was taken back, and the value the same.
  for (const int64_t back : {1, 60, 70, 200, 300, 600}) {
    Session a = session.Fork(), b = loaded.Fork();
    a.RollBack(640 - back);
    EXPECT_LE(b.RollBack(640 - back), std::max<int64_t>(back, 64));
    EXPECT_TRUE(a == b) << back;
  }
}

TEST_F(SessionFileTest, NothingIsWrittenOfASessionWithNaN) {
  Session session(model_);
  session.Append(RandomTokens(model_.model.config(), 100, 2));
  SessionParts parts(session);
  auto broken = std::make_shared<StateMark>();
  broken->position = 64;
  const SharedFloats& block = session.snapshots()[0].mark->block;
  broken->block = SharedFloats(block.size());
  broken->block.data()[0] = std::numeric_limits<float>::quiet_NaN();
  parts.marks["bad"] = {64, broken};
  const std::string path = folder_ / "nan.session";
  EXPECT_THROW(SaveSession(session, path), NumericError);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tarn::testing
