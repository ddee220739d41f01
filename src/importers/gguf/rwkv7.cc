// `rwkv7`: conversion/rwkv.py and src/models/rwkv7*.cpp of llama.cpp. The
// published model is that of flash-linear-attention.
#include <cmath>

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kRwkvEps = "attention.layer_norm_epsilon";
// Of llama.cpp's norm of each head, whatever the file says; the published
// class has norm_eps times the width of a head.
constexpr double kRwkvHeadEps = 64e-5, kRwkvSameEps = 1e-6;
// The inputs of a layer in the order of the shares of the row before.
constexpr const char* kRwkvInputs[] = {"r", "w", "k", "v", "a", "g"};
constexpr int64_t kRwkvInputCount = 6;

void ReadGgufRwkv7(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "rwkv7";
  ReadGgufSizes(from, to);
  const int64_t width = from.Integer("wkv.head_size", 1, kMostSize);
  const double eps = from.Real(kRwkvEps);
  const double of_head = eps * static_cast<double>(width);
  if (std::abs(of_head - kRwkvHeadEps) > kRwkvSameEps * kRwkvHeadEps) {
    from.Refuse(kRwkvEps,
                StrCat(kRwkvHeadEps,
                       " / wkv.head_size, so that a head's norm "
                       "is that of llama.cpp and of the published class"),
                StrCat(eps));
  }
  to["norm_eps"] = eps;
  to["head_dim"] = width;
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  const auto rank = [&](const char* theirs, const char* key) {
    to[theirs] =
        from.Integer(StrCat("attention.", key, "_lora_rank"), 1, kMostSize);
  };
  rank("decay_low_rank_dim", "decay");
  rank("a_low_rank_dim", "iclr");
  rank("v_low_rank_dim", "value_residual_mix");
  rank("gate_low_rank_dim", "gate");
  // Lengths of keys are 1e-12 at least, without an eps.
  to["fuse_norm"] = false;
  from.Integer("token_shift_count", 2, 2, 2);
  from.Ignore({"attention.head_count"});  // 0
}

void MoveRwkvLoras(const ModelConfig& view, bool first,
                   const std::string& theirs, const std::string& own,
                   GgufTensors& tensors) {
  const auto lora = [&](const char* name, bool bias) {
    const std::string published = StrCat(theirs, name, "_lora.lora.");
    const std::string file = StrCat(own, "time_mix_", name);
    tensors.Move(published + "0.weight", file + "1.weight");
    tensors.Move(published + "2.weight", file + "2.weight");
    if (bias) tensors.Move(published + "2.bias", file + "0.weight");
  };
  lora("w", true);
  lora("a", true);
  lora("g", false);
  if (!first) return lora("v", true);
  // Nothing reads those of the first layer, but llama.cpp wants them, with the
  // rank of the rates.
  if (!tensors.writes()) {
    for (const char* number : {"0", "1", "2"}) {
      tensors.Skip(StrCat(own, "time_mix_v", number, "."));
    }
    return;
  }
  const int64_t rank = RowsOfWeight(view, "rate_down_projection.weight");
  const auto zeros = [&](const char* number, std::vector<int64_t> shape) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    tensors.Write(StrCat(own, "time_mix_v", number, ".weight"),
                  std::move(shape), std::vector<float>(count));
  };
  zeros("0", {view.d_model});
  zeros("1", {rank, view.d_model});
  zeros("2", {view.d_model, rank});
}

void MoveRwkvMixer(const ModelConfig& view, bool first,
                   const std::string& theirs, const std::string& own,
                   GgufTensors& tensors) {
  const int64_t d = view.d_model, width = view.n_heads * view.d_key;
  const WeightPart shares =
      tensors(own + "time_mix_lerp_fused.weight", {kRwkvInputCount, 1, 1, d})
          .Reshaped({kRwkvInputCount, d});
  for (int64_t n = 0; n < kRwkvInputCount; ++n) {
    tensors.Add(StrCat(theirs, "x_", kRwkvInputs[n]),
                shares.Rows({n, n + 1}).Reshaped({1, 1, d}));
  }
  const auto move = [&](const char* published, const char* file) {
    tensors.Move(StrCat(theirs, published, ".weight"),
                 StrCat(own, "time_mix_", file, ".weight"));
  };
  move("r_proj", "receptance");
  move("k_proj", "key");
  move("v_proj", "value");
  move("o_proj", "output");
  move("g_norm", "ln");
  tensors.Move(theirs + "g_norm.bias", own + "time_mix_ln.bias");
  MoveRwkvLoras(view, first, theirs, own, tensors);
  tensors.MoveAs(theirs + "k_k", own + "time_mix_k_k.weight", {width}, {width});
  tensors.MoveAs(theirs + "k_a", own + "time_mix_k_a.weight", {width}, {width});
  tensors.MoveAs(theirs + "r_k", own + "time_mix_r_k.weight",
                 {view.n_heads, view.d_key}, {width});
}

void GgufRwkv7Tensors(const ModelConfig& config, GgufTensors& tensors) {
  const auto norm = [&](const std::string& theirs, const std::string& own) {
    tensors.Move(theirs + ".weight", own + ".weight");
    tensors.Move(theirs + ".bias", own + ".bias");
  };
  tensors.Move("model.embeddings.weight", "token_embd.weight");
  norm("model.layers.0.pre_norm", "token_embd_norm");
  norm("model.norm", "output_norm");
  if (config.tied_head && tensors.writes()) {
    tensors.WriteCopy("output.weight", "model.embeddings.weight");
  } else {
    tensors.MoveIf("lm_head.weight", "output.weight");
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    norm(theirs + "attn_norm", own + "attn_norm");
    norm(theirs + "ffn_norm", own + "attn_norm_2");
    MoveRwkvMixer(view, i == 0, theirs + "attn.", own, tensors);
    const int64_t d = config.d_model;
    tensors.MoveAs(theirs + "ffn.x_k", own + "channel_mix_lerp_k.weight", {d},
                   {d});
    tensors.Move(theirs + "ffn.key.weight", own + "channel_mix_key.weight");
    tensors.Move(theirs + "ffn.value.weight", own + "channel_mix_value.weight");
  }
}

// As the converter does, this writes models whose keys have an eps under the
// root of their squared length (`fuse_norm`, 1e-6), which llama.cpp has not.
void GgufRwkv7Keys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "rwkv7.";
  const ModelConfig& config = from.config;
  RequireForGguf(config.input_norm, "norm_first", "true", "false");
  const double width = static_cast<double>(config.d_key);
  RequireForGguf(std::abs(config.norm_eps * width - kRwkvHeadEps) <=
                     kRwkvSameEps * kRwkvHeadEps,
                 "norm_eps",
                 StrCat(kRwkvHeadEps, " / head_dim, ", kRwkvHeadEps / width),
                 StrCat(config.norm_eps));
  AddGgufSizes(from, "rwkv7", to);
  to.U32(own + "feed_forward_length", config.d_ff);
  to.U32(own + "attention.head_count", 0);
  to.F32(own + kRwkvEps, config.norm_eps);
  to.U32(own + "wkv.head_size", config.d_key);
  const auto rank = [&](const char* key, const char* theirs) {
    to.U32(StrCat(own, "attention.", key, "_lora_rank"),
           PublishedInteger(from, theirs));
  };
  rank("decay", "decay_low_rank_dim");
  rank("iclr", "a_low_rank_dim");
  rank("value_residual_mix", "v_low_rank_dim");
  rank("gate", "gate_low_rank_dim");
}

}  // namespace

std::vector<GgufArchitecture> GgufRwkvRows() {
  return {{"rwkv7", ReadGgufRwkv7, GgufRwkv7Tensors, {"rwkv7"}, GgufRwkv7Keys}};
}

}  // namespace tarn
