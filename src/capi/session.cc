// Sessions of the C interface: made, run, gone back, parked.
#include "runtime/session/session.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "capi/session_object.h"
#include "capi/text_options.h"
#include "core/text.h"
#include "runtime/session/session_file.h"
#include "runtime/speculate/model_draft.h"
#include "runtime/speculate/mtp_draft.h"
#include "runtime/speculate/ngram_draft.h"

using tarn::capi::Guard;
using tarn::capi::Require;
using tarn::capi::Tokens;

namespace {

tarn::SnapshotOptions SnapshotOptionsOf(const tarn_session_options* options) {
  const tarn_session_options c = tarn::capi::ReadOptions(
      options, tarn_session_options TARN_SESSION_OPTIONS_INIT, "options");
  return {.max_bytes = tarn::capi::Count(c.snapshot_bytes),
          .every_token = tarn::capi::Count(c.every_token)};
}

static_assert(
    TARN_END_NONE == static_cast<int>(tarn::SequenceEnd::kNone) &&
    TARN_END_BUDGET == static_cast<int>(tarn::SequenceEnd::kBudget) &&
    TARN_END_STOP_TOKEN == static_cast<int>(tarn::SequenceEnd::kStopToken) &&
    TARN_END_STOP_TEXT == static_cast<int>(tarn::SequenceEnd::kStopText) &&
    TARN_END_GRAMMAR == static_cast<int>(tarn::SequenceEnd::kGrammar));

// The fields that the caller's version of the struct has.
void TellToken(const tarn_session_token& token, tarn_session_token* to) {
  const size_t size = to->struct_size;
  std::memcpy(to, &token, std::min(size, sizeof(token)));
  to->struct_size = size;
}

tarn_session_token NextToken(tarn_session& session) {
  tarn_session_token next = TARN_SESSION_TOKEN_INIT;
  const tarn::Sequence* text = session.session.text();
  if (text == nullptr) {
    throw tarn::ArgumentError("session", "one whose text has begun",
                              "one without a text");
  }
  session.session.Consume([&session] {
    return session.cancel != nullptr && session.cancel(session.user) != 0;
  });
  // Nothing fails once the token is drawn: it would be lost.
  std::string_view bytes = "";
  if (!text->ended()) {
    const int32_t token = session.session.Draw();
    bytes = text->text();
    if (text->end() != tarn::SequenceEnd::kStopToken) next.token = token;
  }
  next.end = static_cast<int32_t>(text->end());
  next.text = bytes.data();
  next.bytes = bytes.size();
  return next;
}

}  // namespace

tarn_status tarn_session_new(const tarn_model* model,
                             const tarn_session_options* options,
                             tarn_session** session, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(session, "session");
    *session = new tarn_session(
        model, tarn::Session(*model, SnapshotOptionsOf(options)));
  });
}

void tarn_session_free(tarn_session* session) {
  if (session == nullptr) return;
  const tarn_model* model = session->model;
  delete session;
  tarn::capi::Release(model);
}

tarn_status tarn_session_append(tarn_session* session, const int32_t* tokens,
                                uint64_t count, tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    session->session.Append(Tokens(tokens, count));
  });
}

tarn_status tarn_session_begin(tarn_session* session, const int32_t* prompt,
                               uint64_t count,
                               const tarn_generate_options* options,
                               tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    const tarn_generate_options c = tarn::capi::ReadOptions(
        options, tarn_generate_options TARN_GENERATE_OPTIONS_INIT, "options");
    if (c.callback != nullptr) {
      throw tarn::ArgumentError("options.callback", "NULL", "a function");
    }
    tarn::GenerateOptions generate =
        tarn::capi::GenerateOptionsOf(*session->model, c);
    session->session.Begin(Tokens(prompt, count),
                           {.sampler = std::move(generate.sampler),
                            .stop_tokens = std::move(generate.stop_tokens),
                            .stop_texts = std::move(generate.stop_texts),
                            .constraint = std::move(generate.constraint)},
                           generate.max_tokens);
    session->cancel = c.cancel;
    session->user = c.user;
  });
}

tarn_status tarn_session_next(tarn_session* session, tarn_session_token* token,
                              tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(token, "token");
    // Checked before the session changes.
    tarn::capi::ReadOptions(token, tarn_session_token TARN_SESSION_TOKEN_INIT,
                            "token");
    TellToken(NextToken(*session), token);
  });
}

tarn_status tarn_session_fork(const tarn_session* session,
                              const uint64_t* stream, tarn_session** fork,
                              tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(fork, "fork");
    std::optional<uint64_t> own;
    if (stream != nullptr) own = *stream;
    auto* made = new tarn_session(session->model, session->session.Fork(own));
    made->draft = session->draft;
    made->cancel = session->cancel;
    made->user = session->user;
    *fork = made;
  });
}

tarn_status tarn_session_speculate(tarn_session* session, int32_t source,
                                   const tarn_model* draft, uint32_t most,
                                   tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    std::unique_ptr<tarn::DraftSource> drafts;
    std::shared_ptr<const tarn_model> held;
    switch (source) {
      case TARN_DRAFT_NONE:
        break;
      case TARN_DRAFT_NGRAM:
        drafts = std::make_unique<tarn::NgramDraft>();
        break;
      case TARN_DRAFT_MODEL:
        Require(draft, "draft");
        drafts = std::make_unique<tarn::ModelDraft>(*draft, *session->model);
        tarn::capi::Hold(draft);
        held = {draft, tarn::capi::Release};
        break;
      case TARN_DRAFT_MTP:
        drafts = std::make_unique<tarn::MtpDraft>(*session->model);
        break;
      default:
        throw tarn::ArgumentError("source", "one of TARN_DRAFT_*",
                                  tarn::StrCat(source));
    }
    tarn::SpeculationOptions options;
    if (most != 0) options.most = most;
    session->session.Speculate(std::move(drafts), options);
    session->draft = std::move(held);
  });
}

tarn_status tarn_session_mark(tarn_session* session, const char* name,
                              tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(name, "name");
    session->session.Mark(name);
  });
}

tarn_status tarn_session_mark_position(const tarn_session* session,
                                       const char* name, uint64_t* position,
                                       tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(name, "name");
    Require(position, "position");
    const auto mark = session->session.marks().find(name);
    if (mark == session->session.marks().end()) {
      throw tarn::ArgumentError("session: mark", "the name of a mark",
                                tarn::Quoted(std::string_view(name).substr(
                                    0, 2 * tarn::kMaxMarkName)));
    }
    *position = static_cast<uint64_t>(mark->second.position);
  });
}

tarn_status tarn_session_rollback(tarn_session* session, uint64_t position,
                                  uint64_t* replayed, tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    const int64_t read = session->session.RollBack(tarn::capi::Count(position));
    if (replayed != nullptr) *replayed = static_cast<uint64_t>(read);
  });
}

tarn_status tarn_session_rollback_to(tarn_session* session, const char* mark,
                                     uint64_t* replayed, tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(mark, "mark");
    const int64_t read = session->session.RollBackTo(mark);
    if (replayed != nullptr) *replayed = static_cast<uint64_t>(read);
  });
}

tarn_status tarn_session_save(const tarn_session* session, const char* path,
                              tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(path, "path");
    tarn::SaveSession(session->session, path);
  });
}

tarn_status tarn_session_load(const tarn_model* model, const char* path,
                              const tarn_session_options* options,
                              tarn_session** session, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(path, "path");
    Require(session, "session");
    const std::string name = path;
    *session = new tarn_session(
        model,
        tarn::LoadSession(*model, name, SnapshotOptionsOf(options)).Take());
  });
}

tarn_status tarn_session_serialize(const tarn_session* session, void* bytes,
                                   uint64_t capacity, uint64_t* size,
                                   tarn_error** error) {
  return Guard(error, [&] {
    Require(session, "session");
    Require(size, "size");
    std::string file;
    tarn::StringSink sink(file);
    tarn::SaveSession(session->session, sink);
    *size = file.size();
    if (bytes == nullptr) return;
    if (capacity < *size) {
      throw tarn::ShapeError("capacity", tarn::StrCat("at least ", *size),
                             tarn::StrCat(capacity));
    }
    std::memcpy(bytes, file.data(), file.size());
  });
}

tarn_status tarn_session_deserialize(const tarn_model* model, const void* bytes,
                                     uint64_t size,
                                     const tarn_session_options* options,
                                     tarn_session** session,
                                     tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(session, "session");
    if (size > 0) Require(bytes, "bytes");
    const std::span<const uint8_t> file(static_cast<const uint8_t*>(bytes),
                                        static_cast<size_t>(size));
    *session = new tarn_session(
        model,
        tarn::LoadSession(*model, file, "session", SnapshotOptionsOf(options))
            .Take());
  });
}
