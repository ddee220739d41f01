// What hybrids have alike whose layers differ by their heads of keys, none
// being those of a recurrent layer, and mixtures that are published expert by
// expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "importers/gguf/architecture.h"

namespace tarn {

/// The number that `values` of a key have but for those that are 0; `absent`:
/// of a key whose values are all 0. Refuses two different ones.
int64_t OneGgufNumber(GgufKeys& from, const char* key,
                      const std::vector<int64_t>& values, int64_t absent);
/// num_attention_heads, head_dim, and num_key_value_heads of the layers that
/// have some. blocks: of the file. Returns heads of keys, layer by layer.
std::vector<int64_t> ReadGgufLayerHeads(GgufKeys& from, int64_t blocks,
                                        PublishedKeys& to);
/// The way back: attention.head_count, head_count_kv and, if `widths`,
/// key_length and value_length.
void AddGgufLayerHeads(const GgufExport& from, const std::string& architecture,
                       bool widths, GgufKeyList& to);
/// Heads that are as wide together as the model, which llama.cpp supposes.
void RequireFullHeads(const ModelConfig& softmax, int64_t d_model);

/// What an expert's matrices are called where it is published; gate null: it
/// has none.
struct GgufExpertNames {
  const char *gate, *up, *down;
};
/// The experts of a layer. theirs: before the expert's number; own: the layer
/// in the file; view: the configuration as the layer sees it.
void MoveGgufExperts(const ModelConfig& view, const std::string& theirs,
                     const GgufExpertNames& names, const std::string& own,
                     GgufTensors& tensors);
/// The product and the term of a router that is biased.
void MoveGgufRouter(const std::string& published_weight,
                    const std::string& published_bias, const std::string& own,
                    GgufTensors& tensors);
/// expert_weights_scale: a key of 0, or none, is as good as 1.
double GgufExpertScale(GgufKeys& from);

}  // namespace tarn
