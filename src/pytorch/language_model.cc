#include "pytorch/language_model.h"

#include <cmath>
#include <set>
#include <vector>

#include "core/safetensors.h"
#include "pytorch/modules_positions.h"

namespace tarn::nn {
namespace {

// GPT-2's standard deviation for embeddings: tied logits start near 0.
constexpr double kSmallEmbedding = 0.02;

ModelConfig Finished(ModelConfig config) {
  FinishConfig(config);
  return config;
}

void CheckTokens(const torch::Tensor& tokens, int64_t vocab_size) {
  if (tokens.dim() != 2) {
    throw ShapeError("LanguageModel: tokens", "[batch, seq_len]",
                     ShapeText(tokens.sizes().vec()));
  }
  if (tokens.scalar_type() != torch::kInt64) {
    throw DTypeError("LanguageModel: tokens", "int64",
                     c10::toString(tokens.scalar_type()));
  }
  // Elsewhere the check would wait for the device at every step.
  if (!tokens.is_cpu() || tokens.numel() == 0) return;
  const auto [least, largest] = torch::aminmax(tokens);
  const int64_t low = least.item<int64_t>();
  const int64_t high = largest.item<int64_t>();
  if (low < 0 || high >= vocab_size) {
    throw ArgumentError("LanguageModel: tokens",
                        StrCat("ids in [0, ", vocab_size, ")"),
                        StrCat(low < 0 ? low : high));
  }
}

}  // namespace

PredictorImpl::PredictorImpl(const ModelConfig& config) {
  // As torch::nn::Linear: U(+-1/sqrt(inputs)) for both.
  const double bound = 1.0 / std::sqrt(static_cast<double>(config.d_model));
  if (!config.tied_head) {
    weight = register_parameter(
        "weight", torch::empty({config.vocab_size, config.d_model})
                      .uniform_(-bound, bound));
  }
  bias = register_parameter(
      "bias", torch::empty({config.vocab_size}).uniform_(-bound, bound));
}

torch::Tensor PredictorImpl::forward(const torch::Tensor& x,
                                     const torch::Tensor& embedding) {
  return torch::linear(x, weight.defined() ? weight : embedding, bias);
}

LanguageModelImpl::LanguageModelImpl(const ModelConfig& config)
    : config_(Finished(config)) {
  torch::NoGradGuard no_grad;  // for the in-place initialisation only
  value_embedding_ = register_module(
      "value_embedding",
      torch::nn::Embedding(config_.vocab_size, config_.EmbeddingWidth()));
  if (config_.tied_head) {
    value_embedding_->weight.normal_(0.0, kSmallEmbedding);
  }
  if (config_.positions == Positions::kLearned) {
    pos_embedding_ = register_module(
        "pos_embedding",
        torch::nn::Embedding(config_.max_positions, config_.d_model));
    pos_embedding_->weight.normal_(0.0, kSmallEmbedding);
  }
  encoder_ = Encoder(config_);
  register_module("layers", encoder_->layers);
  if (encoder_->norm) register_module("norm", encoder_->norm);
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor LanguageModelImpl::Embed(const torch::Tensor& tokens) {
  const int64_t seq_len = tokens.size(1);
  const torch::Tensor x = value_embedding_(tokens);  // [B, T, EmbeddingWidth]
  switch (config_.positions) {
    case Positions::kLearned:
      return x + pos_embedding_(LearnedRows(seq_len, config_.max_positions, x));
    case Positions::kSinusoidal: {
      if (config_.position_combine == PositionCombine::kAdd) {
        return x + tables_->Sinusoidal(seq_len, config_.d_model, x);
      }
      const int64_t width = config_.d_model - config_.EmbeddingWidth();
      const torch::Tensor table = tables_->Sinusoidal(seq_len, width, x);
      return torch::cat({x, table.expand({x.size(0), seq_len, width})}, -1);
    }
    case Positions::kNone:
    case Positions::kRotary:  // applied inside the attention layers
      break;
  }
  return x;
}

torch::Tensor LanguageModelImpl::forward(const torch::Tensor& tokens) {
  CheckTokens(tokens, config_.vocab_size);
  return predictor_(encoder_(Embed(tokens)), value_embedding_->weight);
}

void SaveWeights(LanguageModel& model, const std::string& path,
                 const std::map<std::string, std::string>& metadata) {
  const auto parameters = model->named_parameters();
  std::vector<torch::Tensor> held;  // keeps the converted copies alive
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : WeightShapes(model->config())) {
    held.push_back(parameters[name]
                       .detach()
                       .to(torch::kCPU, torch::kFloat32)
                       .contiguous());
    tensors.push_back({name, DType::kF32, shape, held.back().data_ptr()});
  }
  WriteSafetensors(path, tensors, metadata);
}

namespace {

// Opens the file; Result's own Take() would throw the base class.
SafetensorsFile OpenTyped(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (file.ok()) return std::move(file).value();
  if (file.error().code() == ErrorCode::kIo) throw IoError(file.error().what());
  throw FormatError(file.error().what());
}

// The entry of every tensor of the config, in its order; throws FormatError
// for one that is missing or misshapen and for one too many.
std::vector<const TensorEntry*> MatchEntries(const SafetensorsFile& file,
                                             const ModelConfig& config,
                                             const std::string& path) {
  std::vector<const TensorEntry*> entries;
  std::set<std::string> wanted;
  for (const auto& [name, shape] : WeightShapes(config)) {
    const TensorEntry* entry = file.Find(name);
    const std::string where = StrCat(path, ": tensor ", name);
    if (entry == nullptr) {
      throw FormatError(where, ShapeText(shape), "no such tensor");
    }
    if (entry->shape != shape) {
      throw FormatError(where, ShapeText(shape), ShapeText(entry->shape));
    }
    entries.push_back(entry);
    wanted.insert(name);
  }
  for (const TensorEntry& entry : file.tensors()) {
    if (wanted.count(entry.name) == 0) {
      throw FormatError(StrCat(path, ": tensor ", entry.name),
                        "no tensor beside those of the configuration",
                        ShapeText(entry.shape));
    }
  }
  return entries;
}

}  // namespace

void LoadWeights(LanguageModel& model, const std::string& path) {
  const SafetensorsFile file = OpenTyped(path);
  const std::vector<const TensorEntry*> entries =
      MatchEntries(file, model->config(), path);
  torch::NoGradGuard no_grad;
  auto parameters = model->named_parameters();
  for (const TensorEntry* entry : entries) {
    torch::Tensor values = torch::empty(entry->shape, torch::kFloat32);
    file.ReadF32(*entry, values.data_ptr<float>());
    parameters[entry->name].copy_(values);
  }
}

}  // namespace tarn::nn
