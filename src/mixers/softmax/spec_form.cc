// What a layer of form.h has, needs and costs.
#include "mixers/softmax/spec_form.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/text.h"
#include "mixers/softmax/form.h"
#include "mixers/softmax/spec.h"

namespace tarn::mixers {
namespace {

// Refuses a key for this mixer.
[[noreturn]] void RefuseFor(const ModelConfig& layer, const char* key,
                            const std::string& wanted,
                            const std::string& given) {
  throw ArgumentError(
      key, StrCat(wanted, " for attention '", Name(layer.attention), "'"),
      given);
}

void CheckLatent(const ModelConfig& layer, const SoftmaxForm& s) {
  if (s.shared >= s.d_key) {
    RefuseFor(layer, "shared_key_width", StrCat("less than d_key = ", s.d_key),
              StrCat(s.shared));
  }
  if (s.rotary > 0 && s.rotary != s.shared) {
    RefuseFor(layer, "rotary_width",
              StrCat("shared_key_width = ", s.shared,
                     ", as no other part of its keys rotates,"),
              StrCat(s.rotary));
  }
  const auto want_unset = [&](const char* key, bool set,
                              const char* wanted = "0") {
    if (set)
      RefuseFor(layer, key, StrCat(wanted, " with latent_width"), "more");
  };
  if (s.qkv_bias) {
    RefuseFor(layer, "qkv_bias", "false with latent_width", "true");
  }
  if (s.gated) RefuseFor(layer, "head_gate", "false with latent_width", "true");
  if (s.norm != HeadNorm::kNone) {
    RefuseFor(layer, "head_norm", "'none' with latent_width", "another");
  }
  want_unset("key_heads", s.key_heads != s.heads);
  want_unset("window", s.window > 0);
}

}  // namespace

void CheckSoftmaxForm(const ModelConfig& layer) {
  const SoftmaxForm s(layer);
  if (s.heads % s.key_heads != 0) {
    RefuseFor(layer, "key_heads",
              StrCat("0 or a divisor of n_heads = ", s.heads),
              StrCat(s.key_heads));
  }
  const int64_t rotary = KeyOf<int64_t>(layer, "rotary_width");
  if (rotary > s.d_key || rotary % 2 != 0) {
    RefuseFor(layer, "rotary_width",
              StrCat("an even width up to d_key = ", s.d_key), StrCat(rotary));
  }
  const double base = KeyOf<double>(layer, kRotaryBaseKey);
  if (base != 0 && base < 1) {
    RefuseFor(layer, kRotaryBaseKey, "0 or a base from 1", StrCat(base));
  }
  if (s.latent > 0) {
    CheckLatent(layer, s);
  } else if (s.query_latent > 0 || s.shared > 0) {
    RefuseFor(layer, "latent_width", "1 or more with the other latent keys",
              "0");
  }
  if (layer.arch == Arch::kEncoder &&
      (s.latent > 0 || (s.window > 0 && s.context == 0))) {
    RefuseFor(layer, s.latent > 0 ? "latent_width" : "window",
              "0 where tokens see later ones", "more");
  }
  if (layer.arch == Arch::kSeq2seq &&
      (!s.plain() || (s.window > 0 && s.context == 0))) {
    RefuseFor(layer, "arch", "decoder or encoder with keys of softmax_form",
              Name(layer.arch));
  }
}

std::vector<NamedShape> SoftmaxFormWeights(const ModelConfig& layer) {
  const SoftmaxForm s(layer);
  std::vector<NamedShape> shapes;
  const auto add = [&](const char* name, int64_t rows, int64_t columns,
                       bool bias) {
    shapes.push_back({StrCat(name, "_projection.weight"), {rows, columns}});
    if (bias) shapes.push_back({StrCat(name, "_projection.bias"), {rows}});
  };
  if (s.latent > 0) {
    if (s.query_latent > 0) {
      add("query_down", s.query_latent, s.d_model, false);
      shapes.push_back({"query_down_norm.weight", {s.query_latent}});
    }
    add("query", s.queries(), s.query_latent > 0 ? s.query_latent : s.d_model,
        false);
    add("latent", s.latent_row(), s.d_model, false);
    shapes.push_back({"latent_norm.weight", {s.latent}});
    add("key", s.heads * s.own_key(), s.latent, false);
    add("value", s.outputs(), s.latent, false);
  } else {
    add("query", s.queries(), s.d_model, s.qkv_bias);
    add("key", s.keys(), s.d_model, s.qkv_bias);
    add("value", s.values(), s.d_model, s.qkv_bias);
    if (s.gated) add("gate", s.outputs(), s.d_model, s.qkv_bias);
    const bool full = s.norm == HeadNorm::kFull;
    if (s.norm != HeadNorm::kNone) {
      shapes.push_back({"query_norm.weight", {full ? s.queries() : s.d_key}});
      shapes.push_back({"key_norm.weight", {full ? s.keys() : s.d_key}});
    }
  }
  if (s.sinks) shapes.push_back({"sinks", {s.heads}});
  add("out", s.d_model, s.outputs(), s.out_bias);
  return shapes;
}

StateSpec SoftmaxFormState(const ModelConfig& layer) {
  const SoftmaxForm s(layer);
  if (s.latent > 0) {
    return {{.name = "latent",
             .shape = {1, s.latent_row()},
             .grows = true,
             .rounds = true}};
  }
  StateSpec state = {
      {.name = "keys", .shape = {s.key_heads, s.d_key}, .grows = true},
      {.name = "values", .shape = {s.key_heads, s.d_value}, .grows = true}};
  for (StateTensor& tensor : state) {
    tensor.kept = s.window;
    tensor.rounds = true;
  }
  return state;
}

// A head's share of what its group reads. Only the last `window` tokens count.
MixerCost SoftmaxFormCost(const ModelConfig& layer, int64_t n, bool causal) {
  const SoftmaxForm s(layer);
  MixerCost cost = SoftmaxCost(layer, n, causal);
  const int64_t width = s.d_key + s.d_value;
  if (s.window > 0 && causal) {
    const int64_t seen = std::min(n, s.window - 1);
    cost = SoftmaxCost(layer, seen, true);
    cost.sequence_flop += 2 * (n - seen) * s.window * width;
  }
  cost.step_bytes /= s.group();
  if (s.latent > 0) {
    cost.step_flop = 2 * (n + 1) * (s.latent_row() + s.latent);
    cost.step_bytes = 4 * n * s.latent_row() / s.heads;
  }
  return cost;
}

std::vector<const char*> SoftmaxFormReads(const ModelConfig& layer) {
  const std::string_view name = Name(layer.attention);
  std::vector<const char*> keys = {"key_heads", "score_scale", "softcap",
                                   "sinks"};
  const SoftmaxForm form(layer);
  const auto add = [&](std::initializer_list<const char*> more) {
    keys.insert(keys.end(), more);
  };
  if (name == kGatedSoftmax) {
    add({"output_gate", "query_key_norm", "window"});
  } else {
    add({"attention_dropout", "qkv_bias", "out_bias", "head_norm",
         "head_gate"});
  }
  if (name == "local") add({"local_context"});
  if (name == "full") {
    add({"window", "latent_width"});
    if (KeyOf<int64_t>(layer, "latent_width") > 0) {
      add({"query_latent_width", "shared_key_width"});
    }
  }
  if (form.norm != HeadNorm::kNone || form.latent > 0) add({"head_norm_eps"});
  if (layer.positions != Positions::kRotary) return keys;
  add({kRotateKey});
  if (KeyOf<bool>(layer, kRotateKey)) add({"rotary_width", kRotaryBaseKey});
  return keys;
}

}  // namespace tarn::mixers
