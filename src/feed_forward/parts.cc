// The feed-forward parts of every build. With u the row as the part reads it:
//   mlp          W_2 act(W_1 u + b_1) + b_2
//   swiglu       W_2 (silu(W_1 u) * W_3 u) (Shazeer 2020, arXiv 2002.05202,
//                eq. (6))
//   channel-mix  W_2 relu(W_1 (u + token_shift * (u' - u)))^2, u' the row
//                before u in its sequence, zeros before the first (Peng et al.
//                2025, arXiv 2503.14456; RWKV-6's form also has a gate)
//   none         nothing: the layer ends after its mixer
//   geglu        W_2 (gelu(W_1 u) * W_3 u), the exact gelu (Shazeer 2020, eq.
//                (6))
//   relu2        W_2 relu(W_1 u)^2 (So et al. 2021, arXiv 2109.08668)
//   moe          a mixture of experts (moe_form.h)
//   moe          a mixture of experts (moe_form.h)
#include "config/feed_forward_form.h"
#include "config/feed_forward_spec.h"
#include "config/model_config.h"
#include "feed_forward/moe_form.h"

namespace tarn {
namespace {

std::vector<NamedShape> MlpShapes(const ModelConfig& c) {
  return {{"linear1.weight", {c.d_ff, c.d_model}},
          {"linear1.bias", {c.d_ff}},
          {"linear2.weight", {c.d_model, c.d_ff}},
          {"linear2.bias", {c.d_model}}};
}

std::vector<NamedShape> GatedShapes(const ModelConfig& c) {
  return {{"linear1.weight", {c.d_ff, c.d_model}},
          {"linear2.weight", {c.d_model, c.d_ff}},
          {"linear3.weight", {c.d_ff, c.d_model}}};
}

std::vector<NamedShape> PlainShapes(const ModelConfig& c) {
  return {{"linear1.weight", {c.d_ff, c.d_model}},
          {"linear2.weight", {c.d_model, c.d_ff}}};
}

std::vector<NamedShape> ChannelMixShapes(const ModelConfig& c) {
  std::vector<NamedShape> shapes = PlainShapes(c);
  shapes.insert(shapes.begin(), {"token_shift", {c.d_model}});
  return shapes;
}

std::vector<NamedShape> NoShapes(const ModelConfig&) { return {}; }

StateSpec ChannelMixState(const ModelConfig& c) {
  return {{.name = kChannelShift, .shape = {c.d_model}}};
}

}  // namespace

std::vector<FeedForwardSpec> BuiltinFeedForwards() {
  return {{.name = "mlp", .weights = MlpShapes, .activation = true},
          {.name = "swiglu", .weights = GatedShapes},
          {.name = "channel-mix",
           .weights = ChannelMixShapes,
           .state = ChannelMixState},
          {.name = "none", .weights = NoShapes, .seq2seq = false},
          {.name = "geglu", .weights = GatedShapes},
          {.name = "relu2", .weights = PlainShapes},
          MoeFeedForward()};
}

}  // namespace tarn
