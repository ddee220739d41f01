#include "torch_nn/layers/layer_rest.h"

#include "torch_nn/layers/residual.h"

namespace tarn::nn {
namespace {

void SetNorms(const RestParts& parts, ops::LayerRestArguments& arguments) {
  ops::ResidualNormArguments middle, end;
  parts.middle.Describe(middle);
  arguments.gamma = *middle.gamma;
  arguments.beta = middle.beta;
  arguments.eps = middle.eps;
  arguments.norm_kind = middle.kind;
  if (parts.end == nullptr) return;
  parts.end->Describe(end);
  arguments.end_gamma = end.gamma;
  arguments.end_beta = end.beta;
}

torch::Tensor PartByPart(const torch::Tensor& x, const Mixed& mixed,
                         const RestParts& parts) {
  const bool pre_norm = parts.end == nullptr;
  const auto [normed, summed] =
      AddResidual(Projected(mixed), x, mixed.bias, &parts.middle,
                  ops::DrawDropout(parts.dropout));
  const torch::Tensor hidden =
      parts.feed_forward(normed, ops::DrawDropout(parts.dropout), parts.places);
  const auto last = AddResidual(hidden, pre_norm ? summed : normed,
                                parts.feed_forward.OutputBias(), parts.end,
                                ops::DrawDropout(parts.dropout));
  return pre_norm ? last.s : last.y;
}

}  // namespace

Mixed Unfinished(torch::Tensor rows, const Mixer& mixer) {
  return {std::move(rows), mixer.OutputWeight(), mixer.OutputBias()};
}

Mixed Finished(torch::Tensor rows, const Mixer& mixer) {
  return {std::move(rows), {}, mixer.OutputBias()};
}

torch::Tensor Projected(const Mixed& mixed) {
  return mixed.weight.defined() ? ops::Affine(mixed.rows, mixed.weight)
                                : mixed.rows;
}

torch::Tensor RestOfLayer(const torch::Tensor& x, const Mixed& mixed,
                          const RestParts& parts) {
  // For a step's few rows, packing the weights would cost more than it saves.
  constexpr int64_t kFewRows = 32;
  ops::LayerRestArguments arguments;
  if (!mixed.weight.defined() || x.numel() < kFewRows * x.size(-1) ||
      !parts.feed_forward.Describe(arguments)) {
    return PartByPart(x, mixed, parts);
  }
  arguments.x = x;
  arguments.mixed = mixed.rows;
  arguments.out_weight = mixed.weight;
  if (mixed.bias.defined()) arguments.out_bias = mixed.bias;
  SetNorms(parts, arguments);
  if (parts.dropout > 0) {
    arguments.dropout.assign(3, parts.dropout);
    arguments.seeds = ops::DrawSeeds(3);
  }
  return ops::LayerRest(arguments);
}

}  // namespace tarn::nn
