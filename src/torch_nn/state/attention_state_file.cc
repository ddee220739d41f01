#include "torch_nn/state/attention_state_file.h"

#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "config/identity.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "torch_nn/state/attention_state_check.h"
#include "torch_nn/models/open_file.h"

namespace tarn::nn {
namespace {

constexpr char kFormat[] = "tarn-stack-state";
constexpr char kVersion[] = "1";

using Metadata = std::map<std::string, std::string>;

// The same for the numbers of a dense tensor on the CPU.
uint64_t ExtendHash(uint64_t hash, const torch::Tensor& dense) {
  return tarn::ExtendHash(
      hash, {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

// What must be the same in the model that goes on: its configuration (kinds,
// sizes, feature map, denominator) and its random directions.
uint64_t Fingerprint(const ModelImpl& model) {
  uint64_t hash = HashBytes(ConfigIdentity(model.config()));
  for (const auto& buffer : model.named_buffers()) {
    if (!IsBuffer(buffer.key())) continue;
    hash = ExtendHash(tarn::ExtendHash(hash, buffer.key()),
                      buffer.value().to(torch::kCPU).contiguous());
  }
  return hash;
}

std::string LengthsText(const torch::Tensor& lengths) {
  const torch::Tensor dense = lengths.contiguous();
  const int64_t* values = dense.const_data_ptr<int64_t>();
  std::string text;
  for (int64_t i = 0; i < dense.numel(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(values[i]);
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
    hash = tarn::ExtendHash(hash, StrCat(name, " ", LengthsText(part.lengths)));
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
  Metadata metadata = {{"format", kFormat},
                       {"version", kVersion},
                       {"model", HashText(fingerprint)}};
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
      hash = ExtendHash(tarn::ExtendHash(hash, name), stored);
    }
  });
  metadata["contents"] = HashText(hash);
  WriteSafetensors(path, tensors, metadata);
}

StackState LoadState(const ModelImpl& model, const std::string& path) {
  const uint64_t fingerprint = Fingerprint(model);
  StackState state = InitialState(model);  // refuses models without a state
  const auto device = model.parameters().front().device();
  Reader file(path);
  file.Require("format", kFormat);
  file.Require("version", kVersion);
  file.Require("model", HashText(fingerprint));
  ForEachPart(state, [&](const std::string& where, AttentionState& part) {
    part.lengths = file.Lengths(where + ".lengths");
  });
  uint64_t hash = HashLengths(state, fingerprint);
  ForEachPart(state, [&](const std::string& where, AttentionState& part) {
    for (const Member& member : kMembers) {
      const std::string name = StrCat(where, ".", member.name);
      torch::Tensor stored = file.Tensor(name);
      if (stored.defined()) {
        hash = ExtendHash(tarn::ExtendHash(hash, name), stored);
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
  file.Require("contents", HashText(hash));
  ForEachPart(state, [&](const std::string&, AttentionState& part) {
    for (const Member& member : kMembers) {
      torch::Tensor& tensor = part.*member.tensor;
      if (tensor.defined()) tensor = tensor.to(device);
    }
  });
  return state;
}

}  // namespace tarn::nn
