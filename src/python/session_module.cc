#include "python/session_module.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/binding/array.h"
#include "python/binding/class.h"
#include "python/binding/function.h"
#include "python/model_object.h"
#include "python/sampling_module.h"
#include "runtime/generate/generate.h"
#include "runtime/session/prefix_cache.h"
#include "runtime/session/session.h"
#include "runtime/session/session_file.h"
#include "runtime/speculate/model_draft.h"
#include "runtime/speculate/mtp_draft.h"
#include "runtime/speculate/ngram_draft.h"

namespace tarn::python {
namespace {

NewArray<int32_t, 1> CopyOfIds(std::span<const int32_t> tokens) {
  NewArray<int32_t, 1> copy({tokens.size()});
  std::copy(tokens.begin(), tokens.end(), copy.data());
  return copy;
}

const char* WordOf(SequenceEnd end) {
  switch (end) {
    case SequenceEnd::kBudget:
      return "budget";
    case SequenceEnd::kStopToken:
      return "stop token";
    case SequenceEnd::kStopText:
      return "stop text";
    case SequenceEnd::kGrammar:
      return "grammar";
    default:
      return "";
  }
}

// Whether a thread is in a call. It is read and written with the interpreter's
// lock, so calls take it before they let other threads run.
class Use {
 public:
  explicit Use(bool& busy) : busy_(busy) {
    if (busy) {
      throw ArgumentError("session or cache", "one that is in no other call",
                          "one that another thread or a signal's handler uses");
    }
    busy_ = true;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { busy_ = false; }

 private:
  bool& busy_;
};

// Python keeps the model alive. One call at a time.
class PySession {
 public:
  explicit PySession(Session session) : session_(std::move(session)) {}

  static SnapshotOptions Options(int64_t max_bytes, int64_t every_token) {
    return {.max_bytes = max_bytes, .every_token = every_token};
  }

  Session& session() { return session_; }
  bool& busy() const { return busy_; }

  void Append(const Tokens& tokens) {
    const Use use(busy_);
    Interruptible(
        [&](const StopCheck& stop) { session_.Append(tokens.Flat(), stop); });
  }

  // kind: of the grammar, "" without one.
  void Begin(const PyModel& model, const Tokens& prompt, int64_t max_tokens,
             const GivenOptions& given, uint64_t seed, uint64_t stream,
             const std::vector<Bytes>& stop,
             const std::vector<int32_t>& stop_tokens, const std::string& kind,
             const Bytes& source) {
    const Use use(busy_);
    SequenceOptions options;
    options.sampler = OptionsOf(given, model.defaults().sampler);
    options.sampler.seed = seed;
    options.sampler.stream = stream;
    options.stop_tokens = stop_tokens;
    options.stop_texts = Copies(stop);
    const Unlocked unlocked;
    if (!kind.empty()) {
      options.constraint = Constraint::Make(GrammarKindOf(kind, "grammar"),
                                            std::string(source.text),
                                            model.tokenizer(), stop_tokens)
                               .Take();
    }
    if (max_tokens == kAutoTokens) {
      const int64_t room = model.model().max_tokens() - session_.position() -
                           static_cast<int64_t>(session_.pending().size()) -
                           static_cast<int64_t>(prompt.shape(0));
      max_tokens = std::clamp<int64_t>(room, 0, kDefaultTokens);
    }
    session_.Begin(prompt.Flat(), options, max_tokens);
  }

  // The next token, -1 for none, and the bytes that it settles; None once the
  // text has ended, with nothing pending then.
  std::optional<std::tuple<int32_t, NewBytes>> Next() {
    const Use use(busy_);
    const Sequence* text = session_.text();
    if (text == nullptr) {
      throw ArgumentError("session", "one whose text has begun",
                          "one without a text");
    }
    Interruptible([&](const StopCheck& stop) { session_.Consume(stop); });
    if (text->ended()) return std::nullopt;
    int32_t token = -1;
    {
      const Unlocked unlocked;
      token = session_.Draw();
    }
    if (text->end() == SequenceEnd::kStopToken) token = -1;
    return std::tuple<int32_t, NewBytes>{token, {std::string(text->text())}};
  }

  // "": it continues; nothing without a text.
  std::optional<std::string> End() const {
    const Use use(busy_);
    if (session_.text() == nullptr) return std::nullopt;
    return std::string(WordOf(session_.text()->end()));
  }

  PySession Fork(bool own, uint64_t stream) const {
    const Use use(busy_);
    const Unlocked unlocked;
    return PySession(own ? session_.Fork(stream) : session_.Fork());
  }

  void DraftNothing() {
    const Use use(busy_);
    session_.Speculate(nullptr);
  }
  void DraftRepeats(int64_t most) {
    const Use use(busy_);
    session_.Speculate(std::make_unique<NgramDraft>(), {.most = most});
  }
  // Python keeps the draft model alive.
  void DraftWith(const PyModel& draft, int64_t most) {
    const Use use(busy_);
    const Unlocked unlocked;
    session_.Speculate(
        std::make_unique<ModelDraft>(draft.loaded(), session_.model()),
        {.most = most});
  }
  void DraftMtp(int64_t most, bool adapts) {
    const Use use(busy_);
    const Unlocked unlocked;
    session_.Speculate(std::make_unique<MtpDraft>(session_.model()),
                       {.most = most, .adapts = adapts});
  }
  std::tuple<int64_t, int64_t> DraftCounts() const {
    const Use use(busy_);
    const SpeculationCounts counts = session_.speculation();
    return {counts.drafted, counts.accepted};
  }

  void Mark(const std::string& name) {
    const Use use(busy_);
    const Unlocked unlocked;
    session_.Mark(name);
  }
  bool Unmark(const std::string& name) {
    const Use use(busy_);
    return session_.Unmark(name);
  }
  std::vector<std::tuple<std::string, int64_t>> Marks() const {
    const Use use(busy_);
    std::vector<std::tuple<std::string, int64_t>> marks;
    for (const auto& [name, mark] : session_.marks()) {
      marks.emplace_back(name, mark.position);
    }
    return marks;
  }

  int64_t RollBack(int64_t position) {
    const Use use(busy_);
    int64_t replayed = 0;
    Interruptible([&](const StopCheck& stop) {
      replayed = session_.RollBack(position, stop);
    });
    return replayed;
  }
  int64_t RollBackTo(const std::string& mark) {
    const Use use(busy_);
    int64_t replayed = 0;
    Interruptible([&](const StopCheck& stop) {
      replayed = session_.RollBackTo(mark, stop);
    });
    return replayed;
  }

  void Save(const Bytes& name) const {
    const Use use(busy_);
    const std::string path = Path(name);
    const Unlocked unlocked;
    SaveSession(session_, path);
  }

  NewBytes ToBytes() const {
    const Use use(busy_);
    NewBytes bytes;
    const Unlocked unlocked;
    StringSink sink(bytes.text);
    SaveSession(session_, sink);
    return bytes;
  }

  bool Equals(const PySession& other) const {
    if (&other == this) return true;
    const Use use(busy_), used(other.busy_);
    const Unlocked unlocked;
    return session_ == other.session_;
  }

  int64_t position() const {
    const Use use(busy_);
    return session_.position();
  }
  int64_t state_bytes() const {
    const Use use(busy_);
    return session_.state_bytes();
  }
  int64_t snapshot_bytes() const {
    const Use use(busy_);
    return session_.snapshot_bytes();
  }
  NewArray<int32_t, 1> TokensRead() const {
    const Use use(busy_);
    return CopyOfIds(session_.tokens());
  }
  NewArray<int32_t, 1> Pending() const {
    const Use use(busy_);
    return CopyOfIds(session_.pending());
  }
  // Of the latest draft, for tests.
  std::optional<NewArray<float, 1>> DraftLogits() const {
    const Use use(busy_);
    const std::span<const float> logits = session_.draft_logits();
    if (logits.empty()) return std::nullopt;
    NewArray<float, 1> copy({logits.size()});
    std::copy(logits.begin(), logits.end(), copy.data());
    return copy;
  }

  std::optional<NewArray<float, 1>> Logits() const {
    const Use use(busy_);
    const std::span<const float> logits = session_.logits();
    if (logits.empty()) return std::nullopt;
    NewArray<float, 1> copy({logits.size()});
    std::copy(logits.begin(), logits.end(), copy.data());
    return copy;
  }

 private:
  Session session_;
  mutable bool busy_ = false;
};

// Of one model, which Python keeps alive.
class PyPrefixCache {
 public:
  explicit PyPrefixCache(int64_t max_bytes) : cache_(max_bytes) {}

  int64_t Restore(PySession& session, const Tokens& tokens,
                  const Bytes& space) {
    const std::string name(space.text);
    const Use use(busy_), used(session.busy());
    const Unlocked unlocked;
    return cache_.Restore(name, tokens.Flat(), session.session());
  }
  void Insert(PySession& session, const Bytes& space) {
    const std::string name(space.text);
    const Use use(busy_), used(session.busy());
    const Unlocked unlocked;
    cache_.Insert(name, session.session());
  }
  int64_t bytes() const {
    const Use use(busy_);
    return cache_.bytes();
  }

 private:
  PrefixCache cache_;
  mutable bool busy_ = false;
};

void AddPrefixCache(PyObject* module) {
  static PyMethodDef methods[] = {Method<&PyPrefixCache::Restore>("restore"),
                                  Method<&PyPrefixCache::Insert>("insert"),
                                  kLastMethod};
  static PyGetSetDef properties[] = {Property<&PyPrefixCache::bytes>("bytes"),
                                     kLastProperty};
  constexpr auto make = [](const PyModel&, int64_t max_bytes) {
    return std::make_unique<PyPrefixCache>(max_bytes);
  };
  Class<PyPrefixCache>::Add(module, "_tarn_runtime.PrefixCache", methods,
                            properties, &Construct<make, /*owners=*/1>);
}

}  // namespace

void AddSessions(PyObject* module) {
  static PyMethodDef methods[] = {
      Method<&PySession::Append>("append"),
      Method<&PySession::Begin>("begin"),
      Method<&PySession::Next>("next"),
      Method<&PySession::Fork>("fork"),
      Method<&PySession::DraftNothing>("draft_nothing"),
      Method<&PySession::DraftRepeats>("draft_repeats"),
      Method<&PySession::DraftWith>("draft_with"),
      Method<&PySession::DraftMtp>("draft_mtp"),
      Method<&PySession::Mark>("mark"),
      Method<&PySession::Unmark>("unmark"),
      Method<&PySession::RollBack>("roll_back"),
      Method<&PySession::RollBackTo>("roll_back_to"),
      Method<&PySession::Save>("save"),
      Method<&PySession::ToBytes>("to_bytes"),
      Method<&PySession::Equals>("equals"),
      kLastMethod};
  static PyGetSetDef properties[] = {
      Property<&PySession::position>("position"),
      Property<&PySession::state_bytes>("state_bytes"),
      Property<&PySession::snapshot_bytes>("snapshot_bytes"),
      Property<&PySession::TokensRead>("tokens"),
      Property<&PySession::Pending>("pending"),
      Property<&PySession::Logits>("logits"),
      Property<&PySession::Marks>("marks"),
      Property<&PySession::End>("end"),
      Property<&PySession::DraftCounts>("draft_counts"),
      Property<&PySession::DraftLogits>("draft_logits"),
      kLastProperty};
  // A session of the file `given` with "path", of its bytes with "bytes"; else
  // a new one.
  constexpr auto make = [](const PyModel& model, int64_t max_bytes,
                           int64_t every_token, const std::string& from,
                           const Bytes& given) {
    const SnapshotOptions options = PySession::Options(max_bytes, every_token);
    if (from == "bytes") {
      const std::span<const uint8_t> bytes(
          reinterpret_cast<const uint8_t*>(given.text.data()),
          given.text.size());
      const Unlocked unlocked;
      return std::make_unique<PySession>(
          LoadSession(model.loaded(), bytes, "session", options).Take());
    }
    const std::string path = Path(given);
    const Unlocked unlocked;
    if (from != "path") {
      return std::make_unique<PySession>(Session(model.loaded(), options));
    }
    return std::make_unique<PySession>(
        LoadSession(model.loaded(), path, options).Take());
  };
  Class<PySession>::Add(module, "_tarn_runtime.Session", methods, properties,
                        &Construct<make, /*owners=*/1>);
  AddPrefixCache(module);
}

}  // namespace tarn::python
