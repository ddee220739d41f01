// Names, shapes and counts of a model's tensors, by architecture.
#include <limits>
#include <string_view>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

// 2^40 parameters are 4 TiB, 2^30 values of recurrent state 4 GiB: beyond what
// any machine here can hold, and small enough that byte counts cannot overflow.
constexpr int64_t kMaxParameters = int64_t{1} << 40;
constexpr int64_t kMaxStateValues = int64_t{1} << 30;
constexpr std::string_view kOmega = ".omega";

using NamedShape = std::pair<std::string, std::vector<int64_t>>;
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
    Add(name + ".bias", {config_.d_model});
  }
  // Four projections and what the kind itself holds.
  void Attention(const std::string& name, AttentionKind kind) {
    const int64_t keys = config_.n_heads * config_.d_key;
    const int64_t values = config_.n_heads * config_.d_value;
    Affine(name + "query_projection", keys, config_.d_model);
    Affine(name + "key_projection", keys, config_.d_model);
    Affine(name + "value_projection", values, config_.d_model);
    Affine(name + "out_projection", config_.d_model, values);
    const std::string inner = name + "inner_attention.";
    if (kind == AttentionKind::kLinear) Omega(inner);
    if (kind == AttentionKind::kConditionalFull) {
      Omega(inner + "other_attention.");
    }
    if (kind == AttentionKind::kAftFull) {
      for (const char* table : {"u", "v"}) {
        Add(inner + table,
            {config_.max_sequence_length, config_.aft_parameterization});
      }
    }
  }
  void FeedForward(const std::string& prefix) {
    Affine(prefix + "linear1", config_.d_ff, config_.d_model);
    Affine(prefix + "linear2", config_.d_model, config_.d_ff);
  }
  void Predictor() {
    if (!config_.tied_head) {
      Add("predictor.weight", {config_.Outputs(), config_.d_model});
    }
    Add("predictor.bias", {config_.Outputs()});
  }
  Shapes Take() { return std::move(shapes_); }

 private:
  void Omega(const std::string& inner) {
    const int64_t columns = OmegaColumns(config_.feature_map, config_.n_dims);
    if (columns == 0) return;
    Add(StrCat(inner, "feature_map", kOmega), {config_.d_key, columns});
  }

  const ModelConfig& config_;
  Shapes shapes_;
};

// The two kinds of cross attention among all kinds.
AttentionKind CrossKind(const ModelConfig& config) {
  return config.cross_attention == CrossAttention::kLinear
             ? AttentionKind::kLinear
             : AttentionKind::kFull;
}

// A stack: its layers' shapes once, each to stand behind "prefix{i}.", and
// what follows them.
struct Stack {
  std::string prefix;
  int64_t layers = 0;
  Shapes layer;
  Shapes after;
};

Shapes EncoderLayer(const ModelConfig& config) {
  ShapeList list(config);
  list.Attention("attention.", config.attention);
  list.FeedForward("");
  list.Norm("norm1");
  list.Norm("norm2");
  return list.Take();
}

Shapes DecoderLayer(const ModelConfig& config) {
  ShapeList list(config);
  list.Attention("self_attention.", config.attention);
  list.Attention("cross_attention.", CrossKind(config));
  list.FeedForward("");
  for (const char* norm : {"norm1", "norm2", "norm3"}) list.Norm(norm);
  return list.Take();
}

Shapes ConvolutionLayer(const ModelConfig& config) {
  ShapeList list(config);
  list.Add("conv.weight", {config.d_model, config.d_model, config.kernel_size});
  list.Add("conv.bias", {config.d_model});
  list.Norm("norm");
  return list.Take();
}

// Layers of torch::nn::RNN and LSTM, whose names end in the layer's number:
// the four gates of an LSTM stand below one another.
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

std::vector<Stack> Stacks(const ModelConfig& config) {
  const auto norm = [&](const std::string& name) {
    ShapeList list(config);
    if (config.final_norm) list.Norm(name);
    return list.Take();
  };
  switch (config.arch) {
    case Arch::kSeq2seq:
      return {{"encoder.layers.", config.n_layers, EncoderLayer(config),
               norm("encoder.norm")},
              {"decoder.layers.", config.n_decoder_layers, DecoderLayer(config),
               norm("decoder.norm")}};
    case Arch::kCnn:
      return {{"layers.", config.n_layers, ConvolutionLayer(config), {}}};
    case Arch::kRnn:
    case Arch::kLstm:
      return {{"", 0, {}, RecurrentLayers(config)}};
    case Arch::kDecoder:
    case Arch::kEncoder:
      break;
  }
  return {{"layers.", config.n_layers, EncoderLayer(config), norm("norm")}};
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
  return list.Take();
}

Shapes Head(const ModelConfig& config) {
  ShapeList list(config);
  list.Predictor();
  return list.Take();
}

int64_t Trained(const Shapes& shapes) {
  int64_t total = 0;
  for (const NamedShape& shape : shapes) {
    if (IsBuffer(shape.first)) continue;
    int64_t elements = 1;
    for (const int64_t size : shape.second) elements *= size;
    total += elements;
  }
  return total;
}

// Needs ranges checked and sizes derived; no product can overflow then.
int64_t CountParameters(const ModelConfig& config) {
  int64_t total = Trained(Embeddings(config)) + Trained(Head(config));
  for (const Stack& stack : Stacks(config)) {
    total += stack.layers * Trained(stack.layer) + Trained(stack.after);
  }
  return total;
}

// a * b, or the largest number where that is too large. Both positive.
int64_t Product(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return a > kMost / b ? kMost : a * b;
}

// Sums of outer products over all layers that generation holds at once; of an
// encoder, one layer's at a time.
int64_t StateValues(const ModelConfig& config) {
  if (!config.UsesFeatureMap()) return 0;
  const int64_t layers = config.arch == Arch::kSeq2seq
                             ? 2 * config.n_decoder_layers
                         : config.arch == Arch::kDecoder ? config.n_layers
                                                         : 1;
  return Product(Product(layers * config.n_heads, config.d_value),
                 FeatureWidth(config.feature_map, config.d_key, config.n_dims));
}

}  // namespace

bool IsBuffer(std::string_view name) { return name.ends_with(kOmega); }

int64_t ModelConfig::EmbeddingWidth() const {
  const bool concat =
      position_combine == PositionCombine::kConcat && HasAttention();
  return concat ? d_model / 2 : d_model;
}

bool ModelConfig::UsesFeatureMap() const {
  if (!HasAttention()) return false;
  return attention == AttentionKind::kLinear ||
         attention == AttentionKind::kConditionalFull ||
         (arch == Arch::kSeq2seq && cross_attention == CrossAttention::kLinear);
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
              StrCat("layers * n_heads * feature width * d_value at most ",
                     kMaxStateValues, ", the values of the recurrent state"),
              StrCat(state_values));
  }
}

std::vector<NamedShape> WeightShapes(const ModelConfig& config) {
  ModelConfig finished = config;
  FinishConfig(finished);
  Shapes shapes = Embeddings(finished);
  for (const Stack& stack : Stacks(finished)) {
    for (int64_t i = 0; i < stack.layers; ++i) {
      for (const auto& [name, shape] : stack.layer) {
        shapes.push_back({StrCat(stack.prefix, i, ".", name), shape});
      }
    }
    shapes.insert(shapes.end(), stack.after.begin(), stack.after.end());
  }
  const Shapes head = Head(finished);
  shapes.insert(shapes.end(), head.begin(), head.end());
  return shapes;
}

int64_t ParameterCount(const ModelConfig& config) {
  ModelConfig finished = config;
  FinishConfig(finished);
  return CountParameters(finished);
}

}  // namespace tarn
