#include "mixers/linear/form_costs.h"

#include "config/accounting.h"
#include "core/error.h"
#include "mixers/linear/form.h"

namespace tarn {

HeadWidths HeadWidthsOf(const ModelConfig& config) {
  const ModelConfig c = Finished(config);
  return {c.d_key, c.d_value, LinearKeys(c).Width(c.d_key)};
}

int64_t SoftmaxFlop(const HeadWidths& head, int64_t n, bool causal) {
  // Twice the pairs of a query and a key it sees, times their widths.
  const int64_t pairs_twice = causal ? n * (n + 1) : 2 * n * n;
  return pairs_twice * (head.d_key + head.d_value);
}

int64_t LinearFlop(const HeadWidths& head, int64_t n) {
  return n * LinearStepFlop(head);
}

int64_t SoftmaxStepFlop(const HeadWidths& head, int64_t past) {
  return 2 * (past + 1) * (head.d_key + head.d_value);
}

int64_t LinearStepFlop(const HeadWidths& head) {
  return 4 * head.d_feature * head.d_value + 3 * head.d_feature;
}

int64_t SoftmaxCacheBytes(const HeadWidths& head, int64_t n) {
  return 4 * n * (head.d_key + head.d_value);
}

int64_t LinearStateBytes(const HeadWidths& head) {
  return 4 * head.d_feature * (head.d_value + 1);
}

double CrossoverTokens(const HeadWidths& head, bool causal) {
  return (causal ? 4.0 : 2.0) * static_cast<double>(head.d_feature) *
         static_cast<double>(head.d_value) /
         static_cast<double>(head.d_key + head.d_value);
}

double StepCrossoverTokens(const HeadWidths& head) {
  return static_cast<double>(LinearStepFlop(head)) /
             static_cast<double>(2 * (head.d_key + head.d_value)) -
         1;
}

double MemoryCrossoverTokens(const HeadWidths& head) {
  return static_cast<double>(LinearStateBytes(head)) /
         static_cast<double>(SoftmaxCacheBytes(head, 1));
}

TokenScaling ScalingAt(const ModelConfig& config, int64_t n) {
  const ModelConfig c = Finished(config);
  if (c.arch != Arch::kDecoder && c.arch != Arch::kEncoder) {
    throw ArgumentError("arch", "decoder or encoder", Name(c.arch));
  }
  if (n < 1) throw ArgumentError("n", "1 or more tokens", StrCat(n));
  const ParameterParts parts = CountParameterParts(c);
  const int64_t tied = c.tied_head ? c.Outputs() * c.d_model : 0;
  // A table is looked up; a projection of frames is a matrix product.
  const int64_t frames = c.ReadsFrames() ? parts.embedding : 0;
  const int64_t dense = 2 * (parts.attention + parts.feed_forward_used +
                             parts.head + tied + frames);
  TokenScaling scaling = {
      .tokens = n, .softmax_step_flop = dense, .linear_step_flop = dense};
  const auto share = [n](int64_t heads, int64_t flop) {
    return static_cast<double>(heads) * static_cast<double>(flop) /
           static_cast<double>(n);
  };
  scaling.softmax_parallel_flop = scaling.linear_parallel_flop =
      static_cast<double>(dense);
  const LinearKeys keys(c);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    for (const ModelConfig& view : MixerViews(LayerView(c, i))) {
      const HeadWidths head = {view.d_key, view.d_value,
                               keys.Width(view.d_key)};
      const int64_t heads = view.n_heads;
      scaling.softmax_parallel_flop +=
          share(heads, SoftmaxFlop(head, n, c.arch == Arch::kDecoder));
      scaling.linear_parallel_flop += share(heads, LinearFlop(head, n));
      scaling.softmax_step_flop += heads * SoftmaxStepFlop(head, n);
      scaling.linear_step_flop += heads * LinearStepFlop(head);
      scaling.softmax_step_bytes += heads * SoftmaxCacheBytes(head, n);
      scaling.linear_step_bytes += heads * LinearStateBytes(head);
    }
  }
  return scaling;
}

}  // namespace tarn
