// One token of each sequence through a transformer layer: the call as a value,
// what is checked, and the composed form of its two ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

#include "torch_ops/common/call.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops::layer_step {

constexpr char kOp[] = "layer_step";

/// Places in the list of weights, in the order of the schema's words below.
enum Place {
  kQuery,
  kQueryBias,
  kKey,
  kKeyBias,
  kValue,
  kValueBias,
  kOut,
  kOutBias,
  kGamma1,
  kBeta1,
  kLinear1,
  kBias1,
  kLinear2,
  kBias2,
  kLinear3,
  kGamma2,
  kBeta2,
  kPlaces,
  // Weights of a layer that also attends to a memory, after the others.
  kCrossQuery = kPlaces,
  kCrossQueryBias,
  kCrossOut,
  kCrossOutBias,
  kCrossGamma,
  kCrossBeta,
  kDecoderPlaces
};

/// Linear attention remembers S and z; full (softmax) attention every key and
/// value, under the same names.
enum class Mixer { kLinear, kFull };

/// What the layer is, apart from its tensors.
struct Kind {
  int64_t heads = 1;
  Mixer mixer = Mixer::kLinear;
  std::optional<Mixer> cross;          // of a decoder: how its memory is read
  Settings attention;                  // of linear attention
  std::optional<double> softmax_temp;  // of full; none: 1 / sqrt(d_key)
  Activation activation = Activation::kRelu;
  NormKind norm = NormKind::kLayer;
  double norm_eps = 1e-5;
  bool pre_norm = false;
};

struct Call {
  at::Tensor x;  // [B, D]
  // [B, H, d_key, d_value], [B, H, d_key]; of full attention keys
  // [B, t, H, d_key], values [B, t, H, d_value].
  OptionalTensor S, z;
  std::vector<OptionalTensor> weights;  // kPlaces, of a decoder kDecoderPlaces
  Kind kind;
  size_t first_weight = 0;  // its place in the list of all layers', for errors
  // A decoder's memory: S and z, or keys and values, of what is attended to.
  OptionalTensor memory_S = {}, memory_z = {};

  const at::Tensor& weight(Place place) const { return *weights[place]; }
};

/// Queries, keys and values [B, H, width].
using ThreeHeads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Throws ShapeError, DTypeError or ArgumentError that names the argument.
void Check(const Call& in);

/// Whether the kernels serve: float32 on the CPU, nothing differentiated.
/// tangents: whether there can be any (TangentsExist).
bool KernelsServe(const Call& in, bool tangents);

/// What layers return: [B, D] (with a head [B, outputs]) and new states.
struct LayersResults {
  at::Tensor out;
  std::vector<at::Tensor> S, z;
};

/// What follows the layers, if anything: a norm, a map to logits.
struct After {
  OptionalTensor gamma, beta, head, head_bias;
};

/// Layers of one kind, at least one, where the kernels serve, and what follows
/// them.
LayersResults TeamSteps(const std::vector<Call>& layers, const at::Tensor& x,
                        const After& after);

/// A token through layers of one kind, and what follows them. Throws an error
/// for an invalid layer.
LayersResults Steps(std::vector<Call>& layers, const at::Tensor& x,
                    const Kind& kind, const After& after);

/// Queries, keys and values; and the rest of the layer, given what its
/// attention found, `attended` [B, H, d_value].
ThreeHeads Heads(const Call& in);
at::Tensor Rest(const Call& in, const at::Tensor& attended);

/// The same functions by plain operators, which run on any device and have
/// gradients.
ThreeHeads ComposedHeads(const Call& in);
at::Tensor ComposedRest(const Call& in, const at::Tensor& attended);
StepResults ComposedStep(const Call& in);

}  // namespace tarn::ops::layer_step
