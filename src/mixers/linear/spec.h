// Linear attention (Katharopoulos et al. 2020): phi(q)^T S / phi(q)^T z with
// S = sum phi(k) v^T, z = sum phi(k). Section "linear" of config.json.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"

namespace tarn::mixers {

namespace linear {
std::vector<MixerSpec> Mixers();
}

/// The keys of section "linear": feature map, its width and its denominator.
void CheckLinear(const ModelConfig& layer);
/// Those of them that a layer reads: the others belong to other maps.
std::vector<const char*> LinearReads(const ModelConfig& layer);
/// omega [d_key, columns] of a random feature map as `prefix`feature_map.omega;
/// nothing for the other maps.
std::vector<NamedShape> OmegaShapes(const ModelConfig& layer,
                                    const std::string& prefix);
/// S [H, C, V], z [H, C] and, for the signed denominator, norm_sums [H].
StateSpec LinearState(const ModelConfig& layer);
/// n_dims of random maps, and the signed denominator where features are signed.
void DeriveLinear(ModelConfig& config);
/// S += phi(k) v^T and phi(q)^T S, 2CV each; z += phi(k), C, and phi(q)^T z,
/// 2C: n (4CV + 3C), causal or not.
MixerCost LinearCost(const ModelConfig& layer, int64_t n, bool causal);

}  // namespace tarn::mixers
