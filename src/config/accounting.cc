#include "config/accounting.h"

#include "config/feed_forward_form.h"

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

// Trained numbers of the feed-forward parts of so many layers, or those of
// them that one token's products read.
int64_t FeedForwardNumbers(const ModelConfig& c, int64_t layers, bool used) {
  int64_t total = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const ModelConfig view = LayerView(c, i);
    total += used ? FeedForwardNumbersUsed(view)
                  : TrainedNumbers(FeedForwardShapes(view));
  }
  return total;
}

// Norms of the layers' parts: a layer without a feed-forward part has none of
// it. attentions: of a layer.
int64_t PartNorms(const ModelConfig& c, int64_t layers, int64_t attentions) {
  int64_t count = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const ModelConfig view = LayerView(c, i);
    const int64_t each = view.norm == Norm::kNone   ? 0
                         : view.norm == Norm::kBoth ? 2
                                                    : 1;
    count += each * (attentions + (HasFeedForward(view) ? 1 : 0));
  }
  return count;
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
  parts.feed_forward = FeedForwardNumbers(c, layers, /*used=*/false);
  parts.feed_forward_used = FeedForwardNumbers(c, layers, /*used=*/true);
  const int64_t inputs = c.input_norm ? norm : 0;
  parts.norms = inputs + PartNorms(c, layers, 1) * norm + final_norm;
  if (c.arch == Arch::kSeq2seq) {
    const int64_t more = c.n_decoder_layers;
    parts.attention += SelfAttention(c, more) + more * Mixer(CrossView(c));
    parts.feed_forward += FeedForwardNumbers(c, more, /*used=*/false);
    parts.feed_forward_used += FeedForwardNumbers(c, more, /*used=*/true);
    parts.norms += inputs + PartNorms(c, more, 2) * norm + final_norm;
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

}  // namespace tarn
