#include "torch_nn/mixers/common/state_maps.h"

#include <ATen/autocast_mode.h>

namespace tarn::nn {

torch::Tensor StateAfter(
    const std::vector<std::vector<torch::Tensor>>& earlier) {
  const c10::impl::ExcludeDispatchKeyGuard wide(c10::autocast_dispatch_keyset);
  torch::Tensor state = earlier[0][0];
  for (size_t i = 1; i < earlier.size(); ++i) {
    const torch::Tensor& map = earlier[i][1];
    state = (map.dim() == 4 ? torch::matmul(map, state)
                            : map.unsqueeze(-1) * state) +
            earlier[i][0];
  }
  return state;
}

}  // namespace tarn::nn
