// torch.ops.tarn.elementwise_features: a map of single entries by its name,
// from plain torch operators, differentiable to any order. So every row of the
// table of maps (core/feature_map.h) is a map in Python too.
#include <torch/library.h>

#include "torch_ops/common/call.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::ops {
namespace {

// x of any shape -> the same shape.
at::Tensor Elementwise(const at::Tensor& x, const std::string& name) {
  return WithTorchErrors([&] {
    const FeatureMap map = ParseFeatureMap(name);
    if (!IsElementwise(map)) {
      throw ArgumentError("elementwise_features: name",
                          "a map of single entries", name);
    }
    return ElementwiseFeatures(map, x);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("elementwise_features(Tensor x, str name) -> Tensor", &Elementwise);
}

}  // namespace
}  // namespace tarn::ops
