// Sessions that clients hold by name: kept in memory within a bound, parked in
// files beyond it, private to whose they are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/schedule/text_request.h"

namespace tarn::serve {

struct SessionStoreOptions {
  int64_t most = 1024;                         // sessions, parked ones too
  int64_t memory = int64_t{1} << 30;           // bytes of those in memory
  std::string folder;                          // of parked ones; "": none
  int64_t disk = int64_t{8} << 30;             // bytes of the folder
  int64_t seconds_to_live = 7 * 24 * 60 * 60;  // without use
};

/// A request for something that is not there, or not the client's: which of
/// the two is not told.
class NoSuchSession : public Error {
 public:
  explicit NoSuchSession(const std::string& id);
};
/// In use by another request, or not where the client believes it to be.
class SessionConflict : public Error {
 public:
  SessionConflict(std::string code, const std::string& wanted,
                  const std::string& given);
  const std::string& conflict() const { return conflict_; }

 private:
  std::string conflict_;  // "session_busy", "position_mismatch", ...
};
/// No memory or disk left for another session.
class SessionsFull : public Error {
 public:
  SessionsFull(const std::string& what, int64_t most);
};

struct SessionCounts {
  int64_t live = 0, parked = 0, bytes = 0, parked_bytes = 0;
  uint64_t created = 0, forked = 0, parks = 0, restores = 0, rollbacks = 0;
  uint64_t replayed_tokens = 0;
};

/// Files are written under names that the store chooses, in a folder of one
/// process at a time; a session that is restored keeps its file until it is
/// parked again, dropped, or the store ends. Belongs to the scheduler's thread,
/// but for published().
class SessionStore {
 public:
  /// Finds the sessions that an earlier process parked. Throws IoError for a
  /// folder that cannot be made or read.
  SessionStore(const LoadedModel& model, const SnapshotOptions& snapshots,
               const SessionStoreOptions& options);

  using Held = std::shared_ptr<HeldSession>;

  /// An empty session. id: the client's, or "" for one that is made up. Throws
  /// ArgumentError for an id that is not 1 to 64 letters, digits, - and _,
  /// SessionConflict for one that is taken, SessionsFull.
  Held Create(const std::string& space, const std::string& id = "");
  /// A session at rest, restored where it was parked. Throws NoSuchSession,
  /// SessionConflict for one in use, and what LoadSession reports.
  Held Use(const std::string& space, const std::string& id);
  /// Without restoring it, in use or not.
  Held Find(const std::string& space, const std::string& id) const;
  std::vector<Held> List(const std::string& space) const;
  Held Fork(const std::string& space, const std::string& id,
            const std::string& new_id = "");
  int64_t RollBack(HeldSession& held, int64_t position);
  /// Into its file, out of memory. Throws ArgumentError without a folder.
  void Park(const std::string& space, const std::string& id);
  void Drop(const std::string& space, const std::string& id);
  /// Parks what has not been used for longest until the rest fits, and forgets
  /// what has outlived its time. Called after each use.
  void Fit();
  /// Parks all that rest, at the end of the process. Errors of single ones are
  /// given to `failed`.
  void ParkAll(const std::function<void(const Error&)>& failed);

  const SessionCounts& counts();
  /// Counts for other threads, as they were after the last call that created,
  /// moved or dropped a session, or at the last Publish.
  SessionCounts published() const;
  void Publish();
  /// Of a parked session: its file.
  int64_t parked_bytes(const HeldSession& held) const;
  int64_t parked_position(const HeldSession& held) const;

 private:
  struct File {
    int64_t bytes = 0, position = 0;
  };
  void CheckRoom() const;
  Held Insert(const std::string& space, const std::string& id);
  std::string PathOf(const HeldSession& held) const;
  void ParkHeld(HeldSession& held);
  void FindFiles();
  void RemoveFile(const std::string& key);

  const LoadedModel& model_;
  const SnapshotOptions snapshots_;
  const SessionStoreOptions options_;
  std::map<std::pair<std::string, std::string>, Held> held_;  // space, id
  std::map<std::string, File> files_;                         // by name
  uint64_t uses_ = 0;
  SessionCounts counts_;
  mutable std::mutex published_turn_;  // guards what follows
  SessionCounts published_;
};

}  // namespace tarn::serve
