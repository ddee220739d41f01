#include "train/distributed/sequence.h"

#include <torch/csrc/autograd/custom_function.h>

namespace tarn::train {
namespace {

constexpr char kRanks[] = "ranks";

// The gradient of what a rank gave is the sum over all ranks of those of its
// row: one all-gather forward, one reduce-scatter backward.
class GatherFunction : public torch::autograd::Function<GatherFunction> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& own, Ranks* ranks) {
    context->saved_data[kRanks] = reinterpret_cast<int64_t>(ranks);
    return ranks->Gather(own.contiguous()).view({ranks->size(), own.numel()});
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    auto* ranks = reinterpret_cast<Ranks*>(context->saved_data[kRanks].toInt());
    return {ranks->SumOwn(gradients[0].contiguous().flatten()),
            torch::Tensor()};
  }
};

}  // namespace

torch::Tensor RankedSequence::Gather(const torch::Tensor& own) const {
  return GatherFunction::apply(own, &ranks_);
}

}  // namespace tarn::train
