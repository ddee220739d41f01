#include "runtime/weights/weights.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "config/layer_counts.h"

namespace tarn {
namespace {

constexpr int64_t kMostListed = 8;
// Lower bound of the tensors in one layer; a configuration that claims millions
// of layers is refused before their names are listed.
constexpr int64_t kTensorsPerLayer = 8;
// Memory that a model may take regardless of the size of its file.
constexpr double kFreeBytes = 64 << 20;

// Reads the parts of WeightShapes() that PackWeights names; CheckWeights, which
// runs first, makes sure that they exist.
class Reader {
 public:
  explicit Reader(const SafetensorsFile& file) : file_(file) {}

  std::vector<float> Vector(const std::string& name) {
    const TensorEntry* entry = file_.Find(name);
    if (entry == nullptr) {  // CheckWeights was not called
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
    if (file_.Find(name + ".bias") != nullptr) {
      norm.bias = Vector(name + ".bias");
    }
    return norm;
  }

  // Rows [first, first + rows) of `matrix` from name.weight and, where there
  // are any, name.bias.
  void Linear(const std::string& name, int64_t first, int64_t rows,
              PackedMatrix& matrix, bool bias = true) {
    const std::vector<float> weight = Vector(name + ".weight");
    std::vector<float> biases;
    if (bias) biases = Vector(name + ".bias");
    matrix.SetRows(first, rows, weight.data(), bias ? biases.data() : nullptr);
  }

  PackedMatrix Linear(const std::string& name, int64_t outputs, int64_t inputs,
                      DType dtype, const std::shared_ptr<WeightMemory>& memory,
                      bool bias = true) {
    PackedMatrix matrix(outputs, inputs, dtype, memory);
    Linear(name, 0, outputs, matrix, bias);
    return matrix;
  }

  int64_t parameters() const { return parameters_; }

 private:
  const SafetensorsFile& file_;
  int64_t parameters_ = 0;
};

// The names of a stack's tensors in the file.
struct StackNames {
  std::string embedding, positions;  // with ".weight"
  std::string prefix;                // of layers and norm
  std::string attention;             // of a layer: "attention."
};

StackNames NamesOf(const ModelConfig& config, bool decoder) {
  if (config.arch != Arch::kSeq2seq) {
    return {"value_embedding.weight", "pos_embedding.weight", "", "attention."};
  }
  if (!decoder) {
    return {"value_embedding.weight", "pos_embedding.weight", "encoder.",
            "attention."};
  }
  return {"target_embedding.weight", "target_pos_embedding.weight", "decoder.",
          "self_attention."};
}

CrossWeights PackCross(Reader& reader, const ModelConfig& config,
                       const std::string& name, DType dtype,
                       const std::shared_ptr<WeightMemory>& memory) {
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  CrossWeights w;
  w.query = reader.Linear(name + "query_projection", keys, config.d_model,
                          dtype, memory);
  // This matrix is read once per source, not once per token, and is therefore
  // kept apart from the others.
  w.key_value = PackedMatrix(keys + values, config.d_model, dtype);
  reader.Linear(name + "key_projection", 0, keys, w.key_value);
  reader.Linear(name + "value_projection", keys, values, w.key_value);
  w.out = reader.Linear(name + "out_projection", config.d_model, values, dtype,
                        memory);
  return w;
}

// The tensors that one mixer reads from the file, under its layer's prefix.
class LayerTensors final : public MixerTensors {
 public:
  LayerTensors(Reader& reader, std::string prefix, DType dtype,
               std::shared_ptr<WeightMemory> memory)
      : reader_(reader),
        prefix_(std::move(prefix)),
        dtype_(dtype),
        memory_(std::move(memory)) {}

  std::vector<float> Vector(const std::string& name) override {
    return reader_.Vector(prefix_ + name);
  }
  PackedMatrix Stack(const std::vector<std::string>& names,
                     const std::vector<int64_t>& rows, int64_t inputs,
                     bool biases) override {
    PackedMatrix matrix(std::accumulate(rows.begin(), rows.end(), int64_t{0}),
                        inputs, dtype_, memory_);
    int64_t first = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      reader_.Linear(prefix_ + names[i], first, rows[i], matrix, biases);
      first += rows[i];
    }
    return matrix;
  }

 private:
  Reader& reader_;
  const std::string prefix_;
  const DType dtype_;
  const std::shared_ptr<WeightMemory> memory_;
};

LayerWeights PackLayer(Reader& reader, const ModelConfig& config,
                       const StackNames& names, int64_t i, bool cross,
                       DType dtype,
                       const std::shared_ptr<WeightMemory>& memory) {
  const std::string layer = StrCat(names.prefix, "layers.", i, ".");
  const ModelConfig view = LayerView(config, i);
  LayerWeights w;
  LayerTensors tensors(reader, layer + names.attention, dtype, memory);
  // CheckSupported has found the row.
  w.mixer = FindRuntimeMixer(Name(view.attention))->make(view, tensors);
  if (cross) {
    w.cross =
        PackCross(reader, config, layer + "cross_attention.", dtype, memory);
    w.norm3 = reader.Norm(layer + "norm3");
  }
  const bool biases = config.feed_forward == FeedForwardKind::kMlp;
  if (config.feed_forward == FeedForwardKind::kChannelMix) {
    w.token_shift = reader.Vector(layer + "token_shift");
  }
  w.linear1 = reader.Linear(layer + "linear1", config.d_ff, config.d_model,
                            dtype, memory, biases);
  if (config.feed_forward == FeedForwardKind::kSwiglu) {
    w.linear3 = reader.Linear(layer + "linear3", config.d_ff, config.d_model,
                              dtype, memory, false);
  }
  w.linear2 = reader.Linear(layer + "linear2", config.d_model, config.d_ff,
                            dtype, memory, biases);
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

int64_t HeldBytes(const StackWeights& stack) {
  int64_t bytes = stack.embedding.bytes() + VectorBytes(stack.positions) +
                  NormBytes(stack.norm);
  for (const LayerWeights& layer : stack.layers) {
    bytes += layer.mixer->bytes() + layer.linear1.bytes() +
             layer.linear2.bytes() + layer.linear3.bytes() +
             VectorBytes(layer.token_shift) + NormBytes(layer.norm1) +
             NormBytes(layer.norm2) + layer.cross.query.bytes() +
             layer.cross.key_value.bytes() + layer.cross.out.bytes() +
             NormBytes(layer.norm3);
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

// Bytes that hold the matrices a pass through a stack reads, without the
// head's; some to spare where a mixer packs several of its own as one.
int64_t PassBytes(const ModelConfig& config, int64_t layers, bool cross,
                  DType dtype) {
  const auto bytes = [dtype](int64_t outputs, int64_t inputs) {
    return PackedMatrix::WeightBytes(outputs, inputs, dtype);
  };
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  const int64_t factors =
      config.feed_forward == FeedForwardKind::kSwiglu ? 2 : 1;
  int64_t total = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    for (const auto& [name, shape] : Spec(view.attention).weights(view)) {
      if (shape.size() == 2) total += bytes(shape[0], shape[1]);
    }
    total += factors * bytes(config.d_ff, config.d_model) +
             bytes(config.d_model, config.d_ff);
    if (cross) {
      total += bytes(keys, config.d_model) + bytes(config.d_model, values);
    }
  }
  return total;
}

uint64_t DataBytes(const SafetensorsFile& file) {
  uint64_t end = 0;
  for (const TensorEntry& entry : file.tensors())
    end = std::max(end, entry.end);
  return end;
}

// tied: the embedding is the head's matrix too, and holds its bias.
StackWeights PackStack(Reader& reader, const ModelConfig& config, bool decoder,
                       bool tied, DType dtype,
                       const std::shared_ptr<WeightMemory>& memory) {
  const StackNames names = NamesOf(config, decoder);
  StackWeights w;
  w.embedding = PackedMatrix(config.vocab_size, config.EmbeddingWidth(), dtype);
  {
    const std::vector<float> table = reader.Vector(names.embedding);
    std::vector<float> bias;
    if (tied) bias = reader.Vector("predictor.bias");
    w.embedding.SetRows(0, config.vocab_size, table.data(),
                        tied ? bias.data() : nullptr);
  }
  if (config.positions == Positions::kLearned) {
    w.positions = reader.Vector(names.positions);
  }
  const int64_t layers = decoder ? DecoderLayers(config) : config.n_layers;
  const bool cross = decoder && config.arch == Arch::kSeq2seq;
  for (int64_t i = 0; i < layers; ++i) {
    w.layers.push_back(
        PackLayer(reader, config, names, i, cross, dtype, memory));
  }
  if (config.final_norm) w.norm = reader.Norm(names.prefix + "norm");
  return w;
}

}  // namespace

std::optional<Error> CheckWeights(const std::string& path,
                                  const SafetensorsFile& file,
                                  const ModelConfig& config) {
  const int64_t found = static_cast<int64_t>(file.tensors().size());
  // With more than twice too many layers, a list of names does not help.
  const auto too_many = [found](int64_t layers) {
    return layers > 64 + 2 * found / kTensorsPerLayer;
  };
  if (too_many(config.n_layers) || too_many(DecoderLayers(config))) {
    const bool first = too_many(config.n_layers);
    return FormatError(
        path + ": tensors",
        StrCat("those of ", first ? "n_layers" : "n_decoder_layers", " = ",
               first ? config.n_layers : DecoderLayers(config),
               " in config.json"),
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
  // A factor of 2 for 16-bit files, 2 for padding of 33 outputs and more, and 2
  // to spare; small models are not limited.
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
  const bool decoder = config.arch != Arch::kEncoder;
  const bool cross = config.arch == Arch::kSeq2seq;
  const int64_t outputs = config.Outputs();
  // A step's matrices lie together, the encoder's apart from them.
  if (cross) {
    w.encoder = PackStack(reader, config, false, false, dtype,
                          std::make_shared<WeightMemory>(PassBytes(
                              config, config.n_layers, false, dtype)));
  }
  const int64_t layers = decoder ? DecoderLayers(config) : config.n_layers;
  const int64_t head_bytes =
      config.tied_head
          ? 0
          : PackedMatrix::WeightBytes(outputs, config.d_model, dtype);
  const auto memory = std::make_shared<WeightMemory>(
      PassBytes(config, layers, cross, dtype) + head_bytes);
  (decoder ? w.decoder : w.encoder) =
      PackStack(reader, config, decoder, config.tied_head, dtype, memory);
  if (!config.tied_head) {
    w.head = reader.Linear("predictor", outputs, config.d_model, dtype, memory);
  }
  w.parameters = reader.parameters();
  w.bytes = HeldBytes(w.decoder) + HeldBytes(w.encoder) + w.head.bytes();
  return w;
}

}  // namespace tarn
