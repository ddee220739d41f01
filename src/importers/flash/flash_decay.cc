// GLA, RetNet and HGRN2 as flash-linear-attention has them.
#include "core/text.h"
#include "importers/flash/flash_linear.h"

namespace tarn {
namespace {

// Of GLA and RetNet.
void ReadSharedHeads(PublishedConfig& from, int64_t heads, double expand_k,
                     double expand_v, ModelConfig& config) {
  ReadFlashSharedHeads(from, heads, expand_k, expand_v, config);
  from.WantNull("feature_map");
  if (!from.Flag("use_output_gate", true)) SetFlashGate(config, "none");
  from.Flag("elementwise_affine", true);
}

ModelConfig ReadGla(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "gla", 4);
  ReadSharedHeads(from, 4, 0.5, 1.0, config);
  from.Want("use_short_conv", false);
  from.WantNull("clamp_min");
  // Of a convolution that is not there; the layer does not read the others.
  from.Ignore({"conv_size", "use_gk", "use_gv"});
  ReadFlashSoftmax(from, config);
  return config;
}

// The layers' own norms have another eps than the output norm, to which the
// class does not hand it.
ModelConfig ReadHgrn2(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "hgrn2", 4);
  SetKey(config, "output_norm_eps", 1e-5);
  const int64_t heads = from.Integer("num_heads", 1, kMostFlash, 0);
  const bool counted =
      from.Holds("expand_ratio") && !from.Has("expand_ratio") && heads > 0;
  config.d_key = from.Integer("expand_ratio", 1, kMostFlash,
                              counted ? config.d_model / heads : 128);
  if (config.d_key == 0 || config.d_model % config.d_key != 0) {
    from.Refuse("expand_ratio", StrCat("a divisor of ", config.d_model),
                StrCat(config.d_key));
  }
  config.n_heads = config.d_model / config.d_key;
  config.d_value = config.d_key;
  SetKey(config, "learned_bounds", from.Flag("use_lower_bound", true));
  from.Flag("elementwise_affine", true);
  from.Want("use_short_conv", false);
  from.Ignore({"conv_size"});
  ReadFlashSoftmax(from, config);
  return config;
}

ModelConfig ReadRetNet(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "retnet", 2);
  ReadSharedHeads(from, 8, 1.0, 2.0, config);
  config.positions = Positions::kRotary;
  config.rotary_base = 10000.0;
  from.Ignore({"use_short_conv", "conv_size"});  // the model does not read them
  ReadFlashSoftmax(from, config);
  return config;
}

// Heads of queries that share keys and values have them each in tarn.
void PublishGated(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  PublishFlashHeads(view, to);
  to["use_output_gate"] = FlashGateOf(view) != "none";
}

void PublishHgrn2(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  to["expand_ratio"] = view.d_key;
  to["use_lower_bound"] = KeyOf<bool>(view, "learned_bounds");
}

}  // namespace

std::vector<Importer> FlashDecayImporters() {
  return {{"gla", ReadGla, FlashGatedTensors, "GLAForCausalLM", PublishGated},
          {"retnet", ReadRetNet, FlashGatedTensors, "RetNetForCausalLM",
           PublishGated},
          {"hgrn2", ReadHgrn2, FlashGatedTensors, "HGRN2ForCausalLM",
           PublishHgrn2}};
}

}  // namespace tarn
