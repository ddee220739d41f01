// What the operator layer_rest is made of: its arguments as lists and settings,
// their checks, the same operators one by one, and a call in the kernel's
// terms.
#pragma once

#include <ATen/ops/empty.h>

#include <string>
#include <vector>

#include "kernels/layer_rest/layer_rest.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops::layer_rest {

using TensorList = std::vector<at::Tensor>;

constexpr char kOp[] = "layer_rest";

// Places in the list of inputs; absent ones are undefined.
enum Input {
  kX,
  kMixed,
  kOutWeight,
  kOutBias,
  kGamma,
  kBeta,
  kWeight1,
  kBias1,
  kWeight2,
  kBias2,
  kEndGamma,
  kEndBeta,
  kInputs
};
// Places in the list of what the kernel leaves.
enum Output {
  kY,
  kS,
  kKept,
  kMean,
  kInverse,
  kEndS,
  kEndMean,
  kEndInverse,
  kOutputs
};

// Everything but the tensors of floats.
struct Settings {
  double eps = 1e-5;
  std::string activation = "relu";
  std::string norm_kind = "layer";
  std::vector<double> dropout;  // three probabilities; empty: zeros
  OptionalTensor seeds;         // int64 [3]

  bool relu() const {
    return ParseActivation(kOp, activation) == Activation::kRelu;
  }
  NormKind norm() const { return ParseNormKind(kOp, norm_kind); }
  double probability(size_t site) const {
    return dropout.empty() ? 0.0 : dropout[site];
  }
  Dropout At(size_t site) const {
    if (probability(site) == 0.0) return {};
    return {probability(site), seeds->select(0, static_cast<int64_t>(site))};
  }
};

/// Throws tarn's errors, naming the argument.
void Check(const TensorList& in, const Settings& settings);

/// The operators one by one.
at::Tensor Chain(const TensorList& in, const Settings& settings);

/// Dense inputs, and a call in the kernel's terms.
struct Call {
  TensorList held;
  LayerRestOptions options;
  LayerRestShape shape;
  LayerRestWeights weights;
  LayerRestTensors tensors;

  Call(const TensorList& in, const Settings& settings);
  /// Sets where the results are; [0] tensors are null. Allocates what is not
  /// kept, for `rows` rows.
  void Leave(const TensorList& out, int64_t rows);

 private:
  const float* Data(Input place) const;
};

/// Absent tensors travel between operators as [0], in lists.
TensorList Present(const TensorList& list, const at::Tensor& like);
TensorList FromLists(at::TensorList list);

// Results of the shapes that the kernel leaves; `make` makes one of a shape.
template <typename Make>
TensorList Results(const TensorList& in, const Settings& settings,
                   const Make& make) {
  const at::Tensor& x = in[kX];
  const bool layer = settings.norm() == NormKind::kLayer;
  const bool post = in[kEndGamma].defined();
  const std::vector<c10::SymInt> rows(x.sym_sizes().begin(),
                                      x.sym_sizes().end() - 1);
  const auto made = [&](bool wanted, c10::SymIntArrayRef shape) {
    return wanted ? make(shape) : at::empty({0}, x.options());
  };
  const c10::SymIntArrayRef whole = x.sym_sizes();
  return {made(true, whole),
          made(true, whole),
          made(true, WithLast(x, in[kWeight1].sym_size(0))),
          made(layer, rows),
          made(true, rows),
          made(post, whole),
          made(post && layer, rows),
          made(post, rows)};
}

}  // namespace tarn::ops::layer_rest
