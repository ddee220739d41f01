#include "runtime/model/verify.h"

#include <cstring>
#include <map>
#include <optional>

#include "config/model_config.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "runtime/model/files.h"
#include "runtime/model/labels.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

constexpr char kWeights[] = "model.safetensors";

// Where a tensor's byte `offset` stands in the weight file.
std::string Where(const TensorEntry& entry, uint64_t offset) {
  return StrCat(kWeights, ": tensor ", Printable(entry.name, 200), ": byte ",
                offset);
}

// An infinity or NaN has an exponent of all ones.
bool IsFiniteBits(DType dtype, const uint8_t* element) {
  if (dtype == DType::kF32) {
    uint32_t bits;
    std::memcpy(&bits, element, sizeof(bits));
    return (bits & 0x7F800000u) != 0x7F800000u;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  const uint16_t exponent = dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
  return (bits & exponent) != exponent;
}

void CheckFinite(const SafetensorsFile& file, const TensorEntry& entry,
                 std::vector<Error>& problems) {
  const uint8_t* data = file.Data(entry);
  const int64_t elements = entry.elements();
  const int64_t width = static_cast<int64_t>(DTypeBytes(entry.dtype));
  int64_t first = -1, count = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (IsFiniteBits(entry.dtype, data + i * width)) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return;
  const uint64_t offset =
      file.data_offset() + entry.begin + static_cast<uint64_t>(first * width);
  problems.push_back(FormatError(
      Where(entry, offset), "finite weights",
      StrCat(count, " NaN or infinite, the first at element ", first)));
}

void CheckShapes(const SafetensorsFile& file, const ModelConfig& config,
                 std::vector<Error>& problems) {
  std::map<std::string, std::vector<int64_t>> wanted;
  for (auto& [name, shape] : WeightShapes(config)) {
    if (file.Find(name) == nullptr) {
      problems.push_back(FormatError(StrCat(kWeights, ": tensor ", name),
                                     StrCat("shape ", ShapeText(shape)),
                                     "no such tensor"));
    }
    wanted.emplace(name, shape);
  }
  for (const TensorEntry& entry : file.tensors()) {
    const std::string where = Where(entry, file.data_offset() + entry.begin);
    const auto found = wanted.find(entry.name);
    if (found == wanted.end()) {
      problems.push_back(
          FormatError(where, "no tensor that config.json does not imply",
                      StrCat("shape ", ShapeText(entry.shape))));
    } else if (found->second != entry.shape) {
      problems.push_back(FormatError(where,
                                     StrCat("shape ", ShapeText(found->second)),
                                     StrCat("shape ", ShapeText(entry.shape))));
    }
  }
}

std::optional<ModelConfig> CheckConfig(const std::string& dir,
                                       std::vector<Error>& problems) {
  Result<std::string> text = ReadFile(dir + "/config.json", kMaxConfigBytes);
  if (!text.ok()) {
    problems.push_back(text.error());
    return std::nullopt;
  }
  Result<ModelConfig> config = ConfigFromJson(text.value());
  if (!config.ok()) {
    problems.push_back(config.error());
    return std::nullopt;
  }
  return config.value();
}

void CheckTokenizer(const std::string& dir,
                    const std::optional<ModelConfig>& config,
                    std::vector<Error>& problems) {
  if (config.has_value()) {
    if (config->task == Task::kCtc) return;  // reads frames, not tokens
    Result<Tokenizer> tokenizer = Tokenizer::Open(dir, *config);
    if (!tokenizer.ok()) problems.push_back(tokenizer.error());
    return;
  }
  // There is nothing to compare with: the file is checked by itself.
  Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(dir);
  if (!tokenizer.ok()) problems.push_back(tokenizer.error());
}

}  // namespace

VerifyReport VerifyModel(const std::string& dir) {
  VerifyReport report;
  const std::optional<ModelConfig> config = CheckConfig(dir, report.problems);
  CheckTokenizer(dir, config, report.problems);
  if (config.has_value() && HasLabels(config->task)) {
    const auto labels = ReadLabels(dir, *config);
    if (!labels.ok()) report.problems.push_back(labels.error());
  }
  Result<SafetensorsFile> file = SafetensorsFile::Open(dir + "/" + kWeights);
  if (!file.ok()) {
    report.problems.push_back(file.error());
    return report;
  }
  if (config.has_value()) {
    CheckShapes(file.value(), *config, report.problems);
  }
  for (const TensorEntry& entry : file.value().tensors()) {
    ++report.tensors;
    report.elements += entry.elements();
    CheckFinite(file.value(), entry, report.problems);
  }
  return report;
}

}  // namespace tarn
