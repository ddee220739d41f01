// The mixers of Mamba and Mamba-2, which many published hybrids have alike.
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr int64_t kMostPart = int64_t{1} << 24;

// The convolution's bias is 0 where the file says that there is none.
WeightPart ConvolutionBias(const std::string& theirs, int64_t channels,
                           PublishedTensors& from) {
  PublishedConfig& config = from.config();
  if (config.Flag("use_conv_bias", true) &&
      config.Flag("mamba_conv_bias", true)) {
    return from(theirs + "conv1d.bias", {channels});
  }
  return WeightPart::Filled({channels}, 0.0f);
}

}  // namespace

void ReadMambaBiases(PublishedConfig& from, const char* products,
                     const char* convolution, ModelConfig& config) {
  const bool biases = from.Flag(products, false);
  SetKey(config, "recurrent_in_bias", biases);
  SetKey(config, "recurrent_out_bias", biases);
  from.Flag(convolution, true);  // ConvolutionBias reads it
}

void ReadStepLimits(PublishedConfig& from, ModelConfig& config) {
  const auto [least, most] = from.Limits("time_step_limit");
  SetKey(config, "least_step", least);
  SetKey(config, "most_step", most);
}

void PublishStepLimits(const ModelConfig& config, PublishedKeys& to) {
  const double most = KeyOf<double>(config, "most_step");
  PublishedKeys limits = {KeyOf<double>(config, "least_step")};
  limits.push_back(most == 0.0 ? PublishedKeys{{"__float__", "Infinity"}}
                               : PublishedKeys(most));
  to["time_step_limit"] = std::move(limits);
}

LayerOptions ReadMamba2(PublishedConfig& from, int64_t inner,
                        ModelConfig& config) {
  const int64_t heads = from.Integer("mamba_n_heads", 1, kMostPart, 128);
  const int64_t width =
      from.HasWord("mamba_d_head", "auto")
          ? inner / heads
          : from.Integer("mamba_d_head", 1, kMostPart, inner / heads);
  if (width * heads != inner) {
    from.Refuse("mamba_n_heads",
                StrCat("mamba_n_heads * mamba_d_head = ", inner, " channels"),
                StrCat(heads, " * ", width));
  }
  ReadMambaBiases(from, "mamba_proj_bias", "mamba_conv_bias", config);
  SetKey(config, "conv_width", from.Integer("mamba_d_conv", 2, 8, 4));
  ReadStepLimits(from, config);
  from.Ignore({"mamba_chunk_size"});
  return {
      {"n_heads", StrCat(heads)},
      {"d_value", StrCat(width)},
      {"d_key", StrCat(from.Integer("mamba_d_state", 1, kMostPart, 256))},
      {"key_heads", StrCat(from.Integer("mamba_n_groups", 1, kMostPart, 1))}};
}

// Rows of in_proj: z, x, B, C, dt. Those of the convolution: x, B, C, which are
// values, keys and queries; tarn's order is queries, keys, values.
void AddMamba2(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to, const Mamba2Factors& factors) {
  const int64_t values = config.n_heads * config.d_value;
  const int64_t groups = KeyOf<int64_t>(config, "key_heads");
  const int64_t keys = (groups > 0 ? groups : config.n_heads) * config.d_key;
  const int64_t width = KeyOf<int64_t>(config, "conv_width");
  const int64_t all = values + 2 * keys;
  const WeightPart in = from(theirs + "in_proj.weight",
                             {values + all + config.n_heads, config.d_model});
  const bool biases = KeyOf<bool>(config, "recurrent_in_bias");
  int64_t first = 0;
  const auto rows = [&](const char* name, int64_t count, float factor) {
    const WeightRange range = {first, first + count};
    to.Add(StrCat(own, name, "_projection.weight"),
           Times(in.Rows(range), factors.in * factor));
    first += count;
    if (!biases) return;
    to.Add(StrCat(own, name, "_projection.bias"),
           Times(from(theirs + "in_proj.bias", {in.shape()[0]}).Rows(range),
                 factor));
  };
  rows("gate", values, factors.gate);
  rows("value", values, factors.values);
  rows("key", keys, factors.keys);
  rows("query", keys, factors.queries);
  rows("decay", config.n_heads, factors.steps);
  const auto turned = [&](const WeightPart& part) {
    return WeightPart::Stacked({part.Rows({values + keys, all}),
                                part.Rows({values, values + keys}),
                                part.Rows({0, values})});
  };
  to.Add(own + "convolution.weight",
         turned(from(theirs + "conv1d.weight", {all, 1, width})
                    .Reshaped({all, width})));
  to.Add(own + "convolution.bias", turned(ConvolutionBias(theirs, all, from)));
  for (const char* name : {"A_log", "D", "dt_bias"}) {
    to.Add(own + name, from(theirs + name));
  }
  if (KeyOf<bool>(config, "mamba2_norm")) {
    to.AddLinear(from, own + "norm", theirs + "norm");
  }
  to.Add(own + "out_projection.weight",
         Times(from(theirs + "out_proj.weight"), factors.out));
  if (KeyOf<bool>(config, "recurrent_out_bias")) {
    to.Add(own + "out_projection.bias",
           Times(from(theirs + "out_proj.bias"), factors.out));
  }
}

void AddMamba1(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to) {
  const int64_t channels = config.n_heads * config.d_value;
  const int64_t states = config.d_key;
  const int64_t rank = KeyOf<int64_t>(config, "gate_rank");
  const int64_t width = KeyOf<int64_t>(config, "conv_width");
  const WeightPart in =
      from(theirs + "in_proj.weight", {2 * channels, config.d_model});
  to.Add(own + "value_projection.weight", in.Rows({0, channels}));
  to.Add(own + "gate_projection.weight", in.Rows({channels, 2 * channels}));
  if (KeyOf<bool>(config, "recurrent_in_bias")) {
    const WeightPart bias = from(theirs + "in_proj.bias", {2 * channels});
    to.Add(own + "value_projection.bias", bias.Rows({0, channels}));
    to.Add(own + "gate_projection.bias", bias.Rows({channels, 2 * channels}));
  }
  to.Add(own + "convolution.weight",
         from(theirs + "conv1d.weight", {channels, 1, width})
             .Reshaped({channels, width}));
  to.Add(own + "convolution.bias", ConvolutionBias(theirs, channels, from));
  const WeightPart x =
      from(theirs + "x_proj.weight", {rank + 2 * states, channels});
  to.Add(own + "decay_down_projection.weight", x.Rows({0, rank}));
  to.Add(own + "key_projection.weight", x.Rows({rank, rank + states}));
  to.Add(own + "query_projection.weight",
         x.Rows({rank + states, rank + 2 * states}));
  if (KeyOf<bool>(config, "selection_norm")) {
    // Falcon-Mamba's have no weights.
    const bool plain = from.config().HasWord("model_type", "falcon_mamba");
    const auto norm = [&](const char* name, const char* published,
                          int64_t count) {
      to.Add(StrCat(own, name, ".weight"),
             plain ? WeightPart::Filled({count}, 1.0f)
                   : from(StrCat(theirs, published, ".weight")));
    };
    norm("decay_down_norm", "dt_layernorm", rank);
    norm("key_norm", "b_layernorm", states);
    norm("query_norm", "c_layernorm", states);
  }
  to.Add(own + "decay_up_projection.weight", from(theirs + "dt_proj.weight"));
  to.Add(own + "dt_bias", from(theirs + "dt_proj.bias"));
  to.Add(own + "A_log", from(theirs + "A_log"));
  to.Add(own + "D", from(theirs + "D"));
  to.AddLinear(from, own + "out_projection", theirs + "out_proj",
               KeyOf<bool>(config, "recurrent_out_bias"));
}

}  // namespace tarn
