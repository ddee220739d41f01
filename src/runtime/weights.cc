#include "runtime/weights.h"

#include <algorithm>
#include <map>
#include <memory>

namespace tarn {
namespace {

constexpr int64_t kMostListed = 8;
// Lower bound of the tensors in one layer; keeps a configuration that claims
// millions of layers from making us list their names.
constexpr int64_t kTensorsPerLayer = 16;
// Memory that a model may take whatever the size of its file.
constexpr double kFreeBytes = 64 << 20;

// The parts of WeightShapes() that PackWeights names; kept in step by
// CheckWeights, which runs first.
class Reader {
 public:
  explicit Reader(const SafetensorsFile& file) : file_(file) {}

  std::vector<float> Vector(const std::string& name) {
    const TensorEntry* entry = file_.Find(name);
    if (entry == nullptr) {  // CheckWeights was not asked
      throw FormatError("weight file", name, "no such tensor");
    }
    std::vector<float> values(static_cast<size_t>(entry->elements()));
    file_.ReadF32(*entry, values.data());
    parameters_ += entry->elements();
    return values;
  }

  NormWeights Norm(const std::string& name) {
    NormWeights norm;
    norm.weight = Vector(name + ".weight");
    norm.bias = Vector(name + ".bias");
    return norm;
  }

  // Rows [first, first + rows) of `matrix` from name.weight and name.bias.
  void Linear(const std::string& name, int64_t first, int64_t rows,
              PackedMatrix& matrix) {
    const std::vector<float> weight = Vector(name + ".weight");
    const std::vector<float> bias = Vector(name + ".bias");
    matrix.SetRows(first, rows, weight.data(), bias.data());
  }

  PackedMatrix Linear(const std::string& name, int64_t outputs, int64_t inputs,
                      DType dtype,
                      const std::shared_ptr<WeightMemory>& memory) {
    PackedMatrix matrix(outputs, inputs, dtype, memory);
    Linear(name, 0, outputs, matrix);
    return matrix;
  }

  int64_t parameters() const { return parameters_; }

 private:
  const SafetensorsFile& file_;
  int64_t parameters_ = 0;
};

LayerWeights PackLayer(Reader& reader, const ModelConfig& config, int64_t i,
                       DType dtype,
                       const std::shared_ptr<WeightMemory>& memory) {
  const std::string layer = StrCat("layers.", i, ".");
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  LayerWeights w;
  w.qkv = PackedMatrix(2 * keys + values, config.d_model, dtype, memory);
  reader.Linear(layer + "attention.query_projection", 0, keys, w.qkv);
  reader.Linear(layer + "attention.key_projection", keys, keys, w.qkv);
  reader.Linear(layer + "attention.value_projection", 2 * keys, values, w.qkv);
  w.out = reader.Linear(layer + "attention.out_projection", config.d_model,
                        values, dtype, memory);
  w.linear1 = reader.Linear(layer + "linear1", config.d_ff, config.d_model,
                            dtype, memory);
  w.linear2 = reader.Linear(layer + "linear2", config.d_model, config.d_ff,
                            dtype, memory);
  w.norm1 = reader.Norm(layer + "norm1");
  w.norm2 = reader.Norm(layer + "norm2");
  return w;
}

int64_t VectorBytes(const std::vector<float>& v) {
  return static_cast<int64_t>(v.size() * sizeof(float));
}

int64_t NormBytes(const NormWeights& norm) {
  return VectorBytes(norm.weight) + VectorBytes(norm.bias);
}

int64_t HeldBytes(const Weights& w) {
  int64_t bytes = w.embedding.bytes() + VectorBytes(w.positions) +
                  NormBytes(w.norm) + w.head.bytes();
  for (const LayerWeights& layer : w.layers) {
    bytes += layer.qkv.bytes() + layer.out.bytes() + layer.linear1.bytes() +
             layer.linear2.bytes() + NormBytes(layer.norm1) +
             NormBytes(layer.norm2);
  }
  return bytes;
}

std::string MissingText(const std::vector<std::string>& missing,
                        size_t wanted) {
  std::string text =
      StrCat("a file without ", missing.size(), " of ", wanted, ": ");
  for (size_t i = 0; i < missing.size() && i < kMostListed; ++i) {
    text += (i == 0 ? "" : ", ") + missing[i];
  }
  return missing.size() > kMostListed ? text + ", ..." : text;
}

// Bytes of every matrix once packed as float32. Outputs are padded to panels,
// so a matrix of few outputs grows up to 64-fold.
double PackedBytes(const ModelConfig& config) {
  double bytes = 0;
  for (const auto& [name, shape] : WeightShapes(config)) {
    const int64_t panels =
        (shape[0] + PackedMatrix::kPanel - 1) / PackedMatrix::kPanel;
    const double inputs = shape.size() == 2 ? static_cast<double>(shape[1]) : 1;
    bytes += static_cast<double>(panels * PackedMatrix::kPanel) * inputs * 4;
  }
  return bytes;
}

// Bytes of the matrices that every step reads.
int64_t StepBytes(const ModelConfig& config, DType dtype) {
  const auto bytes = [dtype](int64_t outputs, int64_t inputs) {
    return PackedMatrix::WeightBytes(outputs, inputs, dtype);
  };
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  const int64_t layer =
      bytes(2 * keys + values, config.d_model) + bytes(config.d_model, values) +
      bytes(config.d_ff, config.d_model) + bytes(config.d_model, config.d_ff);
  return config.n_layers * layer +
         (config.tied_head ? 0 : bytes(config.vocab_size, config.d_model));
}

uint64_t DataBytes(const SafetensorsFile& file) {
  uint64_t end = 0;
  for (const TensorEntry& entry : file.tensors())
    end = std::max(end, entry.end);
  return end;
}

}  // namespace

std::optional<Error> CheckWeights(const std::string& path,
                                  const SafetensorsFile& file,
                                  const ModelConfig& config) {
  const int64_t found = static_cast<int64_t>(file.tensors().size());
  // More than twice too many layers is no near miss: no list of names helps.
  if (config.n_layers > 64 + 2 * found / kTensorsPerLayer) {
    return FormatError(
        path + ": tensors",
        StrCat("those of n_layers = ", config.n_layers, " in config.json"),
        StrCat("a file of ", found, " tensors"));
  }
  const auto shapes = WeightShapes(config);
  std::vector<std::string> missing;
  std::map<std::string, const std::vector<int64_t>*> wanted;
  for (const auto& [name, shape] : shapes) {
    wanted[name] = &shape;
    if (file.Find(name) == nullptr) missing.push_back(name);
  }
  if (!missing.empty()) {
    return FormatError(path + ": tensors", "all that config.json asks for",
                       MissingText(missing, shapes.size()));
  }
  for (const TensorEntry& entry : file.tensors()) {
    const auto shape = wanted.find(entry.name);
    const std::string where =
        StrCat(path, ": tensor '", entry.name, "' at byte ",
               file.data_offset() + entry.begin);
    if (shape == wanted.end()) {
      return FormatError(where, "a name that config.json asks for",
                         "a tensor that belongs to no part of the model");
    }
    if (*shape->second != entry.shape) {
      return FormatError(where, "shape " + ShapeText(*shape->second),
                         ShapeText(entry.shape));
    }
  }
  // Twice for 16-bit files, twice for padding of 33 outputs and more, and
  // twice to spare; small models may do as they like.
  const double limit = 8 * static_cast<double>(DataBytes(file)) + kFreeBytes;
  if (PackedBytes(config) > limit) {
    return FormatError(path + ": tensors",
                       "matrices that grow at most 8-fold when packed",
                       "some with so few outputs that they would grow more");
  }
  return std::nullopt;
}

Weights PackWeights(const SafetensorsFile& file, const ModelConfig& config,
                    DType dtype) {
  Reader reader(file);
  Weights w;
  w.embedding = PackedMatrix(config.vocab_size, config.EmbeddingWidth(), dtype);
  {
    const std::vector<float> table = reader.Vector("value_embedding.weight");
    std::vector<float> bias;  // the head's, when the table serves as its matrix
    if (config.tied_head) bias = reader.Vector("predictor.bias");
    w.embedding.SetRows(0, config.vocab_size, table.data(),
                        config.tied_head ? bias.data() : nullptr);
  }
  if (config.positions == Positions::kLearned) {
    w.positions = reader.Vector("pos_embedding.weight");
  }
  const auto memory = std::make_shared<WeightMemory>(StepBytes(config, dtype));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    w.layers.push_back(PackLayer(reader, config, i, dtype, memory));
  }
  if (config.final_norm) w.norm = reader.Norm("norm");
  if (!config.tied_head) {
    w.head = reader.Linear("predictor", config.vocab_size, config.d_model,
                           dtype, memory);
  }
  w.parameters = reader.parameters();
  w.bytes = HeldBytes(w);
  return w;
}

}  // namespace tarn
