#include "runtime/model/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "config/model_config.h"
#include "core/file.h"
#include "core/text.h"
#include "importers/generation_config.h"
#include "runtime/model/files.h"
#include "runtime/model/labels.h"
#include "runtime/weights/weights.h"
#include "text/tokenizer.h"
#include "weights/weight_source.h"

namespace tarn {
namespace {

// Numbers that are looked at together: 64 KiB of float32.
constexpr int64_t kChecked = 16384;

// Widening keeps infinities and NaN, so one check serves every encoding.
void CheckFinite(const WeightSource& source, const WeightTensor& tensor,
                 std::vector<Error>& problems) {
  const int64_t columns = tensor.columns();
  if (tensor.elements() == 0) return;
  // Some rows, or a part of a wide one.
  const int64_t width = std::min(columns, kChecked);
  const int64_t height = kChecked / width;
  std::vector<float> block(static_cast<size_t>(width * height));
  int64_t first = -1, count = 0;
  for (int64_t row = 0; row < tensor.rows(); row += height) {
    for (int64_t column = 0; column < columns; column += width) {
      const WeightRange rows = {row, std::min(row + height, tensor.rows())};
      const WeightRange part = {column, std::min(column + width, columns)};
      source.Read(tensor, rows, part, block.data());
      for (int64_t i = 0; i < rows.size() * part.size(); ++i) {
        if (std::isfinite(block[static_cast<size_t>(i)])) continue;
        // A block of several rows is as wide as the tensor.
        if (count++ == 0) first = row * columns + column + i;
      }
    }
  }
  source.Release(tensor);
  if (count == 0) return;
  problems.push_back(FormatError(
      source.Where(tensor, first), "finite weights",
      StrCat(count, " NaN or infinite, the first at element ", first)));
}

void CheckShapes(const WeightSource& source, const ModelConfig& config,
                 std::vector<Error>& problems) {
  std::map<std::string, std::vector<int64_t>> wanted;
  for (auto& [name, shape] : TensorShapes(source, config)) {
    if (source.Find(name) == nullptr) {
      problems.push_back(
          FormatError(StrCat(source.path(), ": tensor ", Quoted(name, 200)),
                      StrCat("shape ", ShapeText(shape)), "no such tensor"));
    }
    wanted.emplace(name, shape);
  }
  for (const WeightTensor& tensor : source.tensors()) {
    const auto found = wanted.find(tensor.name);
    if (found == wanted.end()) {
      problems.push_back(FormatError(
          source.Where(tensor), "no tensor that config.json does not imply",
          StrCat("shape ", ShapeText(tensor.shape))));
    } else if (found->second != tensor.shape) {
      problems.push_back(FormatError(
          source.Where(tensor), StrCat("shape ", ShapeText(found->second)),
          StrCat("shape ", ShapeText(tensor.shape))));
    }
  }
}

std::optional<ModelConfig> CheckConfig(const ModelPath& model,
                                       std::vector<Error>& problems) {
  Result<ModelConfig> config = ReadModelConfig(model);
  if (!config.ok()) {
    problems.push_back(config.error());
    return std::nullopt;
  }
  return config.value();
}

void CheckTokenizer(const ModelPath& model,
                    const std::optional<ModelConfig>& config,
                    std::vector<Error>& problems) {
  if (config.has_value()) {
    if (config->task == Task::kCtc) return;  // reads frames, not tokens
    Result<Tokenizer> tokenizer = OpenTokenizer(model, *config);
    if (!tokenizer.ok()) problems.push_back(tokenizer.error());
    return;
  }
  // There is nothing to compare with: a file that is there is checked by
  // itself. A bad configuration does not say whether there must be one.
  const bool missing = problems.back().code() == ErrorCode::kIo;
  if (!missing && !Tokenizer::IsIn(model)) return;
  Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(model);
  if (!tokenizer.ok()) problems.push_back(tokenizer.error());
}

}  // namespace

VerifyReport VerifyModel(const ModelPath& model) {
  VerifyReport report;
  const std::optional<ModelConfig> config = CheckConfig(model, report.problems);
  CheckTokenizer(model, config, report.problems);
  if (config.has_value()) {
    const auto generation = ReadGenerationConfig(model);
    if (!generation.ok()) report.problems.push_back(generation.error());
  }
  if (config.has_value() && HasLabels(config->task)) {
    const auto labels = ReadLabels(model.path(), *config);
    if (!labels.ok()) report.problems.push_back(labels.error());
  }
  const auto weights =
      config.has_value() ? OpenNamedWeights(model, *config) : model.Weights();
  if (!weights.ok()) {
    report.problems.push_back(weights.error());
    return report;
  }
  const WeightSource& source = *weights.value();
  if (config.has_value()) CheckShapes(source, *config, report.problems);
  for (const WeightTensor& tensor : source.tensors()) {
    ++report.tensors;
    report.elements += tensor.elements();
    try {
      CheckFinite(source, tensor, report.problems);
    } catch (
        const FormatError& error) {  // scales of groups that are no numbers
      report.problems.push_back(error);
    }
  }
  return report;
}

}  // namespace tarn
