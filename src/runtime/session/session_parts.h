// The parts of a session's file besides its state: what session_write.cc and
// session_read.cc agree on. Private to them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "runtime/session/session.h"

namespace tarn {

/// The parts of a Session for its file.
struct SessionParts {
  /// A session that stands at a state, of which it has nothing else yet.
  static Session At(const LoadedModel& model, State state,
                    const SnapshotOptions& options) {
    return Session(model, std::move(state), options);
  }

  template <typename S>
  explicit SessionParts(S& session)
      : state(const_cast<State&>(session.state_)),
        tokens(const_cast<std::vector<int32_t>&>(session.tokens_)),
        pending(const_cast<std::vector<int32_t>&>(session.pending_)),
        text(const_cast<std::optional<Sequence>&>(session.text_)),
        text_begin(const_cast<int64_t&>(session.text_begin_)),
        draw_states(
            const_cast<std::vector<SamplerState>&>(session.draw_states_)),
        snapshots(const_cast<Snapshots&>(session.snapshots_)),
        marks(const_cast<std::map<std::string, SessionMark>&>(session.marks_)) {
  }
  State& state;
  std::vector<int32_t>& tokens;
  std::vector<int32_t>& pending;
  std::optional<Sequence>& text;
  int64_t& text_begin;
  std::vector<SamplerState>& draw_states;
  Snapshots& snapshots;
  std::map<std::string, SessionMark>& marks;
};

namespace session_file {

inline constexpr char kFormat[] = "tarn-session";
inline constexpr char kVersion[] = "2";
// Tensors, all of bytes: the file of the state; int32 tokens; the floats of
// earlier states, each its fixed tensors and then its logits, if it has them.
inline constexpr char kState[] = "state";
inline constexpr char kTokens[] = "tokens";
inline constexpr char kEarlier[] = "earlier_states";
inline constexpr uint64_t kMaxFactsBytes = uint64_t{16} << 20;

/// The hash of everything but the state, whose file has one.
class ContentsHash {
 public:
  void Add(std::string_view bytes) {
    WideHash hash;
    hash.Add(bytes);
    hash_ = Mix(hash_ ^ hash.Finish());
  }
  std::string Text() const { return HashText(hash_); }

 private:
  uint64_t hash_ = 0;
};

inline std::string_view BytesOfTokens(const std::vector<int32_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()),
          tokens.size() * sizeof(int32_t)};
}
inline std::string_view BytesOfFloats(const SharedFloats& floats) {
  return {reinterpret_cast<const char*>(floats.data()),
          static_cast<size_t>(floats.bytes())};
}

}  // namespace session_file
}  // namespace tarn
