// The feed-forward parts of every build. With u the row as the part reads it:
//   mlp          W_2 act(W_1 u + b_1) + b_2
//   swiglu       W_2 (silu(W_1 u) * W_3 u) (Shazeer 2020, arXiv 2002.05202,
//                eq. (6))
//   channel-mix  W_2 relu(W_1 (u + token_shift * (u' - u)))^2, u' the row
//                before u in its sequence, zeros before the first (Peng et al.
//                2025, arXiv 2503.14456)
//   gated-channel-mix  the same times sigma(W_g (u + gate_shift * (u' - u)))
//                (Peng et al. 2024, arXiv 2404.05892)
//   none         nothing: the layer ends after its mixer
//   geglu        W_2 (gelu(W_1 u) * W_3 u), the exact gelu (Shazeer 2020, eq.
//                (6))
//   relu2        W_2 relu(W_1 u)^2 (So et al. 2021, arXiv 2109.08668)
//   moe          a mixture of experts (moe_form.h)
//   geglu-tanh   geglu with gelu's other form, which has a tanh
// With feed_forward_bias "all" the maps of swiglu, geglu, geglu-tanh and relu2
// have biases as those of mlp, which lacks them with "none".
#include "config/feed_forward_form.h"
#include "config/feed_forward_spec.h"
#include "config/model_config.h"
#include "core/text.h"
#include "feed_forward/moe_form.h"

namespace tarn {
namespace {

// The tensors of two or three maps.
std::vector<NamedShape> Maps(const ModelConfig& c, bool gated, bool biased) {
  std::vector<NamedShape> shapes;
  const auto add = [&](const char* name, int64_t out, int64_t in) {
    shapes.push_back({StrCat(name, ".weight"), {out, in}});
    if (biased) shapes.push_back({StrCat(name, ".bias"), {out}});
  };
  add("linear1", c.d_ff, c.d_model);
  add("linear2", c.d_model, c.d_ff);
  if (gated) add("linear3", c.d_ff, c.d_model);
  return shapes;
}

std::vector<NamedShape> MlpShapes(const ModelConfig& c) {
  return Maps(c, /*gated=*/false, HasBiases(c, /*by_itself=*/true));
}

std::vector<NamedShape> GatedShapes(const ModelConfig& c) {
  return Maps(c, /*gated=*/true, HasBiases(c, /*by_itself=*/false));
}

std::vector<NamedShape> PlainShapes(const ModelConfig& c) {
  return Maps(c, /*gated=*/false, HasBiases(c, /*by_itself=*/false));
}

std::vector<NamedShape> ChannelMixShapes(const ModelConfig& c) {
  std::vector<NamedShape> shapes = Maps(c, /*gated=*/false, /*biased=*/false);
  shapes.insert(shapes.begin(), {"token_shift", {c.d_model}});
  return shapes;
}

std::vector<NamedShape> GatedChannelMixShapes(const ModelConfig& c) {
  std::vector<NamedShape> shapes = ChannelMixShapes(c);
  shapes.insert(shapes.begin() + 1, {"gate_shift", {c.d_model}});
  shapes.push_back({"gate.weight", {c.d_model, c.d_model}});
  return shapes;
}

std::vector<NamedShape> NoShapes(const ModelConfig&) { return {}; }

StateSpec ChannelMixState(const ModelConfig& c) {
  return {{.name = kChannelShift, .shape = {c.d_model}}};
}

}  // namespace

std::vector<FeedForwardSpec> BuiltinFeedForwards() {
  return {{.name = "mlp",
           .weights = MlpShapes,
           .activation = true,
           .takes_biases = true},
          {.name = "swiglu", .weights = GatedShapes, .takes_biases = true},
          {.name = "channel-mix",
           .weights = ChannelMixShapes,
           .state = ChannelMixState},
          {.name = "none", .weights = NoShapes, .seq2seq = false},
          {.name = "geglu", .weights = GatedShapes, .takes_biases = true},
          {.name = "relu2", .weights = PlainShapes, .takes_biases = true},
          MoeFeedForward(),
          {.name = "geglu-tanh", .weights = GatedShapes, .takes_biases = true},
          {.name = "gated-channel-mix",
           .weights = GatedChannelMixShapes,
           .state = ChannelMixState}};
}

}  // namespace tarn
