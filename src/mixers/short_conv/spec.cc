#include "mixers/short_conv/spec.h"

#include "core/error.h"
#include "core/text.h"
#include "mixers/short_conv/form.h"

namespace tarn::mixers::short_conv {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const ShortConvSizes s = ShortConvSizesOf(layer);
  std::vector<NamedShape> shapes;
  const auto add = [&](const char* name, int64_t rows, int64_t columns) {
    shapes.push_back({StrCat(name, ".weight"), {rows, columns}});
    if (s.biased) shapes.push_back({StrCat(name, ".bias"), {rows}});
  };
  add("query_projection", s.channels, s.d_model);
  add("key_projection", s.channels, s.d_model);
  add("value_projection", s.channels, s.d_model);
  add("convolution", s.channels, s.width);
  add("out_projection", s.d_model, s.channels);
  return shapes;
}

// The products k v that the next token still meets.
StateSpec State(const ModelConfig& layer) {
  const ShortConvSizes s = ShortConvSizesOf(layer);
  return {{.name = "window", .shape = {s.width - 1, s.channels}}};
}

// A channel of a token takes two products of its gates and the filter.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t width = KeyOf<int64_t>(layer, "conv_width");
  const int64_t step = layer.d_value * (2 * width + 2);
  return {.sequence_flop = n * step,
          .step_flop = step,
          .step_bytes = 4 * layer.d_value * (width - 1)};
}

void Check(const ModelConfig& layer) {
  const int64_t width = KeyOf<int64_t>(layer, "conv_width");
  if (width < 2) {
    throw ArgumentError("conv_width", "from 2 to 8 for attention 'short-conv'",
                        StrCat(width));
  }
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  return {
      {.name = "short-conv",
       .family = "short_conv",
       .sections = {"short_convolution", "short_conv"},
       .can = {.bidirectional = false,
               .recurrent = true,
               .rotary = false,
               .without_rotary = true},
       .check = Check,
       .weights = Weights,
       .state = State,
       .cost = Cost,
       .keys = {{.name = "conv_bias",
                 .help = "short-conv: biases of its projections and filters",
                 .type = FlagKey{},
                 .key = "bias"}},
       .place = 8}};
}

}  // namespace tarn::mixers::short_conv
