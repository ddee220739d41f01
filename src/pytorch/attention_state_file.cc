#include "pytorch/attention_state_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "pytorch/language_model.h"
#include "pytorch/open_file.h"
#include "pytorch/seq2seq.h"

namespace tarn::nn {
namespace {

constexpr char kFormat[] = "tarn-stack-state";
constexpr char kVersion[] = "1";
// No sequence is as long; sums of such lengths fit.
constexpr int64_t kMaxLength = int64_t{1} << 40;

using Metadata = std::map<std::string, std::string>;
// Called with place, wanted and given; throws the error of its caller.
using Fail = std::function<void(const std::string&, const std::string&,
                                const std::string&)>;

struct Member {
  const char* name;
  torch::Tensor AttentionState::*tensor;
  bool grows = false;  // axis 1 counts tokens
};
constexpr Member kMembers[] = {{"S", &AttentionState::S},
                               {"z", &AttentionState::z},
                               {"extra", &AttentionState::extra},
                               {"keys", &AttentionState::keys, true},
                               {"values", &AttentionState::values, true},
                               {"key_mask", &AttentionState::key_mask, true},
                               {"m", &AttentionState::m},
                               {"a", &AttentionState::a},
                               {"b", &AttentionState::b}};

// Calls visit("layers.0", ...), ... for every part of a state.
template <typename State, typename Visit>
void ForEachPart(State& state, const Visit& visit) {
  for (size_t i = 0; i < state.layers.size(); ++i) {
    visit(StrCat("layers.", i), state.layers[i]);
  }
  for (size_t i = 0; i < state.memories.size(); ++i) {
    visit(StrCat("memories.", i), state.memories[i]);
  }
}

// A state of `batch` sequences that have read nothing: what every state of the
// model is like.
StackState StateLike(const ModelImpl& model, int64_t batch) {
  const torch::NoGradGuard no_grad;
  if (const auto* m = dynamic_cast<const LanguageModelImpl*>(&model)) {
    return m->InitialState(batch);
  }
  if (const auto* m = dynamic_cast<const Seq2SeqImpl*>(&model)) {
    return m->InitialState(batch);
  }
  throw ArgumentError("state file: model",
                      "a language model or a sequence-to-sequence model",
                      StrCat("arch '", Name(model.config().arch), "'"));
}

std::string TypeText(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return StrCat(c10::toString(tensor.scalar_type()), " ",
                ShapeText(tensor.sizes().vec()));
}

void CheckMember(const std::string& where, const Member& member,
                 const torch::Tensor& given, const torch::Tensor& like,
                 const Fail& fail) {
  if (!like.defined() || !given.defined()) {
    if (given.defined() != like.defined()) {
      fail(where, TypeText(like), TypeText(given));
    }
    return;
  }
  std::vector<int64_t> shape = like.sizes().vec();
  if (member.grows && given.dim() == like.dim()) shape[1] = given.size(1);
  if (given.scalar_type() != like.scalar_type() || given.sizes() != shape) {
    fail(where,
         StrCat(c10::toString(like.scalar_type()), " ", ShapeText(shape)),
         TypeText(given));
  }
}

// The range of lengths [B] int64 on the CPU; {0, 0} of no sequences.
std::pair<int64_t, int64_t> RangeOf(const torch::Tensor& lengths) {
  if (lengths.numel() == 0) return {0, 0};
  const auto [least, largest] = torch::aminmax(lengths);
  return {least.item<int64_t>(), largest.item<int64_t>()};
}

// Tensors are checked already; lengths must say what those hold.
void CheckLayerLengths(const std::string& where, const AttentionState& part,
                       const ModelConfig& config, const Fail& fail) {
  int64_t most = kMaxLength;
  if (part.keys.defined()) {
    const int64_t kept = part.keys.size(1);
    if (part.kind != AttentionKind::kLocal) {
      most = kept;
    } else if (const int64_t window = config.local_context / 2 + 1;
               kept < window) {
      most = kept;  // nothing has left the window yet
    } else if (kept > window) {
      fail(StrCat(where, ".keys"), StrCat("at most ", window, " tokens"),
           StrCat(kept));
    }
  }
  if (part.kind == AttentionKind::kAftFull) {
    most = std::min(most, config.max_sequence_length);
  }
  const auto [least, largest] = RangeOf(part.lengths);
  if (least < 0 || largest > most) {
    fail(StrCat(where, ".lengths"), StrCat("lengths in [0, ", most, "]"),
         StrCat(least, " to ", largest));
  }
}

void CheckMemoryLengths(const std::string& where, const AttentionState& part,
                        const Fail& fail) {
  const auto [least, largest] = RangeOf(part.lengths);
  const int64_t most = part.keys.defined() ? part.keys.size(1) : kMaxLength;
  if (least < 0 || largest > most) {
    fail(StrCat(where, ".lengths"), StrCat("lengths in [0, ", most, "]"),
         StrCat(least, " to ", largest));
  }
  if (!part.keys.defined()) return;
  const torch::Tensor counted =
      part.key_mask.defined()
          ? part.key_mask.sum(1).to(torch::kCPU)
          : torch::full_like(part.lengths, part.keys.size(1));
  if (!torch::equal(counted, part.lengths)) {
    fail(StrCat(where, ".lengths"), "the number of keys that count",
         "another number");
  }
}

// One layer or memory against the same of an initial state.
void CheckPart(const std::string& where, const AttentionState& part,
               AttentionState like, const ModelConfig& config, bool memory,
               const Fail& fail) {
  if (part.kind != like.kind) {
    fail(StrCat(where, ".kind"), Name(like.kind), Name(part.kind));
  }
  const int64_t batch = like.batch();
  if (!part.lengths.defined() || part.lengths.dim() != 1 ||
      part.lengths.scalar_type() != torch::kInt64 || !part.lengths.is_cpu() ||
      part.batch() != batch) {
    fail(StrCat(where, ".lengths"), StrCat("Long [", batch, "] on the CPU"),
         TypeText(part.lengths));
  }
  if (memory && like.keys.defined() && part.key_mask.defined()) {
    // A mask may be there or not; where it is, it has a place for every key.
    like.key_mask = torch::empty({batch, 0}, torch::kBool);
  }
  int64_t tokens = -1;
  for (const Member& member : kMembers) {
    const std::string name = StrCat(where, ".", member.name);
    const torch::Tensor& tensor = part.*member.tensor;
    CheckMember(name, member, tensor, like.*member.tensor, fail);
    if (!member.grows || !tensor.defined()) continue;
    if (tokens >= 0 && tensor.size(1) != tokens) {
      fail(name, StrCat(tokens, " tokens, as keys has"), TypeText(tensor));
    }
    tokens = tensor.size(1);
  }
  if (memory) return CheckMemoryLengths(where, part, fail);
  CheckLayerLengths(where, part, config, fail);
}

void CheckState(const ModelImpl& model, const StackState& state,
                const std::string& prefix, const Fail& fail) {
  const int64_t batch = state.layers.empty() || !state.lengths().defined()
                            ? 0
                            : state.lengths().numel();
  const StackState like = StateLike(model, batch);
  const auto check = [&](const char* list, const auto& parts, const auto& likes,
                         bool memory) {
    if (parts.size() != likes.size()) {
      fail(prefix + list, StrCat(likes.size()), StrCat(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      CheckPart(StrCat(prefix, list, ".", i), parts[i], likes[i],
                model.config(), memory, fail);
      if (!memory && !torch::equal(parts[i].lengths, parts[0].lengths)) {
        fail(StrCat(prefix, list, ".", i, ".lengths"), "those of layer 0",
             "others");
      }
    }
  };
  check("layers", state.layers, like.layers, /*memory=*/false);
  check("memories", state.memories, like.memories, /*memory=*/true);
}

std::string Hex(uint64_t value) {
  constexpr int kDigits = 16;
  std::string text(kDigits, '0');
  for (int i = kDigits - 1; i >= 0; --i, value >>= 4) {
    text[static_cast<size_t>(i)] = "0123456789abcdef"[value & 15];
  }
  return text;
}

uint64_t AddToHash(uint64_t hash, std::string_view bytes) {
  return Mix(hash ^ HashBytes(bytes));
}

uint64_t AddToHash(uint64_t hash, const torch::Tensor& dense) {
  return AddToHash(
      hash, std::string_view(static_cast<const char*>(dense.const_data_ptr()),
                             dense.nbytes()));
}

// What must be the same in the model that goes on: its configuration (kinds,
// sizes, feature map, denominator) and its random directions.
uint64_t Fingerprint(const ModelImpl& model) {
  uint64_t hash = HashBytes(ConfigToJson(model.config()));
  for (const auto& buffer : model.named_buffers()) {
    if (!IsBuffer(buffer.key())) continue;
    hash = AddToHash(AddToHash(hash, buffer.key()),
                     buffer.value().to(torch::kCPU).contiguous());
  }
  return hash;
}

std::string LengthsText(const torch::Tensor& lengths) {
  std::string text;
  for (int64_t i = 0; i < lengths.numel(); ++i) {
    text += StrCat(i == 0 ? "" : ",", lengths[i].item<int64_t>());
  }
  return text;
}

// "3,0,12" to [3] int64; empty text: no sequences.
std::optional<torch::Tensor> ParseLengths(const std::string& text) {
  std::vector<int64_t> lengths;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const auto [stop, error] = std::from_chars(at, end, lengths.emplace_back());
    if (error != std::errc() || (stop != end && *stop != ',')) {
      return std::nullopt;
    }
    if (stop != end && stop + 1 == end) return std::nullopt;
    at = stop == end ? end : stop + 1;
  }
  return torch::tensor(lengths, torch::kInt64);
}

// As a file holds it: masks as 0 and 1.
torch::Tensor Stored(const torch::Tensor& tensor) {
  const torch::Tensor cpu = tensor.detach().to(torch::kCPU);
  return (cpu.scalar_type() == torch::kBool ? cpu.to(torch::kHalf) : cpu)
      .contiguous();
}

DType DTypeOf(const std::string& where, const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return DType::kF32;
    case torch::kBFloat16:
      return DType::kBF16;
    case torch::kHalf:
      return DType::kF16;
    default:
      throw DTypeError(where, "float32, bfloat16 or float16",
                       c10::toString(tensor.scalar_type()));
  }
}

torch::ScalarType TypeOf(DType dtype) {
  if (dtype == DType::kF32) return torch::kFloat32;
  return dtype == DType::kBF16 ? torch::kBFloat16 : torch::kHalf;
}

// Begins the hash of the contents: lengths of every part, by name.
uint64_t HashLengths(const StackState& state, uint64_t fingerprint) {
  uint64_t hash = fingerprint;
  ForEachPart(state, [&](const std::string& name, const AttentionState& part) {
    hash = AddToHash(hash, StrCat(name, " ", LengthsText(part.lengths)));
  });
  return hash;
}

// One opened file; every refusal is a FormatError that begins with its path.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), file_(OpenTyped(path)) {}

  [[noreturn]] void Refuse(const std::string& where, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError(StrCat(path_, ": ", where), wanted, given);
  }

  const std::string& Text(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) {
      Refuse(key, "an entry", "no such entry");
    }
    return found->second;
  }

  void Require(const std::string& key, const std::string& wanted) const {
    if (Text(key) != wanted) Refuse(key, wanted, Quoted(Text(key)));
  }

  torch::Tensor Lengths(const std::string& key) const {
    const auto lengths = ParseLengths(Text(key));
    if (!lengths) {
      Refuse(key, "integers between commas", Quoted(Text(key)));
    }
    return *lengths;
  }

  // The tensor as the file holds it; undefined where it holds none.
  torch::Tensor Tensor(const std::string& name) {
    const TensorEntry* entry = file_.Find(name);
    if (entry == nullptr) return {};
    read_.insert(name);
    torch::Tensor tensor = torch::empty(entry->shape, TypeOf(entry->dtype));
    if (tensor.nbytes() > 0) {
      std::memcpy(tensor.data_ptr(), file_.Data(*entry), tensor.nbytes());
    }
    return tensor;
  }

  void CheckAllRead() const {
    for (const TensorEntry& entry : file_.tensors()) {
      if (read_.count(entry.name) != 0) continue;
      Refuse(StrCat("tensor ", Quoted(entry.name)),
             "no tensor beside those of the state", ShapeText(entry.shape));
    }
  }

 private:
  std::string path_;
  SafetensorsFile file_;
  std::set<std::string> read_;
};

torch::Tensor AsMask(const Reader& file, const std::string& name,
                     const torch::Tensor& stored) {
  if (!((stored == 0) | (stored == 1)).all().item<bool>()) {
    file.Refuse(StrCat("tensor ", name), "zeros and ones", "another number");
  }
  return stored.to(torch::kBool);
}

}  // namespace

void SaveState(const ModelImpl& model, const StackState& state,
               const std::string& path) {
  CheckState(model, state, "SaveState: state: ",
             [](const std::string& where, const std::string& wanted,
                const std::string& given) {
               throw ArgumentError(where, wanted, given);
             });
  const uint64_t fingerprint = Fingerprint(model);
  Metadata metadata = {
      {"format", kFormat}, {"version", kVersion}, {"model", Hex(fingerprint)}};
  uint64_t hash = HashLengths(state, fingerprint);
  std::vector<torch::Tensor> held;  // keeps the copies alive
  std::vector<TensorToWrite> tensors;
  ForEachPart(state, [&](const std::string& where, const AttentionState& part) {
    metadata[where + ".lengths"] = LengthsText(part.lengths);
    for (const Member& member : kMembers) {
      if (!(part.*member.tensor).defined()) continue;
      const std::string name = StrCat(where, ".", member.name);
      held.push_back(Stored(part.*member.tensor));
      const torch::Tensor& stored = held.back();
      tensors.push_back({name, DTypeOf("SaveState: " + name, stored),
                         stored.sizes().vec(), stored.const_data_ptr()});
      hash = AddToHash(AddToHash(hash, name), stored);
    }
  });
  metadata["contents"] = Hex(hash);
  WriteSafetensors(path, tensors, metadata);
}

StackState LoadState(const ModelImpl& model, const std::string& path) {
  const uint64_t fingerprint = Fingerprint(model);
  StackState state = StateLike(model, 0);  // refuses models without a state
  const auto device = model.parameters().front().device();
  Reader file(path);
  file.Require("format", kFormat);
  file.Require("version", kVersion);
  file.Require("model", Hex(fingerprint));
  ForEachPart(state, [&](const std::string& where, AttentionState& part) {
    part.lengths = file.Lengths(where + ".lengths");
  });
  uint64_t hash = HashLengths(state, fingerprint);
  ForEachPart(state, [&](const std::string& where, AttentionState& part) {
    for (const Member& member : kMembers) {
      const std::string name = StrCat(where, ".", member.name);
      torch::Tensor stored = file.Tensor(name);
      if (stored.defined()) {
        hash = AddToHash(AddToHash(hash, name), stored);
        if (member.tensor == &AttentionState::key_mask) {
          stored = AsMask(file, name, stored);
        }
      }
      part.*member.tensor = stored;
    }
  });
  file.CheckAllRead();
  CheckState(
      model, state, "",
      [&](const std::string& where, const std::string& wanted,
          const std::string& given) { file.Refuse(where, wanted, given); });
  file.Require("contents", Hex(hash));
  ForEachPart(state, [&](const std::string&, AttentionState& part) {
    for (const Member& member : kMembers) {
      torch::Tensor& tensor = part.*member.tensor;
      if (tensor.defined()) tensor = tensor.to(device);
    }
  });
  return state;
}

}  // namespace tarn::nn
