#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/json/json_object.h"
#include "core/safetensors.h"
#include "runtime/model/impl.h"
#include "runtime/session/sampler_json.h"
#include "runtime/session/session_file.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/state_file.h"
#include "runtime/session/state_parts.h"

namespace tarn {
namespace {

using session_file::ContentsHash;
using States = std::vector<std::shared_ptr<const StateMark>>;

class SessionReader {
 public:
  SessionReader(const SafetensorsFile& file, std::string name)
      : file_(file), name_(std::move(name)) {}

  // Throws Error.
  Session Read(const LoadedModel& model, const SnapshotOptions& options) {
    CheckHead();
    Session session = SessionParts::At(
        model,
        LoadState(model.model, BytesOf(session_file::kState), name_ + ": state")
            .Take(),
        options);
    SessionParts parts(session);
    ReadTokens(model.model, parts);
    const nlohmann::json root = ParseStrictJson(facts_, name_ + ": session",
                                                session_file::kMaxFactsBytes)
                                    .Take();
    const JsonObject facts(root, name_ + ": session");
    facts.WantKeys({"pending", "text", "states", "snapshots", "marks"});
    States states = ReadEarlier(facts, parts);
    CheckHash();
    ReadSnapshots(facts, states, parts);
    ReadMarks(facts, states, parts);
    const int32_t last_id = static_cast<int32_t>(model.model.vocab_size()) - 1;
    std::vector<int32_t> pending = facts.Integers("pending", 0, last_id);
    ReadText(facts, model, std::move(pending), parts);
    return session;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError(StrCat(name_, ": ", what), wanted, given);
  }
  const std::string& Metadata(const char* key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) Refuse(key, "an entry", "none");
    return found->second;
  }
  std::span<const uint8_t> BytesOf(const char* tensor) const {
    const TensorEntry* entry = file_.Find(tensor);
    if (entry == nullptr || !entry->is_bytes || entry->shape.size() != 1) {
      Refuse(StrCat("tensor ", tensor), "a row of U8", "none");
    }
    return {file_.Data(*entry), static_cast<size_t>(entry->shape[0])};
  }

  void CheckHead() {
    for (const auto& [key, wanted] :
         {std::pair{"format", session_file::kFormat},
          std::pair{"version", session_file::kVersion}}) {
      if (Metadata(key) != wanted) Refuse(key, wanted, Quoted(Metadata(key)));
    }
    facts_ = Metadata("session");
    if (file_.tensors().size() != 3) {
      Refuse("tensors", "3", StrCat(file_.tensors().size()));
    }
  }

  void ReadTokens(const Model& model, SessionParts& parts) {
    const std::span<const uint8_t> bytes = BytesOf(session_file::kTokens);
    const uint64_t wanted =
        static_cast<uint64_t>(parts.state.position()) * sizeof(int32_t);
    if (bytes.size() != wanted) {
      Refuse("tensor tokens", StrCat(wanted, " bytes, those of the state"),
             StrCat(bytes.size()));
    }
    parts.tokens.resize(bytes.size() / sizeof(int32_t));
    if (!bytes.empty()) {
      std::memcpy(parts.tokens.data(), bytes.data(), bytes.size());
    }
    for (size_t i = 0; i < parts.tokens.size(); ++i) {
      const int32_t token = parts.tokens[i];
      if (token >= 0 && token < model.vocab_size()) continue;
      Refuse(ElementName("tensor tokens", i),
             StrCat("an id in [0, ", model.vocab_size(), ")"), StrCat(token));
    }
    hash_.Add(facts_);
    hash_.Add(session_file::BytesOfTokens(parts.tokens));
  }

  static void CopyBytes(std::span<const uint8_t>& from, SharedFloats& to) {
    const auto bytes = static_cast<size_t>(to.bytes());
    if (bytes > 0) std::memcpy(to.data(), from.data(), bytes);
    from = from.subspan(bytes);
  }

  States ReadEarlier(const JsonObject& facts, const SessionParts& parts) {
    const StateLayout& layout = Insides::Of(parts.state).layout();
    std::span<const uint8_t> bytes = BytesOf(session_file::kEarlier);
    States states;
    for (const nlohmann::json& row : facts.List("states")) {
      const JsonObject state(row,
                             ElementName(facts.At("states"), states.size()));
      state.WantKeys({"position", "logits"});
      auto mark = std::make_shared<StateMark>();
      mark->position = state.Integer("position", 1, parts.state.position());
      const int64_t logits = state.Flag("logits") ? layout.outputs : 0;
      const uint64_t wanted =
          static_cast<uint64_t>(layout.fixed_floats + logits) * sizeof(float);
      if (bytes.size() < wanted) {
        Refuse("tensor earlier_states",
               StrCat(wanted, " bytes for state ", states.size()),
               StrCat(bytes.size()));
      }
      mark->block = SharedFloats(layout.fixed_floats);
      mark->logits = SharedFloats(logits);
      CopyBytes(bytes, mark->block);
      CopyBytes(bytes, mark->logits);
      hash_.Add(session_file::BytesOfFloats(mark->block));
      hash_.Add(session_file::BytesOfFloats(mark->logits));
      const std::string bad = state_file::BadFixed(layout, *mark);
      if (!bad.empty()) {
        Refuse(StrCat("earlier state ", states.size(), ": ", bad),
               "finite numbers", "NaN or infinity");
      }
      states.push_back(std::move(mark));
    }
    if (!bytes.empty()) {
      Refuse("tensor earlier_states", "no bytes after the last state",
             StrCat(bytes.size()));
    }
    return states;
  }

  void CheckHash() const {
    if (Metadata("contents") != hash_.Text()) {
      Refuse("contents", hash_.Text(), Quoted(Metadata("contents")));
    }
  }

  static int64_t Last(const States& states) {
    return static_cast<int64_t>(states.size()) - 1;
  }

  void ReadSnapshots(const JsonObject& facts, const States& states,
                     SessionParts& parts) const {
    size_t index = 0;
    for (const nlohmann::json& row : facts.List("snapshots")) {
      const JsonObject one(row, ElementName(facts.At("snapshots"), index++));
      one.WantKeys({"state", "asked_for"});
      const auto& state =
          states[static_cast<size_t>(one.Integer("state", 0, Last(states)))];
      parts.snapshots.Share({state->position, state, one.Flag("asked_for")});
    }
    const int64_t head = parts.state.position();
    if (Snapshots::OnGrid(head, head)) {
      parts.snapshots.Keep(Insides::Of(parts.state));
    }
    parts.snapshots.Thin(parts.state.position());
  }

  void ReadMarks(const JsonObject& facts, const States& states,
                 SessionParts& parts) const {
    const JsonObject marks = facts.Object("marks");
    if (marks.value().size() > kMaxMarks) {
      Refuse("session.marks", StrCat("at most ", kMaxMarks, " marks"),
             StrCat(marks.value().size()));
    }
    for (const auto& [name, value] : marks.value().items()) {
      CheckMarkName(name);
      const JsonObject one(value, marks.At(name));
      one.WantKeys({"position", "state"});
      SessionMark mark;
      mark.position = one.Integer("position", 0, parts.state.position());
      const int64_t number = one.Integer("state", -1, Last(states));
      if (number >= 0) {
        mark.state = states[static_cast<size_t>(number)];
      }
      const bool here = mark.position == parts.state.position();
      const bool initial = mark.position == 0;
      if (mark.state == nullptr ? !here && !initial
                                : mark.state->position != mark.position) {
        Refuse(one.At("state"), "a state at the mark's position",
               StrCat(number));
      }
      parts.marks[name] = std::move(mark);
    }
  }

  void ReadText(const JsonObject& facts, const LoadedModel& model,
                std::vector<int32_t> pending, SessionParts& parts) const {
    const std::optional<JsonObject> text = facts.FindObject("text");
    if (!text) {
      parts.pending = std::move(pending);
      return;
    }
    text->WantKeys({"begin", "max_tokens", "stopped", "sampler", "stop_tokens",
                    "stop_texts", "begins_text", "drawn_mu", "grammar"});
    SequenceOptions options;
    options.sampler = SamplerFromJson(text->Object("sampler"));
    options.stop_tokens = text->Integers("stop_tokens", 0, INT32_MAX);
    for (size_t i = 0; i < text->List("stop_texts").size(); ++i) {
      const std::string name = ElementName(text->At("stop_texts"), i);
      const nlohmann::json row = {{name, text->List("stop_texts")[i]}};
      const std::vector<int32_t> bytes =
          JsonObject(row, "").Integers(name, 0, 255);
      options.stop_texts.emplace_back(bytes.begin(), bytes.end());
    }
    options.begins_text = text->Flag("begins_text");
    if (const auto grammar = text->FindObject("grammar")) {
      grammar->WantKeys({"kind", "source"});
      options.constraint =
          Constraint::Make(
              GrammarKindOf(grammar->Text("kind"), grammar->At("kind")),
              grammar->Text("source"), model.tokenizer, options.stop_tokens)
              .Take();
    }
    const int64_t position = parts.state.position();
    const auto waiting = static_cast<int64_t>(pending.size());
    parts.text_begin = text->Integer("begin", 0, position + waiting);
    Sequence sequence(model.tokenizer, options);
    const int64_t budget = text->Integer("max_tokens", 0, INT64_MAX);
    if (position < parts.text_begin) {
      if (parts.text_begin != position + waiting) {
        Refuse("session.text.begin", StrCat(position + waiting),
               StrCat(parts.text_begin));
      }
      sequence.Begin(pending, budget);
    } else {
      sequence.Begin({}, budget);
      for (int64_t i = parts.text_begin; i < position; ++i) {
        sequence.Accept(parts.tokens[static_cast<size_t>(i)]);
        sequence.Consumed(1);
      }
      // Several where the text was guessed ahead (runtime/speculate).
      for (const int32_t token : pending) {
        sequence.Accept(token);
        sequence.Consumed(1);
      }
    }
    if (text->Flag("stopped")) {
      if (options.stop_tokens.empty()) {
        Refuse("session.text.stopped", "false without stop tokens", "true");
      }
      sequence.Accept(options.stop_tokens.front());
    }
    if (position >= parts.text_begin) sequence.Unconsumed(pending);
    for (const nlohmann::json& mu : text->List("drawn_mu")) {
      const nlohmann::json row = {{"mu", mu}};
      parts.draw_states.push_back({JsonObject(row, text->At("drawn_mu"))
                                       .FindReal("mu", -1e9, 1e9)
                                       .value_or(0)});
    }
    if (parts.draw_states.size() > static_cast<size_t>(sequence.tokens())) {
      Refuse("session.text.drawn_mu", StrCat("at most ", sequence.tokens()),
             StrCat(parts.draw_states.size()));
    }
    if (!parts.draw_states.empty()) {
      sequence.SetSamplerState(parts.draw_states.back());
    }
    parts.text = std::move(sequence);
  }

  const SafetensorsFile& file_;
  const std::string name_;
  std::string facts_;
  ContentsHash hash_;
};

Result<Session> SessionOf(const LoadedModel& model,
                          Result<SafetensorsFile> opened,
                          const std::string& name,
                          const SnapshotOptions& options) {
  if (!opened.ok()) return opened.error();
  try {
    return SessionReader(opened.value(), name).Read(model, options);
  } catch (const ArgumentError& error) {  // a text that cannot be as it is told
    return Error(FormatError(StrCat(name, ": ", error.where()), error.wanted(),
                             error.given()));
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

Result<Session> LoadSession(const LoadedModel& model, const std::string& path,
                            const SnapshotOptions& snapshots) {
  return SessionOf(model,
                   SafetensorsFile::Open(path, /*use_mmap=*/true,
                                         SafetensorsTypes::kNumbersAndBytes),
                   path, snapshots);
}

Result<Session> LoadSession(const LoadedModel& model,
                            std::span<const uint8_t> bytes,
                            const std::string& name,
                            const SnapshotOptions& snapshots) {
  return SessionOf(
      model,
      SafetensorsFile::OfBytes(name, bytes, SafetensorsTypes::kNumbersAndBytes),
      name, snapshots);
}

}  // namespace tarn
