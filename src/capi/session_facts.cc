// What the C interface tells of a session.
#include <span>

#include "capi/session_object.h"

using tarn::capi::CopyOut;
using tarn::capi::Guard;
using tarn::capi::Require;

int32_t tarn_session_unmark(tarn_session* session, const char* name) {
  if (session == nullptr || name == nullptr) return 0;
  // A name that is too long for a mark is none; it is not copied whole.
  const size_t size = strnlen(name, tarn::kMaxMarkName + 1);
  if (size > tarn::kMaxMarkName) return 0;
  int32_t found = 0;
  const tarn_status status = Guard(nullptr, [&] {
    found = session->session.Unmark(std::string(name, size)) ? 1 : 0;
  });
  return status == TARN_OK ? found : 0;
}

uint64_t tarn_session_position(const tarn_session* session) {
  return session == nullptr
             ? 0
             : static_cast<uint64_t>(session->session.position());
}

uint64_t tarn_session_state_bytes(const tarn_session* session) {
  return session == nullptr
             ? 0
             : static_cast<uint64_t>(session->session.state_bytes());
}

uint64_t tarn_session_snapshot_bytes(const tarn_session* session) {
  return session == nullptr
             ? 0
             : static_cast<uint64_t>(session->session.snapshot_bytes());
}

tarn_status tarn_session_tokens(const tarn_session* session, int32_t* tokens,
                                uint64_t capacity, uint64_t* count,
                                tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(count, "count");
    const std::span<const int32_t> all = session->session.tokens();
    CopyOut(all.data(), all.size(), tokens, capacity, count);
  });
}

tarn_status tarn_session_pending(const tarn_session* session, int32_t* tokens,
                                 uint64_t capacity, uint64_t* count,
                                 tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(count, "count");
    const std::span<const int32_t> all = session->session.pending();
    CopyOut(all.data(), all.size(), tokens, capacity, count);
  });
}

const float* tarn_session_logits(const tarn_session* session, uint64_t* count) {
  std::span<const float> logits;
  if (session != nullptr) logits = session->session.logits();
  if (count != nullptr) *count = logits.size();
  return logits.empty() ? nullptr : logits.data();
}

void tarn_session_draft_counts(const tarn_session* session, uint64_t* drafted,
                               uint64_t* accepted) {
  tarn::SpeculationCounts counts;
  if (session != nullptr) counts = session->session.speculation();
  if (drafted != nullptr) *drafted = static_cast<uint64_t>(counts.drafted);
  if (accepted != nullptr) {
    *accepted = static_cast<uint64_t>(counts.accepted);
  }
}

int32_t tarn_session_equal(const tarn_session* a, const tarn_session* b) {
  if (a == nullptr || b == nullptr || a->model != b->model) return 0;
  return a->session == b->session ? 1 : 0;
}
