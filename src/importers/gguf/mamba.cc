// `mamba`, which is also Falcon-Mamba, and `mamba2`: convert_hf_to_gguf.py's
// conversion/mamba.py and llama.cpp's src/models/mamba*.cpp.
#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kMambaEps = "attention.layer_norm_rms_epsilon";

void ReadGgufMambaStack(GgufKeys& from, PublishedKeys& to) {
  ReadGgufSizes(from, to);
  to["layer_norm_epsilon"] = from.Real(kMambaEps);
  to["conv_kernel"] = from.Integer("ssm.conv_kernel", 1, kMostSize);
  to["state_size"] = from.Integer("ssm.state_size", 1, kMostSize);
  to["use_bias"] = from.HasTensor("blk.0.ssm_in.bias");
  to["use_conv_bias"] = from.HasTensor("blk.0.ssm_conv1d.bias");
  // The converter writes 0.
  from.Ignore({"feed_forward_length", "attention.head_count",
               "attention.head_count_kv"});
}

// llama.cpp divides the norms of Falcon-Mamba's steps, keys and queries by a
// root with the eps of all others.
void ReadGgufMamba(GgufKeys& from, PublishedKeys& to) {
  const bool normed = from.Flag("ssm.dt_b_c_rms", false);
  to["model_type"] = normed ? "falcon_mamba" : "mamba";
  ReadGgufMambaStack(from, to);
  to["intermediate_size"] = from.Integer("ssm.inner_size", 1, kMostSize);
  to["time_step_rank"] = from.Integer("ssm.time_step_rank", 1, kMostSize);
  if (normed) to["mixer_rms_eps"] = to["layer_norm_epsilon"];
}

void ReadGgufMamba2Stack(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "mamba2";
  ReadGgufMambaStack(from, to);
  const int64_t inner = from.Integer("ssm.inner_size", 1, kMostSize);
  const int64_t heads = from.Integer("ssm.time_step_rank", 1, kMostSize);
  const int64_t width = to["hidden_size"].get<int64_t>();
  if (inner % width != 0 || inner % heads != 0) {
    from.Refuse("ssm.inner_size",
                StrCat("a multiple of embedding_length, ", width,
                       ", and of time_step_rank, ", heads),
                StrCat(inner));
  }
  to["expand"] = inner / width;
  to["num_heads"] = heads;
  to["head_dim"] = inner / heads;
  to["n_groups"] = from.Integer("ssm.group_count", 1, kMostSize);
}

void MoveAroundMamba(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("backbone.embeddings.weight", "token_embd.weight");
  tensors.Move("backbone.norm_f.weight", "output_norm.weight");
  tensors.MoveIf("lm_head.weight", "output.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    tensors.Move(StrCat("backbone.layers.", i, ".norm.weight"),
                 StrCat("blk.", i, ".attn_norm.weight"));
  }
}

void GgufMambaTensors(const ModelConfig& config, GgufTensors& tensors) {
  MoveAroundMamba(config, tensors);
  const int64_t channels = config.n_heads * config.d_value;
  const int64_t width = KeyOf<int64_t>(config, "conv_width");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string theirs = StrCat("backbone.layers.", i, ".mixer.");
    const std::string own = StrCat("blk.", i, ".");
    tensors.MoveLinear(theirs + "in_proj", own + "ssm_in");
    tensors.MoveAs(theirs + "conv1d.weight", own + "ssm_conv1d.weight",
                   {channels, 1, width}, {channels, width});
    tensors.MoveIf(theirs + "conv1d.bias", own + "ssm_conv1d.bias");
    tensors.MoveLinear(theirs + "x_proj", own + "ssm_x");
    tensors.MoveLinear(theirs + "dt_proj", own + "ssm_dt");
    tensors.Add(theirs + "A_log",
                GgufRates(tensors, own + "ssm_a", {channels, config.d_key}));
    tensors.Move(theirs + "D", own + "ssm_d");
    tensors.MoveLinear(theirs + "out_proj", own + "ssm_out");
  }
}

void GgufMamba2Tensors(const ModelConfig& config, GgufTensors& tensors) {
  MoveAroundMamba(config, tensors);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    MoveGgufMamba2(config, StrCat("backbone.layers.", i, ".mixer."),
                   StrCat("blk.", i, "."), tensors);
  }
}

// Keys without a meaning that llama.cpp asks for.
void AddGgufMambaStack(const GgufExport& from, const std::string& own,
                       GgufKeyList& to) {
  to.U32(own + "feed_forward_length", 0);
  to.U32(own + "attention.head_count", 0);
  to.F32(own + kMambaEps, from.config.norm_eps);
}

void GgufMambaKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "mamba.";
  const ModelConfig& config = from.config;
  const int64_t channels = config.n_heads * config.d_value;
  RequireForGguf(channels == 2 * config.d_model, "expand", "2",
                 StrCat(channels, " channels of ", config.d_model));
  RequireNotForGguf(from, "use_bias");
  const bool normed = KeyOf<bool>(config, "selection_norm");
  if (normed) {
    const double eps = KeyOf<double>(config, "selection_norm_eps");
    RequireForGguf(eps == config.norm_eps, "mixer_rms_eps",
                   StrCat("layer_norm_epsilon, ", config.norm_eps),
                   StrCat(eps));
  }
  AddGgufSizes(from, "mamba", to);
  AddGgufMambaStack(from, own, to);
  to.U32(own + "ssm.conv_kernel", PublishedInteger(from, "conv_kernel"));
  to.U32(own + "ssm.inner_size", channels);
  to.U32(own + "ssm.state_size", config.d_key);
  to.U32(own + "ssm.time_step_rank", PublishedInteger(from, "time_step_rank"));
  to.Bool(own + "ssm.dt_b_c_rms", normed);
}

void GgufMamba2Keys(const GgufExport& from, GgufKeyList& to) {
  AddGgufSizes(from, "mamba2", to);
  AddGgufMambaStack(from, "mamba2.", to);
  AddGgufMamba2(from.config, "mamba2", to);
}

}  // namespace

std::vector<GgufArchitecture> GgufMambaRows() {
  return {{"mamba",
           ReadGgufMamba,
           GgufMambaTensors,
           {"mamba", "falcon_mamba"},
           GgufMambaKeys},
          {"mamba2",
           ReadGgufMamba2Stack,
           GgufMamba2Tensors,
           {"mamba2"},
           GgufMamba2Keys}};
}

}  // namespace tarn
