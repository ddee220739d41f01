#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "runtime/model/impl.h"
#include "runtime/session/sampler_json.h"
#include "runtime/session/session_file.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/state_file.h"
#include "runtime/session/state_parts.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;
using session_file::BytesOfFloats;
using session_file::BytesOfTokens;

Json TextFacts(const SessionParts& session) {
  if (!session.text) return nullptr;
  const SequenceOptions& options = session.text->options();
  Json text;
  text["begin"] = session.text_begin;
  text["max_tokens"] = session.text->max_tokens();
  text["stopped"] = session.text->end() == SequenceEnd::kStopToken;
  text["sampler"] = SamplerToJson(options.sampler);
  text["stop_tokens"] = options.stop_tokens;
  text["stop_texts"] = Json::array();
  for (const std::string& stop : options.stop_texts) {
    // Bytes that need not be UTF-8.
    text["stop_texts"].push_back(
        std::vector<uint8_t>(stop.begin(), stop.end()));
  }
  text["begins_text"] = options.begins_text;
  text["drawn_mu"] = Json::array();
  for (const SamplerState& state : session.draw_states) {
    text["drawn_mu"].push_back(state.mu);
  }
  text["grammar"] = nullptr;
  if (options.constraint != nullptr) {
    text["grammar"] = {{"kind", Name(options.constraint->kind())},
                       {"source", options.constraint->source()}};
  }
  return text;
}

// The snapshots that a file gets: those that were asked for, and others at
// distances from the head that at least double, so that the file of a long text
// stays small. Since neighbours on the grid are at most max(64, a quarter of
// their distance) apart, going back by d tokens reads some max(64, 1.5 d) again
// at most. The state itself serves as the snapshot at the head.
std::vector<Snapshot> SnapshotsOfFile(const SessionParts& session) {
  const int64_t head = session.state.position();
  std::vector<Snapshot> kept;
  const std::vector<Snapshot>& all = session.snapshots.all();
  int64_t least = 1;
  for (auto s = all.rbegin(); s != all.rend(); ++s) {
    const int64_t distance = head - s->position;
    if (!s->asked_for && distance < least) continue;
    if (!s->asked_for) least = 2 * distance;
    kept.push_back(*s);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

// What is written: facts as JSON, and the earlier states that they number.
struct SessionToWrite {
  explicit SessionToWrite(const Session& session) : parts(session) {
    Json root, snapshots = Json::array(), marks = Json::object();
    const std::span<const int32_t> pending = session.pending();
    root["pending"] = std::vector<int32_t>(pending.begin(), pending.end());
    root["text"] = TextFacts(parts);
    for (const Snapshot& s : SnapshotsOfFile(parts)) {
      snapshots.push_back(
          {{"state", NumberOf(s.mark)}, {"asked_for", s.asked_for}});
    }
    for (const auto& [name, mark] : parts.marks) {
      marks[name] = {{"position", mark.position},
                     {"state", mark.state ? NumberOf(mark.state) : -1}};
    }
    Json states = Json::array();
    for (const auto& state : earlier) {
      states.push_back({{"position", state->position},
                        {"logits", state->logits.size() > 0}});
      earlier_bytes += static_cast<uint64_t>(BytesOf(*state));
    }
    root["states"] = std::move(states);
    root["snapshots"] = std::move(snapshots);
    root["marks"] = std::move(marks);
    facts = root.dump();
  }

  int64_t NumberOf(const std::shared_ptr<const StateMark>& state) {
    const auto found = std::find(earlier.begin(), earlier.end(), state);
    const int64_t number = found - earlier.begin();
    if (found == earlier.end()) earlier.push_back(state);
    return number;
  }

  SessionParts parts;
  std::vector<std::shared_ptr<const StateMark>> earlier;
  uint64_t earlier_bytes = 0;
  std::string facts;
};

// Throws NumericError for what no session could continue from.
void CheckEarlier(const SessionToWrite& session) {
  const StateLayout& layout = Insides::Of(session.parts.state).layout();
  for (const auto& state : session.earlier) {
    const std::string bad = state_file::BadFixed(layout, *state);
    if (bad.empty()) continue;
    throw NumericError(
        StrCat("SaveSession: state at ", state->position, ": ", bad),
        "finite numbers", "NaN or infinity");
  }
}

std::string SessionHead(const SessionToWrite& session, uint64_t state_bytes) {
  session_file::ContentsHash hash;
  hash.Add(session.facts);
  hash.Add(BytesOfTokens(session.parts.tokens));
  for (const auto& state : session.earlier) {
    hash.Add(BytesOfFloats(state->block));
    hash.Add(BytesOfFloats(state->logits));
  }
  const auto bytes = [](const char* name, uint64_t size) {
    return TensorToWrite{
        name, DType::kF32, {static_cast<int64_t>(size)}, nullptr, true};
  };
  return SafetensorsHead(
      {bytes(session_file::kState, state_bytes),
       bytes(session_file::kTokens, BytesOfTokens(session.parts.tokens).size()),
       bytes(session_file::kEarlier, session.earlier_bytes)},
      {{"format", session_file::kFormat},
       {"version", session_file::kVersion},
       {"session", session.facts},
       {"contents", hash.Text()}},
      SafetensorsOrder::kAsGiven);
}

// A session that has been checked and can be written.
class SessionWriter {
 public:
  // Throws as SaveSession does before the first byte.
  explicit SessionWriter(const Session& session)
      : session_(session), state_(session.model().model, session.state()) {
    CheckEarlier(session_);
  }

  void Write(ByteSink& sink) const {
    const auto write = [&](std::string_view bytes) {
      sink.Write(bytes.data(), bytes.size());
    };
    write(SessionHead(session_, state_.bytes()));
    state_.Write(sink);
    write(BytesOfTokens(session_.parts.tokens));
    for (const auto& state : session_.earlier) {
      write(BytesOfFloats(state->block));
      write(BytesOfFloats(state->logits));
    }
  }

 private:
  const SessionToWrite session_;
  const StateWriter state_;
};

}  // namespace

void SaveSession(const Session& session, ByteSink& sink) {
  if (session.reads_ahead()) return SaveSession(session.Fork(), sink);
  SessionWriter(session).Write(sink);
}

void SaveSession(const Session& session, const std::string& path) {
  if (session.reads_ahead()) return SaveSession(session.Fork(), path);
  const SessionWriter writer(session);
  // After it: what cannot be saved leaves no file.
  AtomicFile file(path);
  writer.Write(file);
  file.Commit();
}

}  // namespace tarn
