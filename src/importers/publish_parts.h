// What several types of published models write alike into a config.json: the
// way back of importer.h's readers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "importers/importer.h"

namespace tarn {

/// The first layer's view with such a mixer, or the model where there is none.
ModelConfig FirstView(const ModelConfig& config, const char* mixer);
/// The same of a feed-forward part.
ModelConfig FirstViewWithPart(const ModelConfig& config, const char* part);
/// Whether a layer has this mixer, or this feed-forward part.
bool HasMixer(const ModelConfig& config, int64_t layer, const char* mixer);
bool HasPart(const ModelConfig& config, int64_t layer, const char* part);
/// Heads of keys of a view, which its key says as 0 where all heads have some.
int64_t KeyHeadsOf(const ModelConfig& view);
/// Rows of a weight of a view's mixer; 0 where it has none of this name.
int64_t RowsOfWeight(const ModelConfig& view, const std::string& name);
/// The factor by which `whole` becomes `part` where the product is rounded
/// down.
double FactorOf(int64_t part, int64_t whole);

/// vocab_size, hidden_size, num_hidden_layers, tie_word_embeddings.
void PublishStackSizes(const ModelConfig& config, PublishedKeys& to);
/// The heads of softmax attention and biases of its products; view: of a layer
/// that has it.
void PublishHeads(const ModelConfig& view, PublishedKeys& to);
/// Both, with the keys of a SwiGLU and of root mean square norms: a model in
/// Llama's form without positions and biases.
void PublishSoftmaxStack(const ModelConfig& config, PublishedKeys& to);
/// A word for each layer by its mixer.
void PublishLayerWords(
    const ModelConfig& config, const char* key,
    const std::vector<std::pair<const char*, const char*>>& words,
    PublishedKeys& to);
/// sliding_window and layer_types of layers that differ by their windows.
void PublishWindows(const ModelConfig& config, PublishedKeys& to);
/// rope_parameters of each type of layer (ReadRotaryByType).
void PublishRotaryByType(const ModelConfig& config, PublishedKeys& to);
/// The keys that ReadMamba2 reads; view: of a layer that has it.
void PublishMamba2Keys(const ModelConfig& view, int64_t d_model,
                       PublishedKeys& to);
/// Of a mixture: num_experts_per_tok, moe_intermediate_size, norm_topk_prob.
void PublishChoice(const ModelConfig& view, PublishedKeys& to);

}  // namespace tarn
