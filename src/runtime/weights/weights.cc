#include "runtime/weights/weights.h"

#include <algorithm>
#include <map>

#include "config/layer_counts.h"
#include "runtime/weights/matrix_list.h"
#include "runtime/weights/mtp_weights.h"
#include "runtime/weights/packer.h"

namespace tarn {
namespace {

constexpr int64_t kMostListed = 8;
// Lower bound of the tensors in one layer; a configuration that claims millions
// of layers is refused before their names are listed.
constexpr int64_t kTensorsPerLayer = 8;
// Memory that a model may take regardless of the size of its file.
constexpr double kFreeBytes = 64 << 20;

PartNorms MakeNorms(ModelTensors& tensors, const std::string& name,
                    const ModelConfig& config) {
  switch (config.norm) {
    case tarn::Norm::kPost:
      return {{}, {}, MakeNorm(tensors, name, config)};
    case tarn::Norm::kPre:
      return {MakeNorm(tensors, name, config), {}, {}};
    case tarn::Norm::kAfter:
      return {{}, MakeNorm(tensors, name, config), {}};
    case tarn::Norm::kBoth: {
      NormWeights before = MakeNorm(tensors, name, config);
      return {
          std::move(before), MakeNorm(tensors, name + "_after", config), {}};
    }
    case tarn::Norm::kNone:
      break;
  }
  return {};
}

// name.weight and name.bias.
NamedRows Linear(const std::string& name, int64_t rows, bool bias = true) {
  return {name + ".weight", bias ? name + ".bias" : "", rows};
}

// The names of a stack's tensors in the file.
struct StackNames {
  std::string embedding, positions;  // with ".weight"
  std::string input_norm;
  std::string prefix;     // of layers and norm
  std::string attention;  // of a layer: "attention."
};

StackNames NamesOf(const ModelConfig& config, bool decoder) {
  if (config.arch != Arch::kSeq2seq) {
    return {"value_embedding.weight", "pos_embedding.weight", "input_norm", "",
            "attention."};
  }
  if (!decoder) {
    return {"value_embedding.weight", "pos_embedding.weight", "input_norm",
            "encoder.", "attention."};
  }
  return {"target_embedding.weight", "target_pos_embedding.weight",
          "target_input_norm", "decoder.", "self_attention."};
}

CrossWeights MakeCross(ModelTensors& tensors, const ModelConfig& config,
                       const std::string& name) {
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  CrossWeights w;
  w.query =
      tensors.Matrix({Linear(name + "query_projection", keys)}, config.d_model);
  w.key_value = tensors.Matrix({Linear(name + "key_projection", keys),
                                Linear(name + "value_projection", values)},
                               config.d_model);
  w.out =
      tensors.Matrix({Linear(name + "out_projection", config.d_model)}, values);
  return w;
}

// The tensors that one mixer or feed-forward part reads, under a prefix.
class LayerTensors final : public MixerTensors {
 public:
  LayerTensors(ModelTensors& tensors, std::string prefix, int64_t layer,
               PassedVectors& passed)
      : tensors_(tensors),
        prefix_(std::move(prefix)),
        layer_(layer),
        passed_(passed) {}

  std::vector<float> Vector(const std::string& name) override {
    return tensors_.Vector(prefix_ + name);
  }
  WeightMatrix Stack(const std::vector<std::string>& names,
                     const std::vector<int64_t>& rows, int64_t inputs,
                     bool biases) override {
    std::vector<NamedRows> parts;
    for (size_t i = 0; i < names.size(); ++i) {
      parts.push_back(Linear(prefix_ + names[i], rows[i], biases));
    }
    return tensors_.Matrix(parts, inputs);
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override {
    return tensors_.Matrices(prefix_ + name, count, outputs, inputs);
  }
  int64_t layer() const override { return layer_; }
  PassedVectors& passed() override { return passed_; }

 private:
  ModelTensors& tensors_;
  const std::string prefix_;
  const int64_t layer_;
  PassedVectors& passed_;
};

LayerWeights MakeLayer(ModelTensors& all, const ModelConfig& config,
                       const StackNames& names, int64_t i, bool cross,
                       PassedVectors& passed) {
  const std::string layer = StrCat(names.prefix, "layers.", i, ".");
  const ModelConfig view = LayerView(config, i);
  LayerWeights w;
  LayerTensors tensors(all, layer + names.attention, i, passed);
  // CheckSupported has found the rows.
  w.mixer = MakeRuntimeMixer(view, tensors);
  if (cross) {
    w.cross = MakeCross(all, config, layer + "cross_attention.");
    w.cross_norms = MakeNorms(all, layer + "norm2", view);
  }
  LayerTensors part(all, layer, i, passed);
  w.feed_forward =
      FindRuntimeFeedForward(Name(view.feed_forward))->make(view, part);
  if (config.parallel_residual && w.feed_forward != nullptr &&
      w.feed_forward->in_width() > 0) {
    throw ArgumentError(
        "parallel_residual",
        StrCat("false with feed_forward '", Name(view.feed_forward),
               "', which uses the rows of the mixer"),
        "true");
  }
  w.mixer_norms = MakeNorms(all, layer + "norm1", view);
  if (w.feed_forward != nullptr) {
    w.feed_forward_norms =
        MakeNorms(all, layer + (cross ? "norm3" : "norm2"), view);
  }
  return w;
}

// All but the layers. tied: the embedding is the head's matrix too, and holds
// its bias.
StackWeights MakeEnds(ModelTensors& tensors, const ModelConfig& config,
                      const StackNames& names, bool tied) {
  StackWeights w;
  w.embedding = tensors.Matrix(
      {{names.embedding, tied && config.head_bias ? "predictor.bias" : "",
        config.vocab_size}},
      config.EmbeddingWidth());
  if (config.positions == Positions::kLearned) {
    w.positions = tensors.Vector(names.positions);
  }
  if (config.input_norm) {
    w.input_norm = MakeNorm(tensors, names.input_norm, config);
  }
  if (config.final_norm) {
    w.norm = MakeNorm(tensors, names.prefix + "norm", config);
  }
  return w;
}

StackWeights MakeStack(ModelTensors& tensors, const ModelConfig& config,
                       bool decoder, bool tied) {
  const StackNames names = NamesOf(config, decoder);
  StackWeights w = MakeEnds(tensors, config, names, tied);
  const int64_t layers = decoder ? DecoderLayers(config) : config.n_layers;
  const bool cross = decoder && config.arch == Arch::kSeq2seq;
  PassedVectors passed;
  for (int64_t i = 0; i < layers; ++i) {
    w.layers.push_back(MakeLayer(tensors, config, names, i, cross, passed));
  }
  return w;
}

Weights MakeWeights(ModelTensors& tensors, const ModelConfig& config) {
  Weights w;
  const bool decoder = config.arch != Arch::kEncoder;
  // In the order in which they are read: an encoder before the decoder, whose
  // layers and head a step reads one after the other.
  if (config.arch != Arch::kDecoder) {
    w.encoder = MakeStack(tensors, config, false, !decoder && config.tied_head);
  }
  if (decoder) w.decoder = MakeStack(tensors, config, true, config.tied_head);
  if (!config.tied_head) {
    w.head = tensors.Matrix(
        {Linear("predictor", config.Outputs(), config.head_bias)},
        config.d_model);
  }
  return w;
}

// Makes no matrix, and vectors of zeros; notes what matrices are made of.
class MatrixNotes final : public ModelTensors {
 public:
  explicit MatrixNotes(const WeightSource& source) : source_(source) {}

  bool Has(const std::string& name) const override {
    return source_.Find(name) != nullptr;
  }
  std::vector<float> Vector(const std::string& name) override {
    const WeightTensor* tensor = source_.Find(name);
    if (tensor == nullptr) {
      throw FormatError(source_.path(), name, "no such tensor");
    }
    return std::vector<float>(static_cast<size_t>(tensor->elements()));
  }
  WeightMatrix Matrix(const std::vector<NamedRows>& parts,
                      int64_t inputs) override {
    ListedMatrix listed = {{}, inputs};
    for (const NamedRows& part : parts) listed.tensors.push_back(part.weight);
    list_.push_back(std::move(listed));
    return {};
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t, int64_t inputs) override {
    list_.push_back({{name}, inputs});
    return std::vector<WeightMatrix>(static_cast<size_t>(count));
  }
  std::vector<ListedMatrix> Take() { return std::move(list_); }

 private:
  const WeightSource& source_;
  std::vector<ListedMatrix> list_;
};

std::string MissingText(const std::vector<std::string>& missing,
                        size_t wanted) {
  std::string text =
      StrCat("a file without ", missing.size(), " of ", wanted, ": ");
  for (size_t i = 0; i < missing.size() && i < kMostListed; ++i) {
    text += (i == 0 ? "" : ", ") + missing[i];
  }
  return missing.size() > kMostListed ? text + ", ..." : text;
}

// What PackWeights takes at most for tensors of these shapes.
double MostBytes(const std::vector<NamedShape>& shapes) {
  double bytes = 0;
  for (const auto& [name, shape] : shapes) {
    if (shape.size() == 2 && shape[0] > 0 && shape[1] > 0) {
      bytes += static_cast<double>(
          WeightMatrix::Bytes(shape[0], shape[1], kF32Weights));
    } else {
      double numbers = sizeof(float);
      for (const int64_t size : shape) numbers *= static_cast<double>(size);
      bytes += numbers;
    }
  }
  return bytes;
}

// Bytes of the tensors as stored, or with 16 bits a number if that is more.
double StoredBytes(const WeightSource& source) {
  double bytes = 0;
  for (const WeightTensor& tensor : source.tensors()) {
    bytes +=
        static_cast<double>(std::max(tensor.bytes(), 2 * tensor.elements()));
  }
  return bytes;
}

}  // namespace

std::vector<NamedShape> TensorShapes(const WeightSource& source,
                                     const ModelConfig& config) {
  std::vector<NamedShape> shapes = WeightShapes(config);
  if (HasMtp(source)) {
    for (NamedShape& shape : MtpShapes(config)) {
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

double MostWeightBytes(const ModelConfig& config) {
  return MostBytes(WeightShapes(config));
}

std::optional<Error> CheckWeights(const WeightSource& source,
                                  const ModelConfig& config) {
  const std::string tensors = source.path() + ": tensors";
  const int64_t found = static_cast<int64_t>(source.tensors().size());
  // With more than twice too many layers, a list of names does not help.
  const auto too_many = [found](int64_t layers) {
    return layers > 64 + 2 * found / kTensorsPerLayer;
  };
  if (too_many(config.n_layers) || too_many(DecoderLayers(config))) {
    const bool first = too_many(config.n_layers);
    return FormatError(
        tensors,
        StrCat("those of ", first ? "n_layers" : "n_decoder_layers", " = ",
               first ? config.n_layers : DecoderLayers(config),
               " in config.json"),
        StrCat("a file of ", found, " tensors"));
  }
  const auto shapes = TensorShapes(source, config);
  std::vector<std::string> missing;
  std::map<std::string, const std::vector<int64_t>*> wanted;
  for (const auto& [name, shape] : shapes) {
    wanted[name] = &shape;
    if (source.Find(name) == nullptr) missing.push_back(name);
  }
  if (!missing.empty()) {
    return FormatError(tensors, "all that config.json asks for",
                       MissingText(missing, shapes.size()));
  }
  for (const WeightTensor& tensor : source.tensors()) {
    const auto shape = wanted.find(tensor.name);
    if (shape == wanted.end()) {
      return FormatError(source.Where(tensor),
                         "a name that config.json asks for",
                         "a tensor that belongs to no part of the model");
    }
    if (*shape->second != tensor.shape) {
      return FormatError(source.Where(tensor),
                         "shape " + ShapeText(*shape->second),
                         ShapeText(tensor.shape));
    }
  }
  // A factor of 2 for 16-bit files, 2 for padding of 33 outputs and more, and 2
  // to spare; small models are not limited.
  const double limit = 8 * StoredBytes(source) + kFreeBytes;
  if (MostBytes(shapes) > limit) {
    return FormatError(tensors, "matrices that grow at most 8-fold when packed",
                       "some with so few outputs that they would grow more");
  }
  return std::nullopt;
}

Weights PackWeights(const WeightSource& source, const ModelConfig& config,
                    const WeightPlan& plan, Executor& executor) {
  Packer packer(source, plan, executor);
  Weights w = MakeWeights(packer, config);
  w.parameters = packer.parameters();
  w.bytes = packer.bytes();
  w.held = packer.Held();
  double numbers = 0, bytes = 0;
  for (const HeldTensor& tensor : w.held) {
    // Of an embedding that is no head a step reads one row.
    if (!config.tied_head && tensor.name == NamesOf(config, true).embedding) {
      continue;
    }
    numbers += static_cast<double>(tensor.numbers);
    bytes +=
        BytesPerWeight(*tensor.format) * static_cast<double>(tensor.numbers);
  }
  w.bytes_per_weight = numbers > 0 ? bytes / numbers : 0;
  return w;
}

const WeightFormat& EmbeddingFormat(const WeightSource& source,
                                    const ModelConfig& config,
                                    const WeightPlan& plan) {
  const StackNames names = NamesOf(config, config.arch != Arch::kEncoder);
  const WeightTensor* table = source.Find(names.embedding);
  if (table == nullptr) return plan.base();
  return EquivalentFormat(*table, plan.FormatOf(*table));
}

StackWeights MakeDecoderEnds(ModelTensors& tensors, const ModelConfig& config) {
  return MakeEnds(tensors, config, NamesOf(config, true), config.tied_head);
}

NormWeights MakeNorm(ModelTensors& tensors, const std::string& name,
                     const ModelConfig& config) {
  NormWeights norm;
  norm.weight = tensors.Vector(name + ".weight");
  const float offset = static_cast<float>(config.norm_offset);
  for (float& weight : norm.weight) weight += offset;
  if (tensors.Has(name + ".bias")) norm.bias = tensors.Vector(name + ".bias");
  return norm;
}

LayerWeights MakeDecoderLayer(ModelTensors& tensors, const ModelConfig& config,
                              int64_t layer, PassedVectors& passed) {
  return MakeLayer(tensors, config, NamesOf(config, true), layer,
                   /*cross=*/false, passed);
}

std::vector<ListedMatrix> ListMatrices(const WeightSource& source,
                                       const ModelConfig& config) {
  MatrixNotes notes(source);
  MakeWeights(notes, config);
  if (HasMtp(source)) MakeMtpWeights(notes, config);
  return notes.Take();
}

}  // namespace tarn
