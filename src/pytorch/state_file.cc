#include "pytorch/state_file.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "core/safetensors.h"
#include "pytorch/open_file.h"

namespace tarn::nn {
namespace {

constexpr const char* kVersion = "1";

struct Part {
  const char* name;
  torch::Tensor AttentionState::*member;
};
constexpr Part kParts[] = {{"S", &AttentionState::S},
                           {"z", &AttentionState::z},
                           {"extra", &AttentionState::extra},
                           {"keys", &AttentionState::keys},
                           {"values", &AttentionState::values},
                           {"key_mask", &AttentionState::key_mask},
                           {"m", &AttentionState::m},
                           {"a", &AttentionState::a},
                           {"b", &AttentionState::b}};

std::string LengthsText(const torch::Tensor& lengths) {
  std::string text;
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    text += StrCat(b > 0 ? "," : "", lengths[b].item<int64_t>());
  }
  return text;
}

torch::Tensor ParseLengths(const std::string& where, const std::string& text) {
  std::vector<int64_t> lengths;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int64_t value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    const bool more = stop != end && *stop == ',';
    if (error != std::errc() || value < 0 || (stop != end && !more)) {
      throw FormatError(where, "lengths, separated by commas", text);
    }
    lengths.push_back(value);
    at = more ? stop + 1 : stop;
  }
  return torch::tensor(lengths, torch::kInt64);
}

AttentionKind CrossKind(const ModelConfig& config) {
  return config.cross_attention == CrossAttention::kLinear
             ? AttentionKind::kLinear
             : AttentionKind::kFull;
}

// Sizes a part must have behind its first axis, -1 for any; nullopt: the state
// has no such part.
std::optional<std::vector<int64_t>> Tail(const ModelConfig& c,
                                         AttentionKind kind,
                                         const std::string& part) {
  using Sizes = std::vector<int64_t>;
  const int64_t heads = c.n_heads;
  const int64_t features = FeatureWidth(c.feature_map, c.d_key, c.n_dims);
  if (kind == AttentionKind::kLinear) {
    if (part == "S") return Sizes{heads, features, c.d_value};
    if (part == "z") return Sizes{heads, features};
    if (part != "extra") return std::nullopt;
    if (c.denominator == Denominator::kSigned) return Sizes{heads};
    if (c.stabilise) return Sizes{heads, features};
    return std::nullopt;
  }
  if (kind == AttentionKind::kAftSimple) {
    if (part == "m" || part == "a" || part == "b") {
      return Sizes{heads, c.d_value};
    }
    return std::nullopt;
  }
  if (part == "keys") return Sizes{-1, heads, c.d_key};
  if (part == "values") return Sizes{-1, heads, c.d_value};
  return std::nullopt;
}

bool Fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& tail,
          int64_t batch) {
  if (shape.size() != tail.size() + 1 || shape[0] != batch) return false;
  for (size_t i = 0; i < tail.size(); ++i) {
    if (tail[i] >= 0 && shape[i + 1] != tail[i]) return false;
  }
  return true;
}

// Counts the tensors it takes in `used`.
AttentionState ReadState(const SafetensorsFile& file, const std::string& path,
                         const ModelConfig& config, AttentionKind kind,
                         const std::string& name, size_t& used) {
  const std::string where = StrCat(path, ": ", name);
  const auto found = file.metadata().find(name + ".lengths");
  if (found == file.metadata().end()) {
    throw FormatError(where + ".lengths", "lengths", "no such entry");
  }
  AttentionState state;
  state.kind = kind;
  state.lengths = ParseLengths(where + ".lengths", found->second);
  for (const Part& part : kParts) {
    const auto tail = Tail(config, kind, part.name);
    const TensorEntry* entry = file.Find(StrCat(name, ".", part.name));
    const bool mask = std::string_view(part.name) == "key_mask";
    if (entry == nullptr && (!tail || mask)) continue;
    const std::string what = StrCat(where, ".", part.name);
    if (entry == nullptr) throw FormatError(what, "a tensor", "no such tensor");
    const bool kept = kind == AttentionKind::kFull && mask;
    const std::vector<int64_t> wanted =
        kept ? std::vector<int64_t>{-1} : tail.value_or(std::vector<int64_t>());
    if (!(tail || kept) || !Fits(entry->shape, wanted, state.batch())) {
      throw FormatError(what,
                        StrCat("a state of kind '", Name(kind), "' for ",
                               state.batch(), " sequences"),
                        ShapeText(entry->shape));
    }
    torch::Tensor values = torch::empty(entry->shape, torch::kFloat32);
    file.ReadF32(*entry, values.data_ptr<float>());
    state.*part.member = mask ? values != 0 : values;
    ++used;
  }
  const bool keeps = state.keys.defined();
  if (keeps && (state.keys.size(1) != state.values.size(1) ||
                (state.key_mask.defined() &&
                 state.key_mask.size(1) != state.keys.size(1)))) {
    throw FormatError(where, "as many keys as values",
                      ShapeText(state.values.sizes().vec()));
  }
  // A ring forgets; the others hold every token.
  if (keeps && kind != AttentionKind::kLocal && state.batch() > 0 &&
      state.lengths.max().item<int64_t>() > state.keys.size(1)) {
    throw FormatError(where + ".lengths",
                      StrCat("at most ", state.keys.size(1)), found->second);
  }
  return state;
}

}  // namespace

void SaveState(const StackState& state, const ModelConfig& config,
               const std::string& path) {
  std::map<std::string, std::string> metadata = {
      {"state_version", kVersion}, {"config", ConfigToJson(config)}};
  std::vector<torch::Tensor> held;
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const AttentionState& each, const std::string& name) {
    metadata[name + ".lengths"] = LengthsText(each.lengths);
    for (const Part& part : kParts) {
      torch::Tensor tensor = each.*part.member;
      if (!tensor.defined()) continue;
      if (tensor.scalar_type() == torch::kBool) {
        tensor = tensor.to(torch::kFloat32);
      }
      if (tensor.scalar_type() != torch::kFloat32) {
        throw DTypeError(StrCat("SaveState: ", name), "float32",
                         c10::toString(tensor.scalar_type()));
      }
      held.push_back(tensor.detach().to(torch::kCPU).contiguous());
      tensors.push_back({StrCat(name, ".", part.name), DType::kF32,
                         tensor.sizes().vec(), held.back().data_ptr()});
    }
  };
  for (size_t i = 0; i < state.layers.size(); ++i) {
    add(state.layers[i], StrCat("layers.", i));
  }
  for (size_t i = 0; i < state.memories.size(); ++i) {
    add(state.memories[i], StrCat("memories.", i));
  }
  WriteSafetensors(path, tensors, metadata);
}

StackState LoadState(const ModelConfig& config, const std::string& path) {
  const SafetensorsFile file = OpenTyped(path);
  const auto entry = [&](const std::string& key, const std::string& wanted,
                         const char* what) {
    const auto found = file.metadata().find(key);
    if (found != file.metadata().end() && found->second == wanted) return;
    throw FormatError(StrCat(path, ": ", key), what,
                      found == file.metadata().end() ? "none" : "another");
  };
  entry("state_version", kVersion, kVersion);
  entry("config", ConfigToJson(config), "the config of the model");
  ModelConfig finished = config;
  FinishConfig(finished);
  const bool cross = finished.arch == Arch::kSeq2seq;
  const int64_t layers = cross ? finished.n_decoder_layers : finished.n_layers;
  StackState state;
  size_t used = 0;
  for (int64_t i = 0; i < layers; ++i) {
    state.layers.push_back(ReadState(file, path, finished, finished.attention,
                                     StrCat("layers.", i), used));
    if (!cross) continue;
    state.memories.push_back(ReadState(file, path, finished,
                                       CrossKind(finished),
                                       StrCat("memories.", i), used));
  }
  for (const auto* states : {&state.layers, &state.memories}) {
    for (const AttentionState& each : *states) {
      if (each.batch() == state.batch()) continue;
      throw FormatError(path, StrCat(state.batch(), " sequences everywhere"),
                        StrCat(each.batch()));
    }
  }
  if (used != file.tensors().size()) {
    throw FormatError(path, StrCat(used, " tensors"),
                      StrCat(file.tensors().size()));
  }
  return state;
}

}  // namespace tarn::nn
