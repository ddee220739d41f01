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

// Packs the parts of WeightShapes() that PackWeights names; CheckWeights, which
// runs first, makes sure that they exist. Numbers pass through a block of a
// panel's rows, one for each worker: no tensor is in memory twice.
class Packer {
 public:
  Packer(const WeightSource& source, const WeightFormat& format,
         Executor& executor)
      : source_(source),
        format_(format),
        executor_(executor),
        blocks_(static_cast<size_t>(executor.width())) {}

  // A tensor that the model keeps as float32.
  std::vector<float> Vector(const std::string& name) {
    std::vector<float> values = Read(name);
    vector_bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
    return values;
  }

  NormWeights Norm(const std::string& name, const ModelConfig& config) {
    NormWeights norm;
    norm.weight = Vector(name + ".weight");
    const float offset = static_cast<float>(config.norm_offset);
    for (float& weight : norm.weight) weight += offset;
    if (source_.Find(name + ".bias") != nullptr) {
      norm.bias = Vector(name + ".bias");
    }
    return norm;
  }

  PartNorms Norms(const std::string& name, const ModelConfig& config) {
    switch (config.norm) {
      case tarn::Norm::kPost:
        return {{}, {}, Norm(name, config)};
      case tarn::Norm::kPre:
        return {Norm(name, config), {}, {}};
      case tarn::Norm::kAfter:
        return {{}, Norm(name, config), {}};
      case tarn::Norm::kBoth: {
        NormWeights before = Norm(name, config);
        return {std::move(before), Norm(name + "_after", config), {}};
      }
      case tarn::Norm::kNone:
        break;
    }
    return {};
  }

  WeightMatrix Matrix(int64_t outputs, int64_t inputs) {
    return WeightMatrix(outputs, inputs, format_, arena_);
  }

  // Rows [first, first + rows) of `matrix` from the tensor `weight` and, where
  // the name is not empty, `bias`.
  void SetRows(const std::string& weight, const std::string& bias,
               int64_t first, int64_t rows, WeightMatrix& matrix) {
    const WeightTensor& tensor = Find(weight);
    const int64_t end = first + rows;
    const int64_t panel = rows == 0 ? 0 : matrix.PanelOf(first);
    const int64_t panels = rows == 0 ? 0 : matrix.PanelOf(end - 1) + 1 - panel;
    executor_.ParallelFor(panels, [&](int64_t task, int worker) {
      const int64_t p = panel + task, output = matrix.FirstOutput(p);
      const int64_t begin = std::max(output, first);
      const int64_t count = std::min(output + matrix.Outputs(p), end) - begin;
      float* block = BlockOf(worker, count * matrix.inputs());
      const int64_t from = begin - first;
      source_.ReadRows(tensor, {from, from + count}, block);
      matrix.SetRows(begin, count, block, nullptr);
    });
    source_.Release(tensor);
    parameters_ += tensor.elements();
    if (!bias.empty()) matrix.SetBias(first, rows, Read(bias).data());
  }

  // The matrices of a tensor [count, outputs, inputs] or [count * outputs,
  // inputs], one at a time for each worker.
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) {
    const WeightTensor& tensor = Find(name);
    const int64_t rows = tensor.shape.size() == 2 ? outputs : 1;
    std::vector<WeightMatrix> matrices;
    for (int64_t i = 0; i < count; ++i) {
      matrices.push_back(Matrix(outputs, inputs));
    }
    executor_.ParallelFor(count, [&](int64_t i, int worker) {
      float* block = BlockOf(worker, outputs * inputs);
      source_.ReadRows(tensor, {i * rows, (i + 1) * rows}, block);
      matrices[static_cast<size_t>(i)].SetRows(0, outputs, block, nullptr);
    });
    source_.Release(tensor);
    parameters_ += tensor.elements();
    return matrices;
  }

  // name.weight and, where there is one, name.bias as a matrix.
  WeightMatrix Linear(const std::string& name, int64_t outputs, int64_t inputs,
                      bool bias = true) {
    WeightMatrix matrix = Matrix(outputs, inputs);
    SetRows(name + ".weight", bias ? name + ".bias" : "", 0, outputs, matrix);
    return matrix;
  }

  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return arena_->bytes() + vector_bytes_; }

 private:
  // Room for `floats` numbers, of one worker.
  float* BlockOf(int worker, int64_t floats) {
    std::vector<float>& block = blocks_[static_cast<size_t>(worker)];
    if (block.size() < static_cast<size_t>(floats)) {
      block.resize(static_cast<size_t>(floats));
    }
    return block.data();
  }

  const WeightTensor& Find(const std::string& name) const {
    const WeightTensor* tensor = source_.Find(name);
    if (tensor == nullptr) {  // CheckWeights was not called
      throw FormatError(source_.path(), name, "no such tensor");
    }
    return *tensor;
  }

  std::vector<float> Read(const std::string& name) {
    const WeightTensor& tensor = Find(name);
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    source_.ReadRows(tensor, {0, tensor.rows()}, values.data());
    parameters_ += tensor.elements();
    return values;
  }

  const WeightSource& source_;
  const WeightFormat& format_;
  const std::shared_ptr<WeightArena> arena_ = std::make_shared<WeightArena>();
  Executor& executor_;
  std::vector<std::vector<float>> blocks_;  // of each worker [kPanel, inputs]
  int64_t parameters_ = 0, vector_bytes_ = 0;
};

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

CrossWeights PackCross(Packer& packer, const ModelConfig& config,
                       const std::string& name) {
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  CrossWeights w;
  w.query = packer.Linear(name + "query_projection", keys, config.d_model);
  w.key_value = packer.Matrix(keys + values, config.d_model);
  packer.SetRows(name + "key_projection.weight", name + "key_projection.bias",
                 0, keys, w.key_value);
  packer.SetRows(name + "value_projection.weight",
                 name + "value_projection.bias", keys, values, w.key_value);
  w.out = packer.Linear(name + "out_projection", config.d_model, values);
  return w;
}

using PassedVectors = std::map<std::string, std::vector<float>>;

// The tensors that one mixer or feed-forward part reads, under a prefix.
class LayerTensors final : public MixerTensors {
 public:
  LayerTensors(Packer& packer, std::string prefix, int64_t layer,
               PassedVectors& passed)
      : packer_(packer),
        prefix_(std::move(prefix)),
        layer_(layer),
        passed_(passed) {}

  std::vector<float> Vector(const std::string& name) override {
    return packer_.Vector(prefix_ + name);
  }
  WeightMatrix Stack(const std::vector<std::string>& names,
                     const std::vector<int64_t>& rows, int64_t inputs,
                     bool biases) override {
    WeightMatrix matrix = packer_.Matrix(
        std::accumulate(rows.begin(), rows.end(), int64_t{0}), inputs);
    int64_t first = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name = prefix_ + names[i];
      packer_.SetRows(name + ".weight", biases ? name + ".bias" : "", first,
                      rows[i], matrix);
      first += rows[i];
    }
    return matrix;
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override {
    return packer_.Matrices(prefix_ + name, count, outputs, inputs);
  }
  int64_t layer() const override { return layer_; }
  PassedVectors& passed() override { return passed_; }

 private:
  Packer& packer_;
  const std::string prefix_;
  const int64_t layer_;
  PassedVectors& passed_;
};

LayerWeights PackLayer(Packer& packer, const ModelConfig& config,
                       const StackNames& names, int64_t i, bool cross,
                       PassedVectors& passed) {
  const std::string layer = StrCat(names.prefix, "layers.", i, ".");
  const ModelConfig view = LayerView(config, i);
  LayerWeights w;
  LayerTensors tensors(packer, layer + names.attention, i, passed);
  // CheckSupported has found the rows.
  w.mixer = MakeRuntimeMixer(view, tensors);
  if (cross) {
    w.cross = PackCross(packer, config, layer + "cross_attention.");
    w.cross_norms = packer.Norms(layer + "norm2", view);
  }
  LayerTensors part(packer, layer, i, passed);
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
  w.mixer_norms = packer.Norms(layer + "norm1", view);
  if (w.feed_forward != nullptr) {
    w.feed_forward_norms =
        packer.Norms(layer + (cross ? "norm3" : "norm2"), view);
  }
  return w;
}

// tied: the embedding is the head's matrix too, and holds its bias.
StackWeights PackStack(Packer& packer, const ModelConfig& config, bool decoder,
                       bool tied) {
  const StackNames names = NamesOf(config, decoder);
  StackWeights w;
  w.embedding = packer.Matrix(config.vocab_size, config.EmbeddingWidth());
  packer.SetRows(names.embedding,
                 tied && config.head_bias ? "predictor.bias" : "", 0,
                 config.vocab_size, w.embedding);
  if (config.positions == Positions::kLearned) {
    w.positions = packer.Vector(names.positions);
  }
  const int64_t layers = decoder ? DecoderLayers(config) : config.n_layers;
  const bool cross = decoder && config.arch == Arch::kSeq2seq;
  PassedVectors passed;
  for (int64_t i = 0; i < layers; ++i) {
    w.layers.push_back(PackLayer(packer, config, names, i, cross, passed));
  }
  if (config.input_norm) w.input_norm = packer.Norm(names.input_norm, config);
  if (config.final_norm) w.norm = packer.Norm(names.prefix + "norm", config);
  return w;
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

int64_t StoredBytes(const WeightSource& source) {
  int64_t bytes = 0;
  for (const WeightTensor& tensor : source.tensors()) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

double MostWeightBytes(const ModelConfig& config) {
  double bytes = 0;
  for (const auto& [name, shape] : WeightShapes(config)) {
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
  const auto shapes = WeightShapes(config);
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
  const double limit =
      8 * static_cast<double>(StoredBytes(source)) + kFreeBytes;
  if (MostWeightBytes(config) > limit) {
    return FormatError(tensors, "matrices that grow at most 8-fold when packed",
                       "some with so few outputs that they would grow more");
  }
  return std::nullopt;
}

Weights PackWeights(const WeightSource& source, const ModelConfig& config,
                    const WeightFormat& format, Executor& executor) {
  Packer packer(source, format, executor);
  Weights w;
  const bool decoder = config.arch != Arch::kEncoder;
  // In the order in which they are read: an encoder before the decoder, whose
  // layers and head a step reads one after the other.
  if (config.arch != Arch::kDecoder) {
    w.encoder = PackStack(packer, config, false, !decoder && config.tied_head);
  }
  if (decoder) w.decoder = PackStack(packer, config, true, config.tied_head);
  if (!config.tied_head) {
    w.head = packer.Linear("predictor", config.Outputs(), config.d_model,
                           config.head_bias);
  }
  w.parameters = packer.parameters();
  w.bytes = packer.bytes();
  return w;
}

}  // namespace tarn
