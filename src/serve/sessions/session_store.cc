#include "serve/sessions/session_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "core/hash.h"
#include "core/text.h"
#include "runtime/session/session_file.h"

namespace tarn::serve {
namespace {

constexpr char kSuffix[] = ".session";

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// 128 bits that cannot be guessed.
std::string NewId() {
  std::random_device device;
  std::string id = "s_";
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = device();
    for (int shift = 28; shift >= 0; shift -= 4) {
      id += "0123456789abcdef"[(word >> shift) & 15];
    }
  }
  return id;
}

void CheckId(const std::string& id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (!id.empty() && id.size() <= 64 &&
      std::all_of(id.begin(), id.end(), allowed)) {
    return;
  }
  throw ArgumentError("id", "1 to 64 letters, digits, - and _",
                      Quoted(id.substr(0, 128)));
}

}  // namespace

NoSuchSession::NoSuchSession(const std::string& id)
    : Error(ErrorCode::kArgument, "session", "the id of a session",
            Quoted(id.substr(0, 128))) {}

SessionConflict::SessionConflict(std::string code, const std::string& wanted,
                                 const std::string& given)
    : Error(ErrorCode::kArgument, "session", wanted, given),
      conflict_(std::move(code)) {}

SessionsFull::SessionsFull(const std::string& what, int64_t most)
    : Error(ErrorCode::kIo, "sessions", StrCat("at most ", most, " ", what),
            "more") {}

SessionStore::SessionStore(const LoadedModel& model,
                           const SnapshotOptions& snapshots,
                           const SessionStoreOptions& options)
    : model_(model), snapshots_(snapshots), options_(options) {
  if (!options_.folder.empty()) FindFiles();
  Publish();
}

// A file is named by its space, as a hash, and its id: the space itself may
// have any bytes.
std::string SessionStore::PathOf(const HeldSession& held) const {
  return StrCat(options_.folder, "/", HashText(HashBytes(held.space)), "-",
                held.id, kSuffix);
}

// Parked sessions of an earlier process. Their spaces are known by hash alone,
// and a session is found under it when it is asked for.
void SessionStore::FindFiles() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) {
    throw IoError(options_.folder, "a folder for parked sessions",
                  error.message());
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.folder, error)) {
    const std::string name = entry.path().filename().string();
    // No link is followed: it may lead out of the folder.
    if (!name.ends_with(kSuffix) || entry.is_symlink(error) ||
        !entry.is_regular_file(error)) {
      continue;
    }
    files_[entry.path().string()] = {
        static_cast<int64_t>(entry.file_size(error)), -1};
  }
  if (error) {
    throw IoError(options_.folder, "a readable folder", error.message());
  }
}

SessionStore::Held SessionStore::Insert(const std::string& space,
                                        const std::string& id) {
  if (static_cast<int64_t>(held_.size()) >= options_.most) {
    throw SessionsFull("sessions", options_.most);
  }
  auto held = std::make_shared<HeldSession>();
  held->id = id;
  held->space = space;
  held->created = Now();
  held->used = ++uses_;
  held->used_at = held->created;
  held_[{space, id}] = held;
  return held;
}

// Beyond the memory, sessions are parked; without a folder there is no other
// place for one more.
void SessionStore::CheckRoom() const {
  if (!options_.folder.empty()) return;
  int64_t bytes = model_.model.state_bytes();
  for (const auto& [key, held] : held_) {
    if (!held->session) continue;
    bytes += held->session->state_bytes() + held->session->snapshot_bytes();
  }
  if (bytes > options_.memory) {
    throw SessionsFull("bytes of sessions", options_.memory);
  }
}

SessionStore::Held SessionStore::Create(const std::string& space,
                                        const std::string& id) {
  if (!id.empty()) CheckId(id);
  const std::string name = id.empty() ? NewId() : id;
  if (Find(space, name) != nullptr) {
    throw SessionConflict("session_exists", "a new id", Quoted(name));
  }
  CheckRoom();
  Session session(model_, snapshots_);
  const Held held = Insert(space, name);
  held->session.emplace(std::move(session));
  ++counts_.created;
  Publish();
  return held;
}

SessionStore::Held SessionStore::Find(const std::string& space,
                                      const std::string& id) const {
  const auto found = held_.find({space, id});
  if (found != held_.end()) return found->second;
  // One that an earlier process parked.
  HeldSession probe;
  probe.space = space;
  probe.id = id;
  if (options_.folder.empty() || !files_.contains(PathOf(probe))) {
    return nullptr;
  }
  return const_cast<SessionStore*>(this)->Insert(space, id);
}

SessionStore::Held SessionStore::Use(const std::string& space,
                                     const std::string& id) {
  const Held held = Find(space, id);
  if (held == nullptr) throw NoSuchSession(id);
  if (held->busy) {
    throw SessionConflict("session_busy", "a session at rest", "one in use");
  }
  if (!held->session) {
    held->session.emplace(
        LoadSession(model_, PathOf(*held), snapshots_).Take());
    ++counts_.restores;
    Publish();
  }
  held->used = ++uses_;
  held->used_at = Now();
  return held;
}

std::vector<SessionStore::Held> SessionStore::List(
    const std::string& space) const {
  std::vector<Held> list;
  for (auto at = held_.lower_bound({space, ""});
       at != held_.end() && at->first.first == space; ++at) {
    list.push_back(at->second);
  }
  return list;
}

SessionStore::Held SessionStore::Fork(const std::string& space,
                                      const std::string& id,
                                      const std::string& new_id) {
  if (!new_id.empty()) CheckId(new_id);
  const Held from = Find(space, id);
  if (from == nullptr) throw NoSuchSession(id);
  // One that is writing a text may be forked, too: it stands between two
  // steps, and its last token is pending in both.
  if (!from->busy) Use(space, id);
  CheckRoom();
  Session copy = from->session->Fork();
  const std::string name = new_id.empty() ? NewId() : new_id;
  if (Find(space, name) != nullptr) {
    throw SessionConflict("session_exists", "a new id", Quoted(name));
  }
  const Held held = Insert(space, name);
  held->session.emplace(std::move(copy));
  held->parent = id;
  held->forked_at = held->session->position();
  ++counts_.forked;
  Publish();
  return held;
}

int64_t SessionStore::RollBack(HeldSession& held, int64_t position) {
  const int64_t replayed = held.session->RollBack(position);
  ++counts_.rollbacks;
  counts_.replayed_tokens += static_cast<uint64_t>(replayed);
  Publish();
  return replayed;
}

void SessionStore::ParkHeld(HeldSession& held) {
  const std::string path = PathOf(held);
  std::string bytes;
  StringSink sink(bytes);
  SaveSession(*held.session, sink);
  int64_t used = static_cast<int64_t>(bytes.size());
  for (const auto& [name, file] : files_) {
    if (name != path) used += file.bytes;
  }
  if (used > options_.disk) {
    throw SessionsFull("bytes of parked sessions", options_.disk);
  }
  WriteFileAtomically(path, bytes);
  files_[path] = {static_cast<int64_t>(bytes.size()), held.session->position()};
  held.session.reset();
  ++counts_.parks;
  Publish();
}

void SessionStore::Park(const std::string& space, const std::string& id) {
  if (options_.folder.empty()) {
    throw ArgumentError("park", "a server with a folder for parked sessions",
                        "one without");
  }
  const Held held = Find(space, id);
  if (held == nullptr) throw NoSuchSession(id);
  if (held->busy) {
    throw SessionConflict("session_busy", "a session at rest", "one in use");
  }
  if (held->session) ParkHeld(*held);
}

void SessionStore::RemoveFile(const std::string& path) {
  if (files_.erase(path) == 0) return;
  std::error_code ignored;  // what is gone is gone
  std::filesystem::remove(path, ignored);
}

void SessionStore::Drop(const std::string& space, const std::string& id) {
  const Held held = Find(space, id);
  if (held == nullptr) throw NoSuchSession(id);
  if (held->busy) {
    throw SessionConflict("session_busy", "a session at rest", "one in use");
  }
  if (!options_.folder.empty()) RemoveFile(PathOf(*held));
  held_.erase({space, id});
  Publish();
}

void SessionStore::Fit() {
  const int64_t now = Now();
  std::vector<Held> resting;
  int64_t bytes = 0;
  for (const auto& [key, held] : held_) {
    if (held->session) {
      bytes += held->session->state_bytes() + held->session->snapshot_bytes();
    }
    if (!held->busy) resting.push_back(held);
  }
  std::sort(resting.begin(), resting.end(),
            [](const Held& a, const Held& b) { return a->used < b->used; });
  for (const Held& held : resting) {
    if (now - held->used_at > options_.seconds_to_live) {
      if (held->session) {
        bytes -= held->session->state_bytes() + held->session->snapshot_bytes();
      }
      Drop(held->space, held->id);
      continue;
    }
    if (bytes <= options_.memory || !held->session) continue;
    if (options_.folder.empty()) continue;
    const int64_t its =
        held->session->state_bytes() + held->session->snapshot_bytes();
    ParkHeld(*held);
    bytes -= its;
  }
}

void SessionStore::ParkAll(const std::function<void(const Error&)>& failed) {
  if (options_.folder.empty()) return;
  for (const auto& [key, held] : held_) {
    if (!held->session) continue;
    try {
      ParkHeld(*held);
    } catch (const Error& error) {
      failed(error);
    }
  }
}

const SessionCounts& SessionStore::counts() {
  counts_.live = counts_.parked = counts_.bytes = counts_.parked_bytes = 0;
  for (const auto& [key, held] : held_) {
    if (held->session) {
      ++counts_.live;
      counts_.bytes +=
          held->session->state_bytes() + held->session->snapshot_bytes();
    }
  }
  for (const auto& [name, file] : files_) counts_.parked_bytes += file.bytes;
  counts_.parked = static_cast<int64_t>(files_.size());
  return counts_;
}

void SessionStore::Publish() {
  const SessionCounts now = counts();
  const std::lock_guard lock(published_turn_);
  published_ = now;
}

SessionCounts SessionStore::published() const {
  const std::lock_guard lock(published_turn_);
  return published_;
}

int64_t SessionStore::parked_bytes(const HeldSession& held) const {
  const auto found = files_.find(PathOf(held));
  return found == files_.end() ? 0 : found->second.bytes;
}

int64_t SessionStore::parked_position(const HeldSession& held) const {
  const auto found = files_.find(PathOf(held));
  return found == files_.end() ? -1 : found->second.position;
}

}  // namespace tarn::serve
