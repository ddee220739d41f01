// The mixture of experts as a feed-forward part: its keys, in the section
// `moe`, as one value. With u the row as the part reads it:
//   the router chooses experts c_1 .. c_k of weights w_1 .. w_k by
//   router u (kernels/moe/router.h);
//   y = sum_j w_j E_{c_j}(u) + g S(u)
// E_e and the shared expert S are gated units or two maps without biases, as
// `expert_part` says; g is 1, or sigma(shared_gate u).
#pragma once

#include <cstdint>

#include "config/feed_forward_spec.h"
#include "config/model_config.h"

namespace tarn {

enum class ExpertPart { kSwiglu, kGeglu, kRelu2 };  // the key's words
// The key's words. Of the last, a bias of each expert joins its score where
// experts are chosen.
enum class RouterKind { kSoftmax, kSigmoid, kBiasedSigmoid };

struct MoeForm {
  int64_t experts = 0, per_token = 0;
  int64_t width = 0;         // of an expert's hidden rows
  int64_t shared_width = 0;  // of the shared expert's; 0: none
  ExpertPart part = ExpertPart::kSwiglu;
  RouterKind router = RouterKind::kSoftmax;
  bool normalize = true, shared_gate = false;
  double scale = 1.0, balance = 0.0;

  bool biased() const { return router == RouterKind::kBiasedSigmoid; }
  bool gated() const { return part != ExpertPart::kRelu2; }
};
MoeForm MoeFormOf(const ModelConfig& layer);

FeedForwardSpec MoeFeedForward();

}  // namespace tarn
