// xLSTM-7B and models in its form: blocks of mLSTM and a gated unit, logits
// under a soft cap.
#include <cmath>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostXlstm = int64_t{1} << 24;

// A part of the model's width, rounded down as transformers rounds it, in equal
// heads.
int64_t HeadWidth(PublishedConfig& from, const char* key, double factor,
                  const ModelConfig& config) {
  factor = from.Real(key, factor);
  const double width = std::floor(static_cast<double>(config.d_model) * factor);
  if (!(width >= 1 && width <= static_cast<double>(kMostXlstm)) ||
      static_cast<int64_t>(width) % config.n_heads != 0) {
    from.Refuse(key,
                StrCat("a factor that makes a multiple of num_heads = ",
                       config.n_heads, " of hidden_size = ", config.d_model),
                RealText(factor));
  }
  return static_cast<int64_t>(width) / config.n_heads;
}

// The hidden width of the gated unit, rounded up to a multiple.
int64_t UnitWidth(PublishedConfig& from, int64_t d_model) {
  const double factor = from.Real("ffn_proj_factor", 2.667);
  const double multiple = static_cast<double>(
      from.Integer("ffn_round_up_to_multiple_of", 1, kMostXlstm, 64));
  const double width =
      std::floor((static_cast<double>(d_model) * factor + multiple - 1) /
                 multiple) *
      multiple;
  if (!(width >= 1 && width <= static_cast<double>(kMostXlstm))) {
    from.Refuse("ffn_proj_factor",
                StrCat("a factor that makes a width from 1 to ", kMostXlstm),
                RealText(factor));
  }
  return static_cast<int64_t>(width);
}

// A number of two names; transformers prefers the first.
int64_t EitherOf(PublishedConfig& from, const char* name, const char* other,
                 int64_t most) {
  const char* given = from.Has(name) ? name : other;
  const int64_t value = from.Integer(given, 1, most);
  const int64_t second = from.Integer(other, 1, most, value);
  if (second != value) from.Refuse(other, StrCat(value), StrCat(second));
  from.Ignore({name});
  return value;
}

ModelConfig ReadXlstm(PublishedConfig& from) {
  ModelConfig config;
  config.attention = MixerKind("mlstm");
  config.vocab_size = from.Integer("vocab_size", 1, kMostXlstm, 50304);
  config.d_model = EitherOf(from, "hidden_size", "embedding_dim", kMostXlstm);
  config.n_layers =
      EitherOf(from, "num_hidden_layers", "num_blocks", kMaxLayers);
  config.n_heads = from.Integer("num_heads", 1, kMostXlstm, 8);
  config.d_key = HeadWidth(from, "qk_dim_factor", 0.5, config);
  config.d_value = HeadWidth(from, "v_dim_factor", 1.0, config);
  config.d_ff = UnitWidth(from, config.d_model);
  config.feed_forward = FeedForwardOf("swiglu");
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("norm_eps", 1e-6);
  config.final_norm = true;
  config.positions = Positions::kNone;
  from.Ignore({"tie_word_embeddings"});  // transformers ties no head of these
  config.tokenizer = TokenizerKind::kBpe;
  config.logit_softcap = from.Real("output_logit_soft_cap", 30.0);
  SetKey(config, "gate_softcap", from.Real("gate_soft_cap", 15.0));
  if (const double eps = from.Real("eps", 1e-6); eps != 1e-6) {
    from.Refuse("eps", "1e-6", RealText(eps));
  }
  from.Want("use_bias", false);
  from.Want("add_out_norm", true);
  const std::string mode = from.Word("weight_mode", "single");
  if (mode != "single" && mode != "fused") {
    from.Refuse("weight_mode", "'single' or 'fused'", Quoted(mode));
  }
  // Which program computes the model, and by which pieces.
  from.Ignore({"autocast_kernel_dtype", "chunk_size", "chunkwise_kernel",
               "head_dim", "inference_state_dtype", "max_inference_chunksize",
               "mode", "norm_reduction_force_float32", "return_last_states",
               "sequence_kernel", "step_kernel"});
  return config;
}

void PublishXlstm(const ModelConfig& config, PublishedKeys& to) {
  PublishStackSizes(config, to);
  to["num_heads"] = config.n_heads;
  to["qk_dim_factor"] = FactorOf(config.n_heads * config.d_key, config.d_model);
  to["v_dim_factor"] =
      FactorOf(config.n_heads * config.d_value, config.d_model);
  to["ffn_proj_factor"] = FactorOf(config.d_ff, config.d_model);
  to["ffn_round_up_to_multiple_of"] = 1;
  to["norm_eps"] = config.norm_eps;
  to["output_logit_soft_cap"] = config.logit_softcap;
  to["gate_soft_cap"] = KeyOf<double>(config, "gate_softcap");
  to["weight_mode"] = "single";
}

// The maps of a layer, each in a tensor or several in one, as the key
// weight_mode says.
void AddMlstm(const ModelConfig& config, const std::string& own,
              const std::string& theirs, PublishedTensors& from,
              ImportedTensors& to) {
  const int64_t heads = config.n_heads;
  const int64_t keys = heads * config.d_key, values = heads * config.d_value;
  if (from.Has(theirs + "qkv_opreact.weight")) {
    const GroupedRows maps(from, theirs + "qkv_opreact.weight", 1,
                           {keys, keys, values, values}, config.d_model);
    const char* const names[] = {"query", "key", "value", "gate"};
    for (size_t i = 0; i < 4; ++i) {
      to.Add(StrCat(own, names[i], "_projection.weight"), maps[i]);
    }
    for (const char* part : {".weight", ".bias"}) {
      const GroupedRows gates(from, StrCat(theirs, "ifgate_preact", part), 1,
                              {heads, heads},
                              part[1] == 'b' ? 0 : config.d_model);
      to.Add(StrCat(own, "input_projection", part), gates[0]);
      to.Add(StrCat(own, "forget_projection", part), gates[1]);
    }
  } else {
    to.AddLinear(from, own + "query_projection", theirs + "q");
    to.AddLinear(from, own + "key_projection", theirs + "k");
    to.AddLinear(from, own + "value_projection", theirs + "v");
    to.AddLinear(from, own + "gate_projection", theirs + "ogate_preact");
    to.AddLinear(from, own + "input_projection", theirs + "igate_preact", true);
    to.AddLinear(from, own + "forget_projection", theirs + "fgate_preact",
                 true);
  }
  to.AddLinear(from, own + "norm", theirs + "multihead_norm");
  to.AddLinear(from, own + "out_projection", theirs + "out_proj");
}

void AddXlstmUnit(const ModelConfig& config, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  if (!from.Has(theirs + "proj_up_gate_z.weight")) {
    AddGatedUnit(own, theirs, {"proj_up_gate", "proj_up", "proj_down"}, from,
                 to);
    return;
  }
  const GroupedRows both(from, theirs + "proj_up_gate_z.weight", 1,
                         {config.d_ff, config.d_ff}, config.d_model);
  to.Add(own + "linear1.weight", both[0]);
  to.Add(own + "linear3.weight", both[1]);
  to.AddLinear(from, own + "linear2", theirs + "proj_down");
}

void XlstmTensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  to.Add("value_embedding.weight", from("backbone.embeddings.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("backbone.blocks.", i, ".");
    AddMlstm(config, own + "attention.", theirs + "mlstm_layer.", from, to);
    AddXlstmUnit(config, own, theirs + "ffn.", from, to);
    to.AddLinear(from, own + "norm1", theirs + "norm_mlstm");
    to.AddLinear(from, own + "norm2", theirs + "norm_ffn");
  }
  to.AddLinear(from, "norm", "backbone.out_norm");
  to.AddHead(from, "lm_head.weight", "backbone.embeddings.weight");
}

}  // namespace

std::vector<Importer> XlstmImporters() {
  return {{"xlstm", ReadXlstm, XlstmTensors, "xLSTMForCausalLM", PublishXlstm}};
}

}  // namespace tarn
