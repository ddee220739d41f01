// Names, shapes and counts of a model's tensors, by architecture.
#include <algorithm>
#include <string_view>

#include "config/feed_forward_form.h"
#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

// 2^40 parameters are 4 TiB, 2^30 values of recurrent state 4 GiB: beyond what
// any machine here can hold, and small enough that byte counts cannot overflow.
constexpr int64_t kMaxParameters = int64_t{1} << 40;
constexpr int64_t kMaxStateValues = int64_t{1} << 30;
// Tensors that are drawn or fixed, not trained.
constexpr std::string_view kBuffers[] = {".omega", ".log_decay", ".lower_bound",
                                         ".router_bias"};

using Shapes = std::vector<NamedShape>;

// Shapes of parts that come often, under a prefix.
class ShapeList {
 public:
  explicit ShapeList(const ModelConfig& config) : config_(config) {}

  void Add(const std::string& name, std::vector<int64_t> shape) {
    shapes_.push_back({name, std::move(shape)});
  }
  void Affine(const std::string& name, int64_t out, int64_t in) {
    Add(name + ".weight", {out, in});
    Add(name + ".bias", {out});
  }
  void Norm(const std::string& name) {
    Add(name + ".weight", {config_.d_model});
    if (config_.norm_kind == NormKind::kLayer) {
      Add(name + ".bias", {config_.d_model});
    }
  }
  // Those of a layer's parts.
  void PartNorms(const ModelConfig& view, int count) {
    if (view.norm == tarn::Norm::kNone) return;
    for (int i = 1; i <= count; ++i) Norm(StrCat("norm", i));
    if (view.norm != tarn::Norm::kBoth) return;
    for (int i = 1; i <= count; ++i) Norm(StrCat("norm", i, "_after"));
  }
  // What the mixer of a layer holds.
  void Mixer(const std::string& name, const ModelConfig& view) {
    for (const NamedShape& shape : Spec(view.attention).weights(view)) {
      Add(name + shape.first, shape.second);
    }
  }
  void FeedForward(const ModelConfig& view) {
    for (NamedShape& shape : FeedForwardShapes(view)) {
      shapes_.push_back(std::move(shape));
    }
  }
  void Predictor() {
    if (!config_.tied_head) {
      Add("predictor.weight", {config_.Outputs(), config_.d_model});
    }
    if (config_.head_bias) Add("predictor.bias", {config_.Outputs()});
  }
  Shapes Take() { return std::move(shapes_); }

 private:
  const ModelConfig& config_;
  Shapes shapes_;
};

// A stack: the shapes of its first layers, the last `period` of which repeat,
// each to be prefixed by "prefix{i}.", and what follows the layers.
struct Stack {
  std::string prefix;
  int64_t layers = 0;
  std::vector<Shapes> pattern;
  Shapes after;
  size_t period = pattern.size();

  const Shapes& Layer(int64_t i) const {
    const size_t index = static_cast<size_t>(i), once = pattern.size() - period;
    return pattern[index < once ? index : once + (index - once) % period];
  }
};

Shapes EncoderLayer(const ModelConfig& config, const ModelConfig& view) {
  ShapeList list(config);
  list.Mixer("attention.", view);
  list.FeedForward(view);
  list.PartNorms(view, HasFeedForward(view) ? 2 : 1);
  return list.Take();
}

Shapes DecoderLayer(const ModelConfig& config, const ModelConfig& view) {
  ShapeList list(config);
  list.Mixer("self_attention.", view);
  list.Mixer("cross_attention.", CrossView(config));
  list.FeedForward(view);
  list.PartNorms(view, 3);
  return list.Take();
}

Shapes ConvolutionLayer(const ModelConfig& config) {
  ShapeList list(config);
  list.Add("conv.weight", {config.d_model, config.d_model, config.kernel_size});
  list.Add("conv.bias", {config.d_model});
  list.Norm("norm");
  return list.Take();
}

// Layers of torch::nn::RNN and LSTM, whose names end in the layer's number: the
// four gates of an LSTM are stacked as rows.
Shapes RecurrentLayers(const ModelConfig& config) {
  const int64_t hidden =
      config.bidirectional ? config.d_model / 2 : config.d_model;
  const int64_t gates = config.arch == Arch::kLstm ? 4 * hidden : hidden;
  ShapeList list(config);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    // The first layer of ctc reads the frames themselves.
    const int64_t inputs =
        i == 0 && config.ReadsFrames() ? config.input_dim : config.d_model;
    for (const char* way : {"", "_reverse"}) {
      if (*way != '\0' && !config.bidirectional) continue;
      const std::string end = StrCat("_l", i, way);
      list.Add("rnn.weight_ih" + end, {gates, inputs});
      list.Add("rnn.weight_hh" + end, {gates, hidden});
      list.Add("rnn.bias_ih" + end, {gates});
      list.Add("rnn.bias_hh" + end, {gates});
    }
  }
  return list.Take();
}

// A stack whose layers have the shapes of each entry of the pattern, twice: in
// its first period a layer may make what the later ones read.
Stack Repeated(const std::string& prefix, int64_t layers,
               const ModelConfig& config,
               Shapes (*layer)(const ModelConfig&, const ModelConfig&),
               Shapes after) {
  Stack stack = {prefix, layers, {}, std::move(after)};
  stack.period = std::max<size_t>(1, config.layers.size());
  for (size_t i = 0; i < 2 * stack.period; ++i) {
    stack.pattern.push_back(
        layer(config, LayerView(config, static_cast<int64_t>(i))));
  }
  return stack;
}

std::vector<Stack> Stacks(const ModelConfig& config) {
  const auto norm = [&](const std::string& name) {
    ShapeList list(config);
    if (config.final_norm) list.Norm(name);
    return list.Take();
  };
  switch (config.arch) {
    case Arch::kSeq2seq:
      return {Repeated("encoder.layers.", config.n_layers, config, EncoderLayer,
                       norm("encoder.norm")),
              Repeated("decoder.layers.", config.n_decoder_layers, config,
                       DecoderLayer, norm("decoder.norm"))};
    case Arch::kCnn:
      return {{"layers.", config.n_layers, {ConvolutionLayer(config)}, {}}};
    case Arch::kRnn:
    case Arch::kLstm:
      return {{"", 0, {}, RecurrentLayers(config)}};
    case Arch::kDecoder:
    case Arch::kEncoder:
      break;
  }
  return {
      Repeated("layers.", config.n_layers, config, EncoderLayer, norm("norm"))};
}

Shapes Embeddings(const ModelConfig& config) {
  ShapeList list(config);
  const bool both = config.arch == Arch::kSeq2seq;
  const bool learned =
      config.HasAttention() && config.positions == Positions::kLearned;
  const int64_t width = config.EmbeddingWidth();
  if (!config.ReadsFrames()) {
    list.Add("value_embedding.weight", {config.vocab_size, width});
  } else if (config.HasAttention()) {
    list.Affine("input_projection", width, config.input_dim);
  }
  if (both) list.Add("target_embedding.weight", {config.vocab_size, width});
  if (learned) {
    const std::vector<int64_t> rows = {config.max_positions, config.d_model};
    list.Add("pos_embedding.weight", rows);
    if (both) list.Add("target_pos_embedding.weight", rows);
  }
  if (config.HasAttention() && config.input_norm) {
    list.Norm("input_norm");
    if (both) list.Norm("target_input_norm");
  }
  return list.Take();
}

Shapes Head(const ModelConfig& config) {
  ShapeList list(config);
  list.Predictor();
  return list.Take();
}

// Needs ranges checked and sizes derived; no product can overflow then.
int64_t CountParameters(const ModelConfig& config) {
  int64_t total =
      TrainedNumbers(Embeddings(config)) + TrainedNumbers(Head(config));
  for (const Stack& stack : Stacks(config)) {
    for (int64_t i = 0; i < stack.layers; ++i)
      total += TrainedNumbers(stack.Layer(i));
    total += TrainedNumbers(stack.after);
  }
  return total;
}

// Values of the states of fixed size that generation holds at once, those of
// cross attention's memory included; for an encoder, one layer's at a time.
// Ranges bound one layer's by 2^61, the number of layers by 2^12.
int64_t StateValues(const ModelConfig& config) {
  if (!config.HasAttention()) return 0;
  const auto values = [](const ModelConfig& view) {
    int64_t total = 0;
    for (const StateTensor& tensor : LayerState(view)) {
      if (!tensor.grows) total += tensor.elements();
      total += tensor.ring() * tensor.elements();
    }
    return total;
  };
  const bool both = config.arch == Arch::kSeq2seq;
  const int64_t layers = both ? config.n_decoder_layers
                         : config.arch == Arch::kDecoder
                             ? config.n_layers
                             : static_cast<int64_t>(config.layers.size());
  int64_t total = 0;
  for (int64_t i = 0; i < std::max<int64_t>(1, layers); ++i) {
    const int64_t layer =
        values(LayerView(config, i)) + (both ? values(CrossView(config)) : 0);
    if (config.arch == Arch::kEncoder) {
      total = std::max(total, layer);
    } else {
      total += layer;
    }
    if (total > kMaxStateValues) break;
  }
  return total;
}

}  // namespace

bool IsBuffer(std::string_view name) {
  return std::any_of(
      std::begin(kBuffers), std::end(kBuffers), [&](std::string_view ending) {
        return name.ends_with(ending) || name == ending.substr(1);
      });
}

int64_t TrainedNumbers(const Shapes& shapes) {
  int64_t total = 0;
  for (const NamedShape& shape : shapes) {
    if (IsBuffer(shape.first)) continue;
    int64_t elements = 1;
    for (const int64_t size : shape.second) elements *= size;
    total += elements;
  }
  return total;
}

int64_t ModelConfig::EmbeddingWidth() const {
  const bool concat =
      position_combine == PositionCombine::kConcat && HasAttention();
  return concat ? d_model / 2 : d_model;
}

void CheckTotals(const ModelConfig& config) {
  const int64_t parameters = CountParameters(config);
  if (parameters > kMaxParameters) {
    RefuseKey("config", StrCat("at most ", kMaxParameters, " parameters"),
              StrCat(parameters));
  }
  const int64_t state_values = StateValues(config);
  if (state_values > kMaxStateValues) {
    RefuseKey("d_key",
              StrCat("at most ", kMaxStateValues,
                     " values in the recurrent states of all layers"),
              StrCat(state_values, " or more"));
  }
}

std::vector<NamedShape> WeightShapes(const ModelConfig& config) {
  ModelConfig finished = config;
  FinishConfig(finished);
  Shapes shapes = Embeddings(finished);
  for (const Stack& stack : Stacks(finished)) {
    for (int64_t i = 0; i < stack.layers; ++i) {
      for (const auto& [name, shape] : stack.Layer(i)) {
        shapes.push_back({StrCat(stack.prefix, i, ".", name), shape});
      }
    }
    shapes.insert(shapes.end(), stack.after.begin(), stack.after.end());
  }
  const Shapes head = Head(finished);
  shapes.insert(shapes.end(), head.begin(), head.end());
  return shapes;
}

std::optional<ModelConfig> MtpConfig(const ModelConfig& finished) {
  const bool may = finished.arch == Arch::kDecoder &&
                   finished.task == Task::kLm && finished.final_norm &&
                   (finished.positions == Positions::kRotary ||
                    finished.positions == Positions::kNone);
  if (!may) return std::nullopt;
  // The layers repeat with the pattern.
  const int64_t entries =
      std::max<int64_t>(1, static_cast<int64_t>(finished.layers.size()));
  const int64_t first = std::max<int64_t>(0, finished.n_layers - entries);
  for (int64_t i = finished.n_layers - 1; i >= first; --i) {
    ModelConfig layer = LayerView(finished, i);
    const StateSpec state = LayerState(layer);
    const bool keeps =
        !state.empty() &&
        std::all_of(state.begin(), state.end(), [](const StateTensor& tensor) {
          return tensor.grows && tensor.kept == 0;
        });
    if (!keeps || !layer.branches.empty() || layer.reads_passed) continue;
    layer.n_layers = 1;
    if (!Rotates(layer)) layer.positions = Positions::kNone;
    FinishConfig(layer);
    return layer;
  }
  return std::nullopt;
}

std::vector<NamedShape> MtpShapes(const ModelConfig& config) {
  const std::optional<ModelConfig> head = MtpConfig(Finished(config));
  Shapes shapes;
  if (!head) return shapes;
  const std::string prefix(kMtpPrefix);
  for (const auto& [name, shape] : WeightShapes(*head)) {
    if (name.starts_with("norm.")) {
      for (const char* norm : {"embedding_", "hidden_", ""}) {
        shapes.push_back({StrCat(prefix, norm, name), shape});
      }
    } else if (name.starts_with("layers.")) {
      shapes.push_back({prefix + name, shape});
    }
  }
  shapes.push_back(
      {prefix + "projection.weight", {head->d_model, 2 * head->d_model}});
  return shapes;
}

std::map<std::string, Precision> WeightPrecisions(const ModelConfig& config) {
  ModelConfig finished = config;
  FinishConfig(finished);
  std::map<std::string, Precision> all;
  for (const char* table :
       {"value_embedding", "target_embedding", "predictor"}) {
    all[StrCat(table, ".weight")] = Precision::kByte;
  }
  // Which mixers and parts the layers have repeats with the pattern.
  const int64_t period =
      static_cast<int64_t>(std::max<size_t>(1, finished.layers.size()));
  std::vector<ModelConfig> views;
  for (int64_t i = 0; finished.HasAttention() && i < period; ++i) {
    views.push_back(LayerView(finished, i));
  }
  const auto add = [&](const std::string& prefix,
                       const std::vector<NamedPrecision>& precise) {
    for (const auto& [name, precision] : precise)
      all[prefix + name] = precision;
  };
  const auto stack = [&](const std::string& prefix, const char* mixer,
                         int64_t layers) {
    for (int64_t i = 0; !views.empty() && i < layers; ++i) {
      const ModelConfig& view = views[static_cast<size_t>(i % period)];
      const std::string layer = StrCat(prefix, "layers.", i, ".");
      add(layer + mixer, Spec(view.attention).precise);
      add(layer, Spec(view.feed_forward).precise);
    }
  };
  if (const std::optional<ModelConfig> head = MtpConfig(finished)) {
    const std::string layer = StrCat(kMtpPrefix, "layers.0.");
    add(layer + "attention.", Spec(head->attention).precise);
    add(layer, Spec(head->feed_forward).precise);
  }
  if (finished.arch == Arch::kSeq2seq) {
    stack("encoder.", "attention.", finished.n_layers);
    stack("decoder.", "self_attention.", finished.n_decoder_layers);
  } else {
    stack("", "attention.", finished.n_layers);
  }
  return all;
}

int64_t ParameterCount(const ModelConfig& config) {
  ModelConfig finished = config;
  FinishConfig(finished);
  return CountParameters(finished);
}

}  // namespace tarn
