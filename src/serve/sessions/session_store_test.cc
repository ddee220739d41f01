// Sessions that clients hold: whose they are, where they are, and what is
// refused.
#include "serve/sessions/session_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "reference/test_model.h"

namespace tarn::serve {
namespace {

using namespace tarn::testing;

class SessionStoreTest : public ::testing::Test {
 protected:
  SessionStoreTest() {
    config_ = SmallConfig();
    config_.tokenizer = TokenizerKind::kIds;
    config_.positions = Positions::kNone;
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    WriteFileAtomically(folder_.path() + "/tokenizer.json",
                        Tokenizer::Ids(config_.vocab_size).ToJson());
    model_.emplace(
        LoadedModel::Open(ModelPath(folder_.path()), {.threads = 1}).Take());
    options_.folder = folder_ / "parked";
  }
  SessionStore Store() { return SessionStore(*model_, {}, options_); }
  void Read(SessionStore::Held held, int64_t count) {
    held->session->Append(RandomTokens(config_, count, 3));
  }
  int64_t Files() const {
    int64_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(options_.folder)) {
      count += entry.is_regular_file();
    }
    return count;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
  SessionStoreOptions options_;
};

TEST_F(SessionStoreTest, EachSpaceHasItsOwn) {
  SessionStore store = Store();
  Read(store.Create("alice", "a"), 5);
  Read(store.Create("bob", "a"), 7);
  EXPECT_EQ(5, store.Use("alice", "a")->session->position());
  EXPECT_EQ(7, store.Use("bob", "a")->session->position());
  EXPECT_EQ(1u, store.List("alice").size());
  EXPECT_THROW(store.Use("carol", "a"), NoSuchSession);
  EXPECT_THROW(store.Drop("carol", "a"), NoSuchSession);
  EXPECT_THROW(store.Fork("carol", "a"), NoSuchSession);
  EXPECT_THROW(store.Park("carol", "a"), NoSuchSession);
  EXPECT_EQ(nullptr, store.Find("carol", "a"));
  EXPECT_THROW(store.Create("alice", "a"), SessionConflict);
  for (const char* id : {"a b", "../a", "a/b", "\xff"}) {
    EXPECT_THROW(store.Create("alice", id), ArgumentError) << id;
  }
  EXPECT_THROW(store.Create("alice", std::string(65, 'a')), ArgumentError);
  EXPECT_NE(store.Create("alice")->id, store.Create("alice")->id);
}

TEST_F(SessionStoreTest, ParkedSessionsComeBackAsTheyWere) {
  SessionStore store = Store();
  Read(store.Create("", "a"), 100);
  const Session before = store.Use("", "a")->session->Fork();
  store.Park("", "a");
  EXPECT_FALSE(store.Find("", "a")->session);
  EXPECT_EQ(1, Files());
  EXPECT_TRUE(*store.Use("", "a")->session == before);
  EXPECT_EQ(1u, store.counts().restores);
  // Its file stays until it is written again or dropped.
  EXPECT_EQ(1, Files());
  store.Park("", "a");
  {
    SessionStore next = Store();  // another process
    EXPECT_TRUE(*next.Use("", "a")->session == before);
    EXPECT_THROW(next.Use("other", "a"), NoSuchSession);
    next.Drop("", "a");
    EXPECT_EQ(0, Files());
  }
}

TEST_F(SessionStoreTest, WhatIsInUseIsLeftAlone) {
  SessionStore store = Store();
  const auto held = store.Create("", "a");
  held->busy = true;
  EXPECT_THROW(store.Use("", "a"), SessionConflict);
  EXPECT_THROW(store.Drop("", "a"), SessionConflict);
  EXPECT_THROW(store.Park("", "a"), SessionConflict);
  EXPECT_EQ("a", store.Fork("", "a")->parent);  // between two steps
}

TEST_F(SessionStoreTest, MemoryIsBoundedByParking) {
  SessionStore first = Store();
  Read(first.Create("", "a"), 10);
  const int64_t one = first.counts().bytes;
  first.Drop("", "a");
  options_.memory = 2 * one + one / 2;
  SessionStore store = Store();
  for (const char* id : {"a", "b", "c", "d"}) {
    Read(store.Create("", id), 10);
    store.Fit();
  }
  EXPECT_EQ(2, store.counts().live);
  EXPECT_LE(store.counts().bytes, options_.memory);
  EXPECT_FALSE(store.Find("", "a")->session);  // the longest unused
  EXPECT_TRUE(store.Find("", "d")->session.has_value());
  EXPECT_EQ(10, store.Use("", "a")->session->position());
  store.Fit();
  EXPECT_FALSE(store.Find("", "c")->session);
}

TEST_F(SessionStoreTest, WithoutAFolderThereIsNoRoomForMore) {
  options_.folder.clear();
  options_.memory = 2 * model_->model.state_bytes();
  SessionStore store = Store();
  store.Create("", "a");
  store.Create("", "b");
  EXPECT_THROW(store.Create("", "c"), SessionsFull);
  EXPECT_THROW(store.Fork("", "a"), SessionsFull);
  EXPECT_THROW(store.Park("", "a"), ArgumentError);
  options_.most = 1;
  SessionStore few = Store();
  few.Create("", "a");
  EXPECT_THROW(few.Create("", "b"), SessionsFull);
}

TEST_F(SessionStoreTest, DiskIsBounded) {
  SessionStore store = Store();
  Read(store.Create("", "a"), 10);
  Read(store.Create("", "b"), 10);
  store.Park("", "a");
  options_.disk = store.counts().parked_bytes + 1;
  SessionStore next = Store();
  Read(next.Create("", "b"), 10);
  EXPECT_THROW(next.Park("", "b"), SessionsFull);
  EXPECT_TRUE(next.Find("", "b")->session.has_value());
  next.Use("", "a");
  next.Park("", "a");  // in place of its own file
}

TEST_F(SessionStoreTest, UnusedSessionsEnd) {
  SessionStore store = Store();
  store.Create("", "old")->used_at -= options_.seconds_to_live + 1;
  store.Create("", "new");
  const auto busy = store.Create("", "busy");
  busy->used_at -= options_.seconds_to_live + 1;
  busy->busy = true;
  store.Fit();
  EXPECT_EQ(nullptr, store.Find("", "old"));
  EXPECT_NE(nullptr, store.Find("", "new"));
  EXPECT_NE(nullptr, store.Find("", "busy"));
}

TEST_F(SessionStoreTest, OtherFilesAreNotTouched) {
  std::filesystem::create_directories(options_.folder);
  std::ofstream(options_.folder + "/note.txt") << "mine";
  std::filesystem::create_symlink("/etc/hostname",
                                  options_.folder + "/x.session");
  SessionStore store = Store();
  EXPECT_EQ(0, store.counts().parked);
  // A damaged file is an error of that session alone.
  Read(store.Create("", "a"), 10);
  store.Park("", "a");
  std::string path;
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.folder)) {
    if (entry.path().string().ends_with("-a.session")) path = entry.path();
  }
  ASSERT_NE("", path);
  std::filesystem::resize_file(path, 100);
  EXPECT_THROW(store.Use("", "a"), FormatError);
  store.Create("", "b");
  std::vector<std::string> failed;
  store.ParkAll([&](const Error& error) { failed.push_back(error.what()); });
  EXPECT_TRUE(failed.empty());
}

}  // namespace
}  // namespace tarn::serve
