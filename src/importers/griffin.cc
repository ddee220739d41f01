// RecurrentGemma, the published models of Griffin: two recurrent blocks to one
// of softmax attention over a window, norms whose weights are stored less 1,
// and logits under a soft cap.
#include <cmath>

#include "config/bounds.h"
#include "core/half.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostGriffin = int64_t{1} << 24;

// The types repeat over the depth.
void ReadGriffinLayers(PublishedConfig& from, ModelConfig& config) {
  std::vector<std::string> types = from.WordsUpTo("block_types", kMaxLayers);
  if (types.empty()) types = {"recurrent", "recurrent", "attention"};
  const int64_t width =
      from.Integer("lru_width", 1, kMostGriffin, config.d_model);
  if (width % config.n_heads != 0) {
    from.Refuse("lru_width",
                StrCat("a multiple of num_attention_heads = ", config.n_heads),
                StrCat(width));
  }
  const std::string shared = StrCat(
      from.Integer("num_key_value_heads", 1, kMostGriffin, config.n_heads));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string& type = types[static_cast<size_t>(i) % types.size()];
    if (type != "recurrent" && type != "attention") {
      from.Refuse("block_types", "'recurrent' or 'attention'", Quoted(type));
    }
    if (type == "recurrent") {
      config.layers.push_back(
          {MixerKind("rg-lru"), {{"d_value", StrCat(width / config.n_heads)}}});
    } else {
      config.layers.push_back({MixerKind("full"), {{"key_heads", shared}}});
    }
  }
}

ModelConfig ReadGriffin(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostGriffin);
  config.d_model = from.Integer("hidden_size", 1, kMostGriffin);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostGriffin);
  config.d_key = config.d_value = config.d_model / config.n_heads;
  // transformers derives it, and saves it.
  const int64_t head = from.Integer("head_dim", 1, kMostGriffin, config.d_key);
  if (head != config.d_key) {
    from.Refuse("head_dim", "hidden_size / num_attention_heads", StrCat(head));
  }
  config.d_ff = from.Integer("intermediate_size", 2, kMostGriffin) / 2;
  config.feed_forward = FeedForwardOf("geglu-tanh");
  config.feed_forward_bias = FeedForwardBias::kAll;
  from.Want("hidden_activation", "gelu_pytorch_tanh");
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-6);
  config.norm_offset = 1.0;
  config.final_norm = true;
  config.tied_head = from.Flag("tie_word_embeddings", true);
  config.tokenizer = TokenizerKind::kBpe;
  // transformers keeps this factor in 16 bits.
  from.Want("embeddings_scale_by_sqrt_dim", true);
  const float root = std::sqrt(static_cast<float>(config.d_model));
  config.embedding_factor = BF16ToF32(F32ToBF16(root));
  config.logit_softcap = from.Real("logits_soft_cap", 30.0);
  SetKey(config, "qkv_bias", from.Flag("attention_bias", false));
  SetKey(config, "out_bias", true);
  SetKey(config, "window",
         from.Integer("attention_window_size", 1, kMostGriffin, 2048));
  SetKey(config, "conv_width", from.Integer("conv1d_width", 2, 8, 4));
  ReadRotary(from, config, {.part = 0.5});
  ReadGriffinLayers(from, config);
  // How weights began.
  from.Ignore({"w_init_variance_scale", "final_w_init_variance_scale"});
  return config;
}

void PublishGriffin(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  const ModelConfig lru = FirstView(config, "rg-lru");
  PublishSoftmaxStack(config, to);
  to.erase("hidden_act");
  to["hidden_activation"] = "gelu_pytorch_tanh";
  to["intermediate_size"] = 2 * config.d_ff;
  PublishLayerWords(config, "block_types",
                    {{"rg-lru", "recurrent"}, {"full", "attention"}}, to);
  to["lru_width"] = lru.n_heads * lru.d_value;
  to["conv1d_width"] = KeyOf<int64_t>(lru, "conv_width");
  to["attention_window_size"] = KeyOf<int64_t>(softmax, "window");
  to["logits_soft_cap"] = config.logit_softcap;
  PublishPartialRotary(softmax, to);
}

// A block of a gate is stored with a column for each output.
WeightPart TurnedBlocks(const WeightPart& part) {
  const int64_t heads = part.shape()[0], width = part.shape()[1];
  const WeightPart rows = part.Reshaped({heads * width, width});
  std::vector<WeightPart> blocks;
  for (int64_t h = 0; h < heads; ++h) {
    blocks.push_back(rows.Rows({h * width, (h + 1) * width}).Transposed());
  }
  return WeightPart::Stacked(blocks).Reshaped({heads, width, width});
}

void AddLru(const ModelConfig& view, const std::string& own,
            const std::string& theirs, PublishedTensors& from,
            ImportedTensors& to) {
  const int64_t heads = view.n_heads, block = view.d_value;
  const int64_t n = heads * block;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  to.AddLinear(from, own + "value_projection", theirs + "linear_x", true);
  to.AddLinear(from, own + "gate_projection", theirs + "linear_y", true);
  to.AddLinear(from, own + "out_projection", theirs + "linear_out", true);
  to.Add(own + "convolution.weight",
         from(theirs + "conv_1d.weight", {n, 1, width}).Reshaped({n, width}));
  to.Add(own + "convolution.bias", from(theirs + "conv_1d.bias"));
  const auto gate = [&](const char* mine, const char* name) {
    const std::string at = StrCat(theirs, "rg_lru.", name);
    to.Add(StrCat(own, mine, ".weight"),
           TurnedBlocks(from(at + "_weight", {heads, block, block})));
    to.Add(StrCat(own, mine, ".bias"),
           from(at + "_bias", {heads, block}).Reshaped({n}));
  };
  gate("input_gate", "input_gate");
  gate("recurrence_gate", "recurrent_gate");
  to.Add(own + "Lambda", from(theirs + "rg_lru.recurrent_param"));
}

void AddGriffinMixer(const ModelConfig& view, const std::string& own,
                     const std::string& theirs, PublishedTensors& from,
                     ImportedTensors& to) {
  const AddPart add =
      view.attention == MixerKind("rg-lru") ? AddPart(AddLru) : AddSoftmax;
  add(view, own + "attention.", theirs + "temporal_block.", from, to);
}

void AddGriffinUnit(const ModelConfig&, const std::string& own,
                    const std::string& theirs, PublishedTensors& from,
                    ImportedTensors& to) {
  to.AddLinear(from, own + "linear1", theirs + "mlp_block.gate_proj", true);
  to.AddLinear(from, own + "linear2", theirs + "mlp_block.down_proj", true);
  to.AddLinear(from, own + "linear3", theirs + "mlp_block.up_proj", true);
}

void GriffinTensors(const ModelConfig& config, PublishedTensors& from,
                    ImportedTensors& to) {
  AddSoftmaxStack(
      config,
      {.last_norm = "final_norm",
       .norms = {{"norm1", "temporal_pre_norm"}, {"norm2", "channel_pre_norm"}},
       .mixer = AddGriffinMixer,
       .unit = AddGriffinUnit},
      from, to);
}

}  // namespace

std::vector<Importer> GriffinImporters() {
  return {{"recurrent_gemma", ReadGriffin, GriffinTensors,
           "RecurrentGemmaForCausalLM", PublishGriffin}};
}

}  // namespace tarn
