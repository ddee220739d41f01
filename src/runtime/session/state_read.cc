#include <charconv>
#include <cstring>
#include <map>

#include "core/safetensors.h"
#include "runtime/session/state_file.h"
#include "runtime/session/state_parts.h"

namespace tarn {
namespace {

using state_file::Facts;
using PlaceToFill = state_file::Part<float>;

// Beyond 2^53, doubles, which hold the angles of positions, skip integers.
constexpr int64_t kMaxPosition = int64_t{1} << 53;
// A bound, so that products of sizes do not overflow; it takes no memory.
constexpr int64_t kMaxSource = int64_t{1} << 31;

// The metadata of a file, each value checked as it is read.
class StateMetadata {
 public:
  StateMetadata(const SafetensorsFile& file, const std::string& path)
      : metadata_(file.metadata()), path_(path) {}

  // The value must be this text.
  void Require(const char* key, const std::string& wanted) const {
    const std::string& given = Text(key, wanted);
    if (given != wanted) {
      throw FormatError(StrCat(path_, ": ", key), wanted, Quoted(given));
    }
  }

  // Without the entry: f32.
  void RequireCache(CacheType wanted) const {
    const auto found = metadata_.find("cache");
    const std::string given =
        found == metadata_.end() ? Name(CacheType::kF32) : found->second;
    if (given == Name(wanted)) return;
    throw FormatError(
        StrCat(path_, ": cache"),
        StrCat(Quoted(Name(wanted)), ", the type of the model's cache"),
        Quoted(given));
  }

  // Files of earlier versions are not read: a prompt restores the recurrence.
  void RequireVersion() const {
    const std::string wanted = StrCat(state_file::kVersion);
    const std::string& given = Text("version", wanted);
    if (given == wanted) return;
    throw FormatError(
        StrCat(path_, ": version"),
        StrCat(wanted, " (run the prompt again and save the state again)"),
        Quoted(given));
  }

  int64_t Integer(const char* key, int64_t least, int64_t most) const {
    const std::string wanted = StrCat("an integer from ", least, " to ", most);
    const std::string& text = Text(key, wanted);
    const char* end = text.data() + text.size();
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
      throw FormatError(StrCat(path_, ": ", key), wanted, Quoted(text));
    }
    return value;
  }

 private:
  const std::string& Text(const char* key, const std::string& wanted) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) {
      throw FormatError(StrCat(path_, ": ", key), wanted, "no such entry");
    }
    return found->second;
  }

  const std::map<std::string, std::string>& metadata_;
  const std::string& path_;
};

Facts ReadFacts(const StateMetadata& metadata,
                const Insides::ModelImpl& model) {
  metadata.Require("format", state_file::kFormat);
  metadata.RequireVersion();
  metadata.Require("model", HashText(model.fingerprint));
  metadata.RequireCache(model.layout->cache);
  Facts facts;
  facts.cache = model.layout->cache;
  facts.position = metadata.Integer("position", 0, kMaxPosition);
  facts.source_len =
      metadata.Integer("source_len", -1, model.cross ? kMaxSource : -1);
  facts.has_logits = metadata.Integer("has_logits", 0, 1) == 1;
  return facts;
}

// Throws unless the file holds exactly these parts.
void CheckParts(const SafetensorsFile& file, const std::string& path,
                const std::vector<PlaceToFill>& parts) {
  for (const auto& part : parts) {
    const TensorEntry* entry = file.Find(part.name);
    const std::string where = StrCat(path, ": tensor ", part.name);
    const bool bytes = part.numbers > 0;
    const std::vector<int64_t> shape = part.stored_shape();
    const std::string wanted =
        StrCat(bytes ? "U8" : "F32", " ", ShapeText(shape));
    if (entry == nullptr) throw FormatError(where, wanted, "no such tensor");
    if (entry->is_bytes != bytes || entry->shape != shape ||
        (!bytes && entry->dtype != DType::kF32)) {
      throw FormatError(where, wanted,
                        StrCat(entry->is_bytes ? "U8" : DTypeName(entry->dtype),
                               " ", ShapeText(entry->shape)));
    }
  }
  for (const TensorEntry& entry : file.tensors()) {
    const auto same = [&](const auto& part) { return part.name == entry.name; };
    if (std::none_of(parts.begin(), parts.end(), same)) {
      throw FormatError(StrCat(path, ": tensor ", Quoted(entry.name)),
                        "no tensor except those of the state",
                        ShapeText(entry.shape));
    }
  }
}

// Reads checked parts into their places. What is hashed and checked is the
// copy, so that a change of the file in the meantime is found.
uint64_t ReadParts(const SafetensorsFile& file, const std::string& path,
                   const std::vector<PlaceToFill>& parts, uint64_t hash) {
  for (const PlaceToFill& part : parts) {
    const uint8_t* data = file.Data(*file.Find(part.name));
    const size_t count = part.run_floats();
    hash = state_file::HashPart(part, hash, [&](float* run, size_t first) {
      if (count == 0) return;
      std::memcpy(run, data + first * sizeof(float), count * sizeof(float));
      const auto [at, value] = state_file::FirstBad(part, run, first);
      if (at < 0) return;
      throw FormatError(StrCat(path, ": tensor ", part.name, "[", at, "]"),
                        "a finite number", StrCat(value));
    });
  }
  return hash;
}

// Fills a new state of the model from the file; throws Error.
void ReadState(const SafetensorsFile& file, const std::string& path,
               const Insides::ModelImpl& model, SequenceState& sequence) {
  const StateMetadata metadata(file, path);
  const Facts facts = ReadFacts(metadata, model);
  auto parts = state_file::Shapes<float>(model, facts);
  CheckParts(file, path, parts);
  sequence.Reserve(facts.position);
  std::shared_ptr<CrossMemory> memory;
  if (facts.source_len >= 0) memory = model.cross->NewMemory(facts.source_len);
  state_file::Locate(sequence, memory == nullptr ? nullptr : memory->Head(0, 0),
                     parts);
  const uint64_t hash =
      ReadParts(file, path, parts, facts.Hash(model.fingerprint));
  metadata.Require("contents", HashText(hash));
  sequence.memory = std::move(memory);
  sequence.position = facts.position;
  sequence.has_logits = facts.has_logits;
}

// `opened`: the file, or the error of opening it.
Result<State> StateOf(const Model& model, Result<SafetensorsFile> opened,
                      const std::string& path, State state) {
  if (!opened.ok()) return opened.error();
  try {
    ReadState(opened.value(), path, *Insides::Of(model), Insides::Of(state));
  } catch (const Error& error) {
    return error;
  }
  return state;
}

}  // namespace

Result<State> LoadState(const Model& model, const std::string& path) {
  State state(model);  // throws for a model that has none
  return StateOf(model,
                 SafetensorsFile::Open(path, /*use_mmap=*/true,
                                       SafetensorsTypes::kNumbersAndBytes),
                 path, std::move(state));
}

Result<State> LoadState(const Model& model, std::span<const uint8_t> bytes,
                        const std::string& name) {
  State state(model);
  return StateOf(
      model,
      SafetensorsFile::OfBytes(name, bytes, SafetensorsTypes::kNumbersAndBytes),
      name, std::move(state));
}

}  // namespace tarn
