// Gated DeltaNet, KDA and DeltaNet as flash-linear-attention has them.
#include <cmath>

#include "core/text.h"
#include "importers/flash/flash_linear.h"

namespace tarn {
namespace {

// Heads by their own width, values in more heads than keys.
void ReadWidths(PublishedConfig& from, int64_t heads, int64_t width,
                double expand, ModelConfig& config) {
  const int64_t key_heads = from.Integer("num_heads", 1, kMostFlash, heads);
  config.n_heads = from.Integer("num_v_heads", 1, kMostFlash, key_heads);
  SetKey(config, "key_heads", key_heads == config.n_heads ? 0 : key_heads);
  config.d_key = from.Integer("head_dim", 1, kMostFlash, width);
  const double factor = from.Real("expand_v", expand);
  const double values = static_cast<double>(config.d_key) * factor;
  const double rounded = std::floor(values);
  if (!(rounded >= 1 && rounded <= static_cast<double>(kMostFlash)) ||
      values - rounded > 1e-5 * values) {
    from.Refuse("expand_v", "a factor that makes head_dim an integer",
                StrCat(factor));
  }
  config.d_value = static_cast<int64_t>(rounded);
}

// Without it silu alone follows the projections.
void ReadConvolution(PublishedConfig& from, ModelConfig& config) {
  const bool convolved = from.Flag("use_short_conv", true);
  const int64_t width = from.Integer("conv_size", convolved ? 2 : 1, 8, 4);
  SetKey(config, "conv_width", convolved ? width : 0);
}

ModelConfig ReadGatedDeltaNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "gdn", 4);
  ReadWidths(from, 6, 256, 2.0, config);
  ReadConvolution(from, config);
  SetKey(config, "negative_eigenvalues", from.Flag("allow_neg_eigval", false));
  const std::string gate = from.Word("output_gate_activation", "swish");
  if (gate != "swish" && gate != "silu" && gate != "sigmoid") {
    from.Refuse("output_gate_activation", "'swish', 'silu' or 'sigmoid'",
                Quoted(gate));
  }
  if (gate == "sigmoid") SetFlashGate(config, "sigmoid");
  if (!from.Flag("use_gate", true)) SetFlashGate(config, "none");
  ReadFlashSoftmax(from, config);
  return config;
}

ModelConfig ReadKda(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "kda", 4);
  ReadWidths(from, 16, 128, 1.0, config);
  ReadConvolution(from, config);
  SetKey(config, "negative_eigenvalues", from.Flag("allow_neg_eigval", false));
  SetKey(config, "gate_bias", true);
  // Decays of another form.
  from.Want("safe_gate", false);
  from.WantNull("lower_bound");
  ReadFlashSoftmax(from, config);
  return config;
}

void PublishWidths(const ModelConfig& view, PublishedKeys& to) {
  to["num_heads"] = KeyHeadsOf(view);
  to["num_v_heads"] = view.n_heads;
  to["head_dim"] = view.d_key;
  to["expand_v"] =
      static_cast<double>(view.d_value) / static_cast<double>(view.d_key);
}

void PublishConvolution(const ModelConfig& view, PublishedKeys& to) {
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  to["use_short_conv"] = width > 0;
  if (width > 0) to["conv_size"] = width;
  to["allow_neg_eigval"] = KeyOf<bool>(view, "negative_eigenvalues");
}

void PublishGatedDeltaNet(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  PublishWidths(view, to);
  PublishConvolution(view, to);
  const std::string gate = FlashGateOf(view);
  to["use_gate"] = gate != "none";
  to["output_gate_activation"] = gate == "sigmoid" ? "sigmoid" : "swish";
}

void PublishKda(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  PublishWidths(view, to);
  PublishConvolution(view, to);
}

void PublishDeltaNet(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  PublishFlashHeads(view, to);
  PublishConvolution(view, to);
  to["use_gate"] = FlashGateOf(view) == "silu";
}

ModelConfig ReadDeltaNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "deltanet", 4);
  config.n_heads = from.Integer("num_heads", 1, kMostFlash, 16);
  config.d_key = FlashHeadWidth(from, "expand_k", 1.0, config);
  config.d_value = FlashHeadWidth(from, "expand_v", 1.0, config);
  ReadConvolution(from, config);
  from.Want("qk_norm", "l2");
  from.Want("qk_activation", "silu");
  if (from.Flag("use_gate", false)) SetFlashGate(config, "silu");
  // Betas that are not projected are 1: 2 sigma of products that are 0.
  const bool projected = from.Flag("use_beta", true);
  const bool doubled = from.Flag("allow_neg_eigval", false);
  if (!projected && doubled) {
    from.Refuse("allow_neg_eigval", "false where use_beta is false", "true");
  }
  SetKey(config, "negative_eigenvalues", doubled || !projected);
  from.Ignore({"use_output_norm"});  // the layer does not read it
  ReadFlashSoftmax(from, config);
  return config;
}

}  // namespace

std::vector<Importer> FlashDeltaImporters() {
  return {{"gated_deltanet", ReadGatedDeltaNet, FlashGatedTensors,
           "GatedDeltaNetForCausalLM", PublishGatedDeltaNet},
          {"delta_net", ReadDeltaNet, FlashGatedTensors, "DeltaNetForCausalLM",
           PublishDeltaNet},
          {"kda", ReadKda, FlashGatedTensors, "KDAForCausalLM", PublishKda}};
}

}  // namespace tarn
