#include <map>

#include "core/file.h"
#include "core/safetensors.h"
#include "runtime/session/state_file.h"
#include "runtime/session/state_parts.h"

namespace tarn {
namespace {

using state_file::Facts;
using StatePart = state_file::Part<const float>;

}  // namespace

struct state_file::StateToWrite {
  const Insides::ModelImpl& model;
  Facts facts;
  std::vector<StatePart> parts;

  uint64_t bytes() const {
    uint64_t floats = 0;
    for (const StatePart& part : parts) floats += part.floats();
    return floats * sizeof(float);
  }
};

namespace {

using state_file::StateToWrite;

StateToWrite PartsOf(const Model& model, const State& state) {
  const SequenceState& sequence = Insides::Of(state);
  const Insides::ModelImpl* impl = Insides::Of(model);
  if (impl == nullptr || &sequence.layout() != impl->layout.get()) {
    throw ArgumentError("SaveState: state", "a state of this model",
                        "one of another model");
  }
  const CrossMemory* memory = sequence.memory.get();
  const Facts facts = {sequence.position,
                       memory == nullptr ? -1 : memory->source_len(),
                       sequence.has_logits, impl->layout->cache};
  auto parts = state_file::Shapes<const float>(*impl, facts);
  state_file::Locate(sequence, memory == nullptr ? nullptr : memory->Head(0, 0),
                     parts);
  return {*impl, facts, std::move(parts)};
}

// The hash of the contents; throws NumericError.
uint64_t HashContents(const StateToWrite& state) {
  uint64_t hash = state.facts.Hash(state.model.fingerprint);
  for (const StatePart& part : state.parts) {
    const auto check = [&part](const float* run, size_t first) {
      const auto [at, value] = state_file::FirstBad(part, run, first);
      if (at < 0) return;
      throw NumericError(StrCat("SaveState: ", part.name, "[", at, "]"),
                         "a finite number", StrCat(value));
    };
    hash = state_file::HashPart(part, hash, check);
  }
  return hash;
}

std::string HeadOf(const StateToWrite& state, uint64_t contents) {
  std::vector<TensorToWrite> tensors;
  for (const StatePart& part : state.parts) {
    tensors.push_back({part.name, DType::kF32, part.stored_shape(), nullptr,
                       /*is_bytes=*/part.numbers > 0});
  }
  std::map<std::string, std::string> metadata = {
      {"format", state_file::kFormat},
      {"version", StrCat(state_file::kVersion)},
      {"model", HashText(state.model.fingerprint)},
      {"position", StrCat(state.facts.position)},
      {"source_len", StrCat(state.facts.source_len)},
      {"has_logits", state.facts.has_logits ? "1" : "0"},
      {"contents", HashText(contents)}};
  if (state.facts.cache != CacheType::kF32) {
    metadata["cache"] = Name(state.facts.cache);
  }
  return SafetensorsHead(tensors, metadata, SafetensorsOrder::kAsGiven);
}

}  // namespace

std::string state_file::BadFixed(const StateLayout& layout,
                                 const StateMark& mark) {
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (const StatePlace& place : layout.layers[i]) {
      if (place.tensor.grows) continue;
      std::vector<int64_t> shape{place.width};
      if (place.numbers > 0) {
        const int64_t words = CacheRowWords(place.type, place.numbers);
        shape = {place.width / words, words};
      }
      StatePart part{StrCat("layers.", i, ".", place.tensor.name),
                     std::move(shape),
                     place.tensor.initial,
                     {mark.block.data() + place.offset},
                     place.type,
                     place.numbers};
      if (FirstBad(part, part.runs[0], 0).at >= 0) return part.name;
    }
  }
  const auto logits = static_cast<size_t>(mark.logits.size());
  const bool bad = FirstNotFinite(mark.logits.data(), logits, 0.0f) >= 0;
  return bad ? "logits" : "";
}

StateWriter::StateWriter(const Model& model, const State& state)
    : parts_(std::make_unique<StateToWrite>(PartsOf(model, state))),
      head_(HeadOf(*parts_, HashContents(*parts_))) {}

StateWriter::~StateWriter() = default;

uint64_t StateWriter::bytes() const { return head_.size() + parts_->bytes(); }

void StateWriter::Write(ByteSink& sink) const {
  sink.Write(head_.data(), head_.size());
  for (const StatePart& part : parts_->parts) {
    for (const float* run : part.runs) {
      sink.Write(run, part.run_floats() * sizeof(float));
    }
  }
}

void SaveState(const Model& model, const State& state, ByteSink& sink) {
  StateWriter(model, state).Write(sink);
}

void SaveState(const Model& model, const State& state,
               const std::string& path) {
  const StateWriter writer(model, state);
  // After it: a state that cannot be saved leaves no file.
  AtomicFile file(path);
  writer.Write(file);
  file.Commit();
}

uint64_t StateFileBytes(const Model& model, const State& state) {
  const StateToWrite to_write = PartsOf(model, state);
  return HeadOf(to_write, /*contents=*/0).size() + to_write.bytes();
}

}  // namespace tarn
