// Softmax attention over all keys, near ones, or the largest scores, and its
// switch to linear attention at a length. Sections "softmax" and "softmax_form"
// of config.json.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace tarn::mixers {

namespace softmax {
/// full, local, exact-topk, conditional-full and gated-full.
std::vector<MixerSpec> Mixers();
}  // namespace softmax

/// The keys of the first section, and those of gated_softmax and softmax_form.
std::vector<OwnKey> SoftmaxKeys();
std::vector<OwnKey> GatedSoftmaxKeys();

/// One head over n tokens at once: scores and weighted sums, 2 n^2 (K + V), or
/// n (n + 1) (K + V) where a token sees itself and what came before, without
/// the exponentials and divisions; a step over n others 2 (n + 1) (K + V).
MixerCost SoftmaxCost(const ModelConfig& layer, int64_t n, bool causal);

}  // namespace tarn::mixers
