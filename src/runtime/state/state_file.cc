#include "runtime/state/state_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "config/identity.h"
#include "core/hash.h"
#include "core/text.h"
#include "runtime/model/impl.h"
#include "runtime/model/supported.h"
#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

constexpr char kFormat[] = "tarn-state";
constexpr int64_t kVersion = 2;
// Beyond 2^53, doubles, which hold the angles of positions, skip integers.
constexpr int64_t kMaxPosition = int64_t{1} << 53;
// A bound, so that products of sizes do not overflow; it takes no memory.
constexpr int64_t kMaxSource = int64_t{1} << 31;

// What a state holds besides its tensors.
struct Facts {
  int64_t position = 0;
  int64_t source_len = -1;  // -1: no source
  bool has_logits = false;

  // Begins the hash of the contents.
  uint64_t Hash(uint64_t fingerprint) const {
    uint64_t hash = Mix(fingerprint ^ static_cast<uint64_t>(position));
    hash = Mix(hash ^ static_cast<uint64_t>(source_len));
    return Mix(hash ^ (has_logits ? 1 : 0));
  }
};

uint64_t AddToHash(uint64_t hash, const void* data, size_t bytes) {
  return ExtendHash(hash, {static_cast<const char*>(data), bytes});
}

// A tensor of the file and where its floats lie in a state: one run after the
// other, all of one length. Float: const float to save, float to load.
template <typename Float>
struct FilePart {
  std::string name;
  std::vector<int64_t> shape;
  float initial = 0.0f;  // allowed in the file even if not finite
  std::vector<Float*> runs;

  size_t floats() const {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    return count;
  }
  size_t run_floats() const { return floats() / runs.size(); }
};

// Names and shapes only: a file is compared with them before memory is taken. A
// tensor of a layer is layers.{i}.{name}; a growing tensor has its tokens after
// its first axis, as in memory.
template <typename Float>
std::vector<FilePart<Float>> Shapes(const ModelConfig& config,
                                    const StateLayout& layout,
                                    const Facts& facts) {
  std::vector<FilePart<Float>> parts;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (const StatePlace& place : layout.layers[i]) {
      std::vector<int64_t> shape = place.tensor.shape;
      if (place.tensor.grows) shape.insert(shape.begin() + 1, facts.position);
      parts.push_back({StrCat("layers.", i, ".", place.tensor.name),
                       std::move(shape),
                       place.tensor.initial,
                       {}});
    }
  }
  if (facts.has_logits) parts.push_back({"logits", {layout.outputs}, 0.0f, {}});
  if (facts.source_len >= 0) {
    parts.push_back({"memory",
                     {DecoderLayers(config), config.n_heads,
                      CrossMemory::HeadFloats(config, facts.source_len)},
                     0.0f,
                     {}});
  }
  return parts;
}

// Fills in the runs of Shapes(). `memory`: the block of a CrossMemory.
template <typename Float, typename Sequence>
void Locate(Sequence& sequence, Float* memory,
            std::vector<FilePart<Float>>& parts) {
  const StateLayout& layout = sequence.layout();
  size_t next = 0;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (size_t t = 0; t < layout.layers[i].size(); ++t, ++next) {
      const int64_t layer = static_cast<int64_t>(i);
      const int64_t tensor = static_cast<int64_t>(t);
      for (int64_t row = 0; row < layout.layers[i][t].rows; ++row) {
        parts[next].runs.push_back(row == 0 ? sequence.Tensor(layer, tensor)
                                            : sequence.Row(layer, tensor, row));
      }
    }
  }
  for (; next < parts.size(); ++next) {
    parts[next].runs.push_back(parts[next].name == "logits" ? sequence.logits()
                                                            : memory);
  }
}

// The first number that is neither finite nor the one a part begins with; -1
// when there is none.
int64_t FirstNotFinite(const std::vector<float>& values, float initial) {
  const auto found = std::find_if(
      values.begin(), values.end(),
      [initial](float x) { return !std::isfinite(x) && x != initial; });
  return found == values.end() ? -1 : found - values.begin();
}

// The metadata of a file, each value checked as it is read.
class Metadata {
 public:
  Metadata(const SafetensorsFile& file, const std::string& path)
      : metadata_(file.metadata()), path_(path) {}

  // The value must be this text.
  void Require(const char* key, const std::string& wanted) const {
    const std::string& given = Text(key, wanted);
    if (given != wanted) {
      throw FormatError(StrCat(path_, ": ", key), wanted, Quoted(given));
    }
  }

  // Files of earlier versions are not read: a prompt restores the recurrence.
  void RequireVersion() const {
    const std::string& given = Text("version", StrCat(kVersion));
    if (given == StrCat(kVersion)) return;
    throw FormatError(
        StrCat(path_, ": version"),
        StrCat(kVersion, " (run the prompt again and save the state anew)"),
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

Facts ReadFacts(const Metadata& metadata, const StateLayout& layout,
                uint64_t fingerprint) {
  metadata.Require("format", kFormat);
  metadata.RequireVersion();
  metadata.Require("model", HashText(fingerprint));
  Facts facts;
  facts.position = metadata.Integer("position", 0, kMaxPosition);
  facts.source_len =
      metadata.Integer("source_len", -1, layout.cross ? kMaxSource : -1);
  facts.has_logits = metadata.Integer("has_logits", 0, 1) == 1;
  return facts;
}

// Throws unless the file holds exactly these parts.
void CheckParts(const SafetensorsFile& file, const std::string& path,
                const std::vector<FilePart<float>>& parts) {
  for (const auto& part : parts) {
    const TensorEntry* entry = file.Find(part.name);
    const std::string where = StrCat(path, ": tensor ", part.name);
    const std::string wanted = StrCat("F32 ", ShapeText(part.shape));
    if (entry == nullptr) throw FormatError(where, wanted, "no such tensor");
    if (entry->dtype != DType::kF32 || entry->shape != part.shape) {
      throw FormatError(
          where, wanted,
          StrCat(DTypeName(entry->dtype), " ", ShapeText(entry->shape)));
    }
  }
  for (const TensorEntry& entry : file.tensors()) {
    const auto same = [&](const auto& part) { return part.name == entry.name; };
    if (std::none_of(parts.begin(), parts.end(), same)) {
      throw FormatError(StrCat(path, ": tensor ", Quoted(entry.name)),
                        "no tensor beside those of the state",
                        ShapeText(entry.shape));
    }
  }
}

// Reads checked parts into their places. The copy is what is hashed and
// checked, so that a change of the file in the meantime is found.
uint64_t ReadParts(const SafetensorsFile& file, const std::string& path,
                   const std::vector<FilePart<float>>& parts, uint64_t hash) {
  for (const auto& part : parts) {
    std::vector<float> values(part.floats());
    file.ReadF32(*file.Find(part.name), values.data());
    if (const int64_t at = FirstNotFinite(values, part.initial); at >= 0) {
      throw FormatError(StrCat(path, ": tensor ", part.name, "[", at, "]"),
                        "a finite number",
                        StrCat(values[static_cast<size_t>(at)]));
    }
    hash = AddToHash(hash, values.data(), values.size() * sizeof(float));
    const float* next = values.data();
    for (float* run : part.runs) {
      CopyFloats(next, static_cast<int64_t>(part.run_floats()), run);
      next += part.run_floats();
    }
  }
  return hash;
}

// Fills a new state of the layout from the file; throws Error.
void ReadState(const std::string& path, const ModelConfig& config,
               uint64_t fingerprint, SequenceState& sequence) {
  const SafetensorsFile file = SafetensorsFile::Open(path).Take();
  const Metadata metadata(file, path);
  const Facts facts = ReadFacts(metadata, sequence.layout(), fingerprint);
  auto parts = Shapes<float>(config, sequence.layout(), facts);
  CheckParts(file, path, parts);
  sequence.Reserve(facts.position);
  std::shared_ptr<CrossMemory> memory;
  if (facts.source_len >= 0) {
    memory = std::make_shared<CrossMemory>(config, facts.source_len);
  }
  Locate(sequence, memory == nullptr ? nullptr : memory->Head(0, 0), parts);
  const uint64_t hash = ReadParts(file, path, parts, facts.Hash(fingerprint));
  metadata.Require("contents", HashText(hash));
  sequence.memory = std::move(memory);
  sequence.position = facts.position;
  sequence.has_logits = facts.has_logits;
}

}  // namespace

void SaveState(const Model& model, const State& state,
               const std::string& path) {
  const SequenceState& sequence = std::as_const(state.Get()).sequence;
  if (model.impl_ == nullptr ||
      &sequence.layout() != model.impl_->layout.get()) {
    throw ArgumentError("SaveState: state", "a state of this model",
                        "one of another model");
  }
  const CrossMemory* memory = sequence.memory.get();
  const Facts facts = {sequence.position,
                       memory == nullptr ? -1 : memory->source_len(),
                       sequence.has_logits};
  const uint64_t fingerprint = model.impl_->fingerprint;
  auto parts =
      Shapes<const float>(model.impl_->config, sequence.layout(), facts);
  Locate(sequence, memory == nullptr ? nullptr : memory->S(0, 0), parts);
  std::vector<std::vector<float>> dense(parts.size());
  std::vector<TensorToWrite> tensors;
  uint64_t hash = facts.Hash(fingerprint);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const float* run : parts[i].runs) {
      dense[i].insert(dense[i].end(), run, run + parts[i].run_floats());
    }
    if (const int64_t at = FirstNotFinite(dense[i], parts[i].initial);
        at >= 0) {
      throw NumericError(StrCat("SaveState: ", parts[i].name, "[", at, "]"),
                         "a finite number",
                         StrCat(dense[i][static_cast<size_t>(at)]));
    }
    hash = AddToHash(hash, dense[i].data(), dense[i].size() * sizeof(float));
    tensors.push_back(
        {parts[i].name, DType::kF32, parts[i].shape, dense[i].data()});
  }
  WriteSafetensors(path, tensors,
                   {{"format", kFormat},
                    {"version", StrCat(kVersion)},
                    {"model", HashText(fingerprint)},
                    {"position", StrCat(facts.position)},
                    {"source_len", StrCat(facts.source_len)},
                    {"has_logits", facts.has_logits ? "1" : "0"},
                    {"contents", HashText(hash)}});
}

Result<State> LoadState(const Model& model, const std::string& path) {
  State state(model);  // throws for a model that has none
  try {
    ReadState(path, model.impl_->config, model.impl_->fingerprint,
              state.Get().sequence);
  } catch (const Error& error) {
    return error;
  }
  return state;
}

uint64_t ModelFingerprint(const SafetensorsFile& file,
                          const ModelConfig& config, DType held) {
  constexpr uint64_t kBlock = 64, kSteps = 16;
  uint64_t hash = Mix(HashBytes(ConfigIdentity(config)));
  hash = Mix(hash ^ static_cast<uint64_t>(held));
  // Uses the model's order: the order in the file does not change a model.
  for (const auto& [name, shape] : WeightShapes(config)) {
    const TensorEntry* entry = file.Find(name);
    if (entry == nullptr) continue;  // CheckWeights refuses such a file
    const std::string text =
        StrCat(name, DTypeName(entry->dtype), ShapeText(shape));
    hash = ExtendHash(hash, text);
    const uint64_t bytes = entry->end - entry->begin;
    const uint64_t block = std::min(bytes, kBlock), last = bytes - block;
    for (uint64_t i = 0; i <= kSteps; ++i) {
      // Quotient and remainder are taken apart: last * i might wrap.
      const uint64_t at = last / kSteps * i + last % kSteps * i / kSteps;
      hash = AddToHash(hash, file.Data(*entry) + at, block);
    }
  }
  return hash;
}

}  // namespace tarn
