#include "importers/gguf/gguf_publish.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "importers/directory.h"
#include "importers/gguf/architecture.h"
#include "importers/gguf/text_keys.h"
#include "importers/publish.h"
#include "weights/gguf/encodings.h"

namespace tarn {
namespace {

// llama.h, enum llama_ftype, which is for readers alone.
struct NumberType {
  const char* word;
  const Encoding* encoding;
  int64_t file_type;
};
constexpr NumberType kNumberTypes[] = {{"f32", &kF32Encoding, 0},
                                       {"f16", &kF16Encoding, 1},
                                       {"bf16", &kBF16Encoding, 32},
                                       {"q8_0", &kQ80Encoding, 7},
                                       {"q4_0", &kQ40Encoding, 2}};
constexpr const char* kAsStored = "stored";
constexpr int64_t kGuessed = 1024;  // llama.h, LLAMA_FTYPE_GUESSED
constexpr int64_t kQuantizationVersion = 2;

// Parts of the names of matrices that are F32 in every file: llama.cpp,
// conversion/base.py, prepare_tensors.
constexpr std::string_view kSingleNames[] = {
    "_norm.weight",      "ffn_gate_inp",      "position_embd",
    "token_types",       "ssm_conv1d",        "shortconv.conv",
    "time_mix_first",    "time_mix_w1",       "time_mix_w2",
    "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_lerp_fused"};

bool IsSingle(const WeightTensor& tensor) {
  return tensor.shape.size() < 2 || !tensor.name.ends_with(".weight") ||
         std::any_of(std::begin(kSingleNames), std::end(kSingleNames),
                     [&](std::string_view part) {
                       return tensor.name.find(part) != std::string::npos;
                     });
}

// type: null: as the tensor is, if GGUF has such blocks and tarn writes them.
const Encoding& StoredAs(const WeightTensor& tensor, const Encoding* type) {
  if (IsSingle(tensor)) return kF32Encoding;
  if (type == nullptr) type = GgufEncodingLike(*tensor.encoding);
  const bool fits = type != nullptr && type->narrow != nullptr &&
                    tensor.shape.back() % type->numbers == 0;
  return fits ? *type : kF16Encoding;
}

const NumberType* NumberTypeOf(const std::string& word) {
  for (const NumberType& type : kNumberTypes) {
    if (word == type.word) return &type;
  }
  return nullptr;
}

struct Choice {
  const GgufArchitecture* row;
  PublishedForm form;
};

Choice ChooseRow(const ModelConfig& config,
                 const std::shared_ptr<const WeightSource>& weights) {
  for (const GgufArchitecture& row : GgufArchitectures()) {
    if (row.fits != nullptr && !row.fits(config)) continue;
    for (const char* type : row.types) {
      Result<PublishedForm> form = Publish(config, weights, type);
      if (form.ok()) return {&row, std::move(form).Take()};
    }
  }
  const Result<PublishedForm> other = Publish(config, weights, "");
  if (!other.ok()) Throw(other.error());
  std::string known;
  for (const char* type : GgufModelTypes()) {
    known += (known.empty() ? "" : ", ") + std::string(type);
  }
  throw FormatError("config.json",
                    "a model of a type that becomes a GGUF file: " + known,
                    "one of " + other.value().model_type);
}

}  // namespace

std::vector<std::string> GgufNumberTypes() {
  std::vector<std::string> words = {kAsStored};
  for (const NumberType& type : kNumberTypes) words.push_back(type.word);
  return words;
}

std::vector<const char*> GgufModelTypes() {
  std::vector<const char*> types;
  for (const GgufArchitecture& row : GgufArchitectures()) {
    types.insert(types.end(), row.types.begin(), row.types.end());
  }
  return types;
}

Result<GgufForm> PublishGguf(const ModelConfig& config,
                             std::shared_ptr<const WeightSource> weights,
                             const VocabularyKeys& vocabulary,
                             const ModelPath& texts,
                             const std::string& numbers) {
  const NumberType* type = NumberTypeOf(numbers);
  if (type == nullptr && numbers != kAsStored) {
    std::string known;
    for (const std::string& word : GgufNumberTypes()) {
      known += (known.empty() ? "" : ", ") + word;
    }
    return ArgumentError("type of numbers", "one of " + known, Quoted(numbers));
  }
  try {
    const Choice choice = ChooseRow(config, weights);
    const ModelConfig read =
        ImportConfig(choice.form.config, "config.json").Take();
    const nlohmann::json published = nlohmann::json::parse(choice.form.config);
    GgufForm form;
    form.architecture = choice.row->name;
    form.model_type = choice.form.model_type;
    form.keys.Text("general.architecture", choice.row->name);
    form.keys.Text("general.type", "model");
    form.keys.U32("general.file_type",
                  type == nullptr ? kGuessed : type->file_type);
    form.keys.U32("general.quantization_version", kQuantizationVersion);
    choice.row->keys({published, read}, form.keys);
    AddTextKeys(vocabulary, texts, read, form.keys);
    GgufTensors tensors = GgufTensors::OfPublished(choice.form.weights);
    choice.row->tensors(read, tensors);
    tensors.RequireAllRead();
    form.weights = tensors.File();
    const Encoding* encoding = type == nullptr ? nullptr : type->encoding;
    form.stored = [encoding](const WeightTensor& tensor) -> const Encoding& {
      return StoredAs(tensor, encoding);
    };
    return form;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) return error;
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

}  // namespace tarn
