#include "config/accounting.h"

#include "config/feed_forward_form.h"
#include "core/error.h"

namespace tarn {
namespace {

// The number of trained parameters of a layer's mixer.
int64_t Mixer(const ModelConfig& view) {
  return TrainedNumbers(Spec(view.attention).weights(view));
}

int64_t SelfAttention(const ModelConfig& c, int64_t layers) {
  int64_t total = 0;
  for (int64_t i = 0; i < layers; ++i) total += Mixer(LayerView(c, i));
  return total;
}

// A weight and, for layer norm, a bias.
int64_t NormNumbers(const ModelConfig& c) {
  return (c.norm_kind == NormKind::kRms ? 1 : 2) * c.d_model;
}

// Two matrices and two biases per direction, with four gates for an LSTM.
int64_t RecurrentLayer(const ModelConfig& c, int64_t inputs) {
  const int64_t ways = c.bidirectional ? 2 : 1;
  const int64_t hidden = c.d_model / ways;
  const int64_t gates = c.arch == Arch::kLstm ? 4 * hidden : hidden;
  return ways * gates * (inputs + hidden + 2);
}

void AddStacks(const ModelConfig& c, ParameterParts& parts) {
  const int64_t d = c.d_model, layers = c.n_layers;
  switch (c.arch) {
    case Arch::kRnn:
    case Arch::kLstm:
      // The first layer of ctc reads the frames themselves.
      parts.recurrent = RecurrentLayer(c, c.ReadsFrames() ? c.input_dim : d) +
                        (layers - 1) * RecurrentLayer(c, d);
      return;
    case Arch::kCnn:
      parts.recurrent = layers * (d * d * c.kernel_size + d);
      parts.norms = layers * 2 * d;
      return;
    default:
      break;
  }
  const int64_t norm = NormNumbers(c);
  const int64_t final_norm = c.final_norm ? norm : 0;
  parts.attention = SelfAttention(c, layers);
  parts.feed_forward = layers * TrainedNumbers(FeedForwardShapes(c));
  parts.norms = layers * 2 * norm + final_norm;
  if (c.arch == Arch::kSeq2seq) {
    const int64_t more = c.n_decoder_layers;
    parts.attention += SelfAttention(c, more) + more * Mixer(CrossView(c));
    parts.feed_forward += more * TrainedNumbers(FeedForwardShapes(c));
    parts.norms += more * 3 * norm + final_norm;
  }
}

}  // namespace

ParameterParts CountParameterParts(const ModelConfig& config) {
  const ModelConfig c = Finished(config);
  ParameterParts parts;
  const int64_t sides = c.arch == Arch::kSeq2seq ? 2 : 1;
  if (!c.ReadsFrames()) {
    parts.embedding = sides * c.vocab_size * c.EmbeddingWidth();
  } else if (c.HasAttention()) {
    parts.embedding = (c.input_dim + 1) * c.EmbeddingWidth();
  }
  if (c.HasAttention() && c.positions == Positions::kLearned) {
    parts.positions = sides * c.max_positions * c.d_model;
  }
  AddStacks(c, parts);
  parts.head = c.Outputs() * (c.tied_head ? 1 : c.d_model + 1);
  return parts;
}

int64_t TextbookParameters(int64_t d_model, int64_t embeddings) {
  return 12 * d_model * d_model + embeddings * d_model;
}

HeadWidths HeadWidthsOf(const ModelConfig& config) {
  const ModelConfig c = Finished(config);
  return {c.d_key, c.d_value, FeatureWidth(c.feature_map, c.d_key, c.n_dims)};
}

int64_t SoftmaxFlop(const HeadWidths& head, int64_t n, bool causal) {
  // Twice the pairs of a query and a key it sees, times their widths.
  const int64_t pairs_twice = causal ? n * (n + 1) : 2 * n * n;
  return pairs_twice * (head.d_key + head.d_value);
}

int64_t LinearFlop(const HeadWidths& head, int64_t n) {
  return n * LinearStepFlop(head);
}

int64_t SoftmaxStepFlop(const HeadWidths& head, int64_t past) {
  return 2 * (past + 1) * (head.d_key + head.d_value);
}

int64_t LinearStepFlop(const HeadWidths& head) {
  return 4 * head.d_feature * head.d_value + 3 * head.d_feature;
}

int64_t SoftmaxCacheBytes(const HeadWidths& head, int64_t n) {
  return 4 * n * (head.d_key + head.d_value);
}

int64_t LinearStateBytes(const HeadWidths& head) {
  return 4 * head.d_feature * (head.d_value + 1);
}

double CrossoverTokens(const HeadWidths& head, bool causal) {
  return (causal ? 4.0 : 2.0) * static_cast<double>(head.d_feature) *
         static_cast<double>(head.d_value) /
         static_cast<double>(head.d_key + head.d_value);
}

double StepCrossoverTokens(const HeadWidths& head) {
  return static_cast<double>(LinearStepFlop(head)) /
             static_cast<double>(2 * (head.d_key + head.d_value)) -
         1;
}

double MemoryCrossoverTokens(const HeadWidths& head) {
  return static_cast<double>(LinearStateBytes(head)) /
         static_cast<double>(SoftmaxCacheBytes(head, 1));
}

TokenScaling ScalingAt(const ModelConfig& config, int64_t n) {
  const ModelConfig c = Finished(config);
  if (c.arch != Arch::kDecoder && c.arch != Arch::kEncoder) {
    throw ArgumentError("arch", "decoder or encoder", Name(c.arch));
  }
  if (n < 1) throw ArgumentError("n", "1 or more tokens", StrCat(n));
  const ParameterParts parts = CountParameterParts(c);
  const HeadWidths head = HeadWidthsOf(c);
  const int64_t tied = c.tied_head ? c.Outputs() * c.d_model : 0;
  // A table is looked up; a projection of frames is a matrix product.
  const int64_t frames = c.ReadsFrames() ? parts.embedding : 0;
  const int64_t dense =
      2 * (parts.attention + parts.feed_forward + parts.head + tied + frames);
  const int64_t heads = c.n_layers * c.n_heads;
  const auto per_token = [&](int64_t flop) {
    return static_cast<double>(dense) + static_cast<double>(heads) *
                                            static_cast<double>(flop) /
                                            static_cast<double>(n);
  };
  TokenScaling scaling;
  scaling.tokens = n;
  scaling.softmax_parallel_flop =
      per_token(SoftmaxFlop(head, n, c.arch == Arch::kDecoder));
  scaling.linear_parallel_flop = per_token(LinearFlop(head, n));
  scaling.softmax_step_flop = dense + heads * SoftmaxStepFlop(head, n);
  scaling.linear_step_flop = dense + heads * LinearStepFlop(head);
  scaling.softmax_step_bytes = heads * SoftmaxCacheBytes(head, n);
  scaling.linear_step_bytes = heads * LinearStateBytes(head);
  return scaling;
}

}  // namespace tarn
