// Shared by the files of mapped_linear_attention (mapped_attention.cc).
#pragma once

#include "torch_ops/common/call.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::ops {

/// The denominator of a call, the map's default filled in.
Denominator DenominatorOf(const MappedAttentionOptions& options);

/// The kernel's settings for a call.
Settings SettingsOf(const MappedAttentionOptions& options, FeatureMap map,
                    Denominator denominator);

/// The signed denominator on features in float32 or float64; `extra` is the
/// state's sum of key norms [N, H], undefined without a state.
MappedAttentionResult SignedSequence(Operands in,
                                     const MappedAttentionOptions& options,
                                     const at::Tensor& extra,
                                     bool return_state);
MappedAttentionResult SignedStep(const StepOperands& in,
                                 const MappedAttentionOptions& options,
                                 const at::Tensor& extra);

/// Favor with every exponent relative to a maximum. `in`: queries and keys
/// before the map, in float32 or float64, masked keys finite; `extra`: the
/// largest exponents of the state [N, H, C]. Returns a state always.
MappedAttentionResult StabilisedFavor(const Operands& in,
                                      const MappedAttentionOptions& options,
                                      const at::Tensor& extra);

}  // namespace tarn::ops
