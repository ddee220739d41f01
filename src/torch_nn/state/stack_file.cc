#include "torch_nn/state/stack_file.h"

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
#include "torch_nn/models/open_file.h"
#include "torch_nn/state/check.h"

namespace tarn::nn {
namespace {

constexpr char kFormat[] = "tarn-stack-state";
// Version 1 knew one set of tensors for all mixers; 2 has their specs' names.
constexpr char kVersion[] = "2";

using Metadata = std::map<std::string, std::string>;

// A hash of what the reading model must share: its configuration (mixers,
// sizes, feature map, denominator) and its random directions.
uint64_t Fingerprint(const ModelImpl& model) {
  uint64_t hash = HashBytes(ConfigIdentity(model.config()));
  for (const auto& buffer : model.named_buffers()) {
    if (!IsBuffer(buffer.key())) continue;
    const torch::Tensor dense = buffer.value().to(torch::kCPU).contiguous();
    hash = ExtendHash(
        ExtendHash(hash, buffer.key()),
        {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
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

// The tensor as a file holds it: masks as 0 and 1.
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

  void RequireVersion() const {
    if (Text("version") == kVersion) return;
    Refuse("version",
           StrCat(kVersion,
                  " (a state file of another version is not read: "
                  "feed the model the tokens again and save its state)"),
           Quoted(Text("version")));
  }

  torch::Tensor Lengths(const std::string& key) const {
    const auto lengths = ParseLengths(Text(key));
    if (!lengths) {
      Refuse(key, "integers between commas", Quoted(Text(key)));
    }
    return *lengths;
  }

  // The tensor of a slot; undefined where the file holds none.
  torch::Tensor Tensor(const std::string& name, const StateSlot& slot) {
    const TensorEntry* entry = file_.Find(name);
    if (entry == nullptr) return {};
    read_.insert(name);
    const torch::Tensor tensor =
        torch::empty(entry->shape, TypeOf(entry->dtype));
    if (tensor.nbytes() > 0) {
      std::memcpy(tensor.data_ptr(), file_.Data(*entry), tensor.nbytes());
    }
    return slot.mask ? AsMask(name, tensor) : tensor;
  }

  void CheckAllRead() const {
    for (const TensorEntry& entry : file_.tensors()) {
      if (read_.count(entry.name) != 0) continue;
      Refuse(StrCat("tensor ", Quoted(entry.name)),
             "no tensor besides those of the state", ShapeText(entry.shape));
    }
  }

 private:
  torch::Tensor AsMask(const std::string& name,
                       const torch::Tensor& stored) const {
    if (stored.scalar_type() != torch::kHalf ||
        !((stored == 0) | (stored == 1)).all().item<bool>()) {
      Refuse(StrCat("tensor ", name), "zeros and ones in float16",
             "another number or type");
    }
    return stored.to(torch::kBool);
  }

  std::string path_;
  SafetensorsFile file_;
  std::set<std::string> read_;
};

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
                       {"model", HashText(fingerprint)},
                       {"contents", HashText(HashState(state, fingerprint))}};
  std::vector<torch::Tensor> held;  // keeps the copies alive
  std::vector<TensorToWrite> tensors;
  ForEachPart(state, [&](const std::string& where, const MixerState& part) {
    metadata[where + ".lengths"] = LengthsText(part.lengths);
    for (size_t i = 0; i < part.tensors().size(); ++i) {
      if (!part.tensors()[i].defined()) continue;
      const std::string name =
          StrCat(where, ".", part.form().slots[i].spec.name);
      held.push_back(Stored(part.tensors()[i]));
      const torch::Tensor& stored = held.back();
      tensors.push_back({name, DTypeOf("SaveState: " + name, stored),
                         stored.sizes().vec(), stored.const_data_ptr()});
    }
  });
  WriteSafetensors(path, tensors, metadata);
}

StackState LoadState(const ModelImpl& model, const std::string& path) {
  const uint64_t fingerprint = Fingerprint(model);
  StackState state = model.EmptyState();  // refuses models without a state
  const auto device = model.device();
  Reader file(path);
  file.Require("format", kFormat);
  file.RequireVersion();
  file.Require("model", HashText(fingerprint));
  ForEachPart(state, [&](const std::string& where, MixerState& part) {
    part.lengths = file.Lengths(where + ".lengths");
    for (size_t i = 0; i < part.tensors().size(); ++i) {
      const StateSlot& slot = part.form().slots[i];
      part.tensors()[i] = file.Tensor(StrCat(where, ".", slot.spec.name), slot);
    }
  });
  file.CheckAllRead();
  CheckState(
      model, state, "",
      [&](const std::string& where, const std::string& wanted,
          const std::string& given) { file.Refuse(where, wanted, given); });
  file.Require("contents", HashText(HashState(state, fingerprint)));
  ForEachPart(state, [&](const std::string&, MixerState& part) {
    for (torch::Tensor& tensor : part.tensors()) {
      if (tensor.defined()) tensor = tensor.to(device);
    }
  });
  return state;
}

}  // namespace tarn::nn
