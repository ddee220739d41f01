// What softmax decoders in the form of Llama share: sizes, biases and tensors
// of their stacks.
#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

int64_t SizeOf(PublishedConfig& from, const char* key, int64_t value) {
  return value == 0 ? from.Integer(key, 1, kMostSize)
                    : from.Integer(key, 1, kMostSize, value);
}

void AddLlamaMixer(const ModelConfig& view, const std::string& own,
                   const std::string& theirs, PublishedTensors& from,
                   ImportedTensors& to) {
  AddSoftmax(view, own + "attention.", theirs + "self_attn.", from, to);
}

void AddLlamaUnit(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  const bool bias = view.feed_forward_bias == FeedForwardBias::kAll;
  to.AddLinear(from, own + "linear1", theirs + "mlp.gate_proj", bias);
  to.AddLinear(from, own + "linear2", theirs + "mlp.down_proj", bias);
  to.AddLinear(from, own + "linear3", theirs + "mlp.up_proj", bias);
}

}  // namespace

ModelConfig ReadSoftmaxStack(PublishedConfig& from,
                             const SoftmaxDefaults& usual) {
  ModelConfig config;
  config.attention = MixerKind("full");
  config.vocab_size = SizeOf(from, "vocab_size", usual.vocab_size);
  config.d_model = from.Integer("hidden_size", 1, kMostSize);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = SizeOf(from, "num_attention_heads", usual.heads);
  config.d_ff = from.Integer("intermediate_size", 1, kMostSize);
  const int64_t width =
      usual.head_dim > 0 ? usual.head_dim : config.d_model / config.n_heads;
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMostSize, width);
  const int64_t shared =
      from.Integer("num_key_value_heads", 1, kMostSize,
                   usual.key_heads > 0 ? usual.key_heads : config.n_heads);
  SetKey(config, "key_heads", shared == config.n_heads ? 0 : shared);
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", usual.norm_eps);
  config.final_norm = true;
  config.feed_forward = FeedForwardOf("swiglu");
  config.tied_head = from.Flag("tie_word_embeddings", usual.tied);
  config.tokenizer = TokenizerKind::kBpe;
  return config;
}

void ReadBiases(PublishedConfig& from, ModelConfig& config) {
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  if (from.Flag("mlp_bias", false)) {
    config.feed_forward_bias = FeedForwardBias::kAll;
  }
}

void AddSoftmaxStack(const ModelConfig& config, const SoftmaxNames& form,
                     PublishedTensors& from, ImportedTensors& to) {
  const std::string embedding = form.root + "embed_tokens.weight";
  to.Add("value_embedding.weight", from(embedding));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat(form.root, "layers.", i, ".");
    (form.mixer ? form.mixer : AddLlamaMixer)(view, own, theirs, from, to);
    (form.unit ? form.unit : AddLlamaUnit)(view, own, theirs, from, to);
    for (const auto& [mine, name] : form.norms) {
      to.AddLinear(from, own + mine, theirs + name);
    }
  }
  to.AddLinear(from, "norm", form.root + form.last_norm);
  to.AddHead(from, form.head, embedding);
}

void AddSoftmax(const ModelConfig& config, const std::string& own,
                const std::string& theirs, PublishedTensors& from,
                ImportedTensors& to) {
  const bool qkv_bias = KeyOf<bool>(config, "qkv_bias");
  to.AddLinear(from, own + "query_projection", theirs + "q_proj", qkv_bias);
  to.AddLinear(from, own + "key_projection", theirs + "k_proj", qkv_bias);
  to.AddLinear(from, own + "value_projection", theirs + "v_proj", qkv_bias);
  if (KeyOf<int64_t>(config, "head_norm") != 0) {
    // Where weights of norms are stored less 1, those of heads are too.
    const float offset = static_cast<float>(config.norm_offset);
    for (const auto& [mine, name] :
         {std::pair{"query_norm", "q_norm"}, {"key_norm", "k_norm"}}) {
      const WeightPart weight = from(theirs + name + ".weight");
      to.Add(own + mine + ".weight",
             offset == 0 ? weight : weight.Shifted(offset));
    }
  }
  to.AddLinear(from, own + "out_projection", theirs + "o_proj",
               KeyOf<bool>(config, "out_bias"));
}

}  // namespace tarn
