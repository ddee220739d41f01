#include "importers/published_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

// Names of a key in files; `mixers`: where it is an option of layers that are
// not softmax attention.
struct PublishedNames {
  const char* key;
  std::vector<const char*> names, mixers;
};

const std::vector<PublishedNames>& Names() {
  static const std::vector<PublishedNames> all = {
      {"d_model", {"hidden_size", "n_embd"}, {}},
      {"n_layers", {"num_hidden_layers", "n_layer", "layers_block_type"}, {}},
      {"layers",
       {"layer_types", "layers_block_type", "block_types", "num_hidden_layers"},
       {}},
      {"n_heads",
       {"num_attention_heads", "n_head", "num_heads"},
       {"mamba_n_heads", "mamba_num_heads", "linear_num_value_heads",
        "linear_num_heads", "num_v_heads", "num_heads"}},
      {"key_heads",
       {"num_key_value_heads", "num_kv_heads"},
       {"mamba_n_groups", "n_groups", "linear_num_key_heads", "num_heads",
        "num_kv_heads"}},
      {"d_key",
       {"qk_nope_head_dim", "head_dim", "attention_head_dim", "hidden_size",
        "n_embd"},
       {"mamba_d_state", "ssm_state_size", "state_size", "linear_key_head_dim",
        "linear_head_dim", "qk_dim_factor", "expand_k", "head_dim",
        "hidden_size"}},
      {"d_value",
       {"v_head_dim", "head_dim"},
       {"mamba_d_head", "mamba_head_dim", "linear_value_head_dim",
        "linear_head_dim", "v_dim_factor", "expand_v", "lru_width",
        "mamba_expand", "expand", "intermediate_size", "head_dim"}},
      {"d_ff",
       {"intermediate_size", "n_inner", "ffn_proj_factor", "hidden_ratio"},
       {}},
      {"norm_eps",
       {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps",
        "block_norm_eps"},
       {}},
      {"rotary_base", {"rope_theta", "rotary_emb_base"}, {}},
      {"own_rotary_base", {"rope_local_base_freq", "rope_theta"}, {}},
      {"rotary_factor", {"factor"}, {}},
      {"rotary_low",
       {"low_freq_factor", "beta_slow", "partial_rotary_factor"},
       {}},
      {"rotary_high", {"high_freq_factor", "beta_fast"}, {}},
      {"rotary_original_positions",
       {"original_max_position_embeddings", "max_position_embeddings"},
       {}},
      {"rotary_magnitude", {"attention_factor", "mscale"}, {}},
      {"rotary_width", {"partial_rotary_factor", "rotary_pct"}, {}},
      {"max_positions", {"n_positions"}, {}},
      {"window",
       {"sliding_window", "attention_window_size", "window_size"},
       {}},
      {"score_scale", {"query_pre_attn_scalar", "attention_multiplier"}, {}},
      {"embedding_factor", {"embedding_multiplier"}, {}},
      {"residual_factor", {"residual_multiplier"}, {}},
      {"logit_factor", {"lm_head_multiplier", "logits_scaling"}, {}},
      {"logit_softcap",
       {"final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"},
       {}},
      {"gate_softcap", {"gate_soft_cap"}, {}},
      {"latent_width", {"kv_lora_rank"}, {}},
      {"query_latent_width", {"q_lora_rank"}, {}},
      {"shared_key_width", {"qk_rope_head_dim"}, {}},
      {"experts", {"num_experts", "num_local_experts", "n_routed_experts"}, {}},
      {"experts_per_token",
       {"num_experts_per_tok", "num_experts_per_token"},
       {}},
      {"d_expert", {"moe_intermediate_size", "intermediate_size"}, {}},
      {"d_shared",
       {"shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size", "shared_intermediate_size",
        "num_shared_experts", "n_shared_experts"},
       {}},
      {"router_scale", {"routed_scaling_factor"}, {}},
      {"conv_width",
       {"conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim", "conv_L_cache",
        "conv1d_width", "conv_size", "short_conv_kernel_size"},
       {}},
      {"gate_rank",
       {"time_step_rank", "mamba_dt_rank", "gate_low_rank_dim"},
       {}},
      {"least_step", {"time_step_limit", "time_step_min"}, {}},
      {"most_step", {"time_step_limit", "time_step_max"}, {}},
      {"selection_norm_eps", {"mixer_rms_eps"}, {}},
      {"head_norm_eps", {"rms_norm_eps", "norm_eps"}, {}},
      {"output_norm_eps", {"norm_eps", "rms_norm_eps"}, {}}};
  return all;
}

struct Found {
  std::string path;
  const nlohmann::json* value;
};

// The members of this name, those of the object before those of its members.
void Collect(const nlohmann::json& object, const std::string& inside,
             const char* name, std::vector<Found>& found) {
  const auto member = object.find(name);
  if (member != object.end() && !member->is_null()) {
    found.push_back({StrCat(inside, name), &*member});
  }
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object()) continue;
    Collect(value, StrCat(inside, key, ": "), name, found);
  }
}

bool Holds(const nlohmann::json& value, std::string given) {
  if (value.is_array()) {
    return std::any_of(value.begin(), value.end(),
                       [&](const auto& one) { return Holds(one, given); });
  }
  if (!value.is_number()) return false;
  std::erase(given, '\'');
  const nlohmann::json number =
      nlohmann::json::parse(given, nullptr, /*allow_exceptions=*/false);
  return number.is_number() && number.get<double>() == value.get<double>();
}

using Row = std::vector<PublishedNames>::const_iterator;

Row RowOf(std::string_view key) {
  return std::find_if(Names().begin(), Names().end(),
                      [&](const auto& row) { return row.key == key; });
}

// The key of the file that one of tarn's was read from; empty: none.
// mixer: of a layer that is not softmax attention; given: its value.
std::string PathOf(const nlohmann::json& object, std::string_view key,
                   bool mixer, const std::string& given) {
  const Row row = RowOf(key);
  if (row == Names().end()) return "";
  std::vector<const char*> names = mixer ? row->mixers : row->names;
  const auto& others = mixer ? row->names : row->mixers;
  names.insert(names.end(), others.begin(), others.end());
  std::vector<Found> found;
  for (const char* name : names) Collect(object, "", name, found);
  if (found.empty()) return "";
  const auto same =
      std::find_if(found.begin(), found.end(),
                   [&](const Found& one) { return Holds(*one.value, given); });
  return (same == found.end() ? found.front() : *same).path;
}

// "a divisor of n_heads = 4" with the file's key.
std::string WithPublishedKeys(const nlohmann::json& object, bool mixer,
                              std::string wanted) {
  constexpr std::string_view kEquals = " = ";
  const size_t equals = wanted.find(kEquals);
  if (equals == std::string::npos || equals == 0) return wanted;
  const size_t space = wanted.rfind(' ', equals - 1);
  const size_t begin = space == std::string::npos ? 0 : space + 1;
  const size_t number = equals + kEquals.size();
  const size_t end = wanted.find_first_not_of("0123456789", number);
  const std::string path = PathOf(object, wanted.substr(begin, equals - begin),
                                  mixer, wanted.substr(number, end - number));
  if (!path.empty()) wanted.replace(begin, equals - begin, path);
  return wanted;
}

}  // namespace

Error NamedAsPublished(const nlohmann::json& object, const Error& error) {
  std::string key = error.where(), wanted = error.wanted();
  // An option of an entry: "layers: want d_key an integer ...".
  const size_t space = wanted.find(' ');
  if (key == "layers" && RowOf(wanted.substr(0, space)) != Names().end()) {
    key = wanted.substr(0, space);
    wanted = wanted.substr(space + 1);
  }
  const bool mixer = wanted.find("attention '") != std::string::npos &&
                     wanted.find("attention 'full'") == std::string::npos;
  const std::string path = PathOf(object, key, mixer, error.given());
  if (path.empty()) return error;
  return Error(error.code(), path, WithPublishedKeys(object, mixer, wanted),
               error.given());
}

}  // namespace tarn
