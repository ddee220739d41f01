#include "torch_nn/mixers/common/state_maps.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace tarn::nn {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kKey = 5, kValue = 4;

// Three pieces with states and maps drawn at random; whether maps are matrices.
std::vector<std::vector<torch::Tensor>> Pieces(bool matrices) {
  torch::manual_seed(5);
  std::vector<std::vector<torch::Tensor>> pieces;
  for (int i = 0; i < 3; ++i) {
    pieces.push_back({torch::randn({kBatch, kHeads, kKey, kValue}),
                      matrices ? torch::randn({kBatch, kHeads, kKey, kKey})
                               : torch::rand({kBatch, kHeads, kKey})});
  }
  return pieces;
}

// The state by definition, an entry at a time in double precision.
torch::Tensor ByEntries(const std::vector<std::vector<torch::Tensor>>& pieces) {
  torch::Tensor state = pieces[0][0].to(torch::kFloat64);
  for (size_t i = 1; i < pieces.size(); ++i) {
    const torch::Tensor map = pieces[i][1].to(torch::kFloat64);
    const torch::Tensor dense = map.dim() == 4 ? map : map.diag_embed();
    state = (dense.unsqueeze(-1) * state.unsqueeze(2)).sum(3) + pieces[i][0];
  }
  return state;
}

TEST(StateMaps, ComposeInOrder) {
  for (const bool matrices : {false, true}) {
    const auto pieces = Pieces(matrices);
    EXPECT_TRUE(torch::allclose(StateAfter(pieces).to(torch::kFloat64),
                                ByEntries(pieces), 1e-5, 1e-5));
    EXPECT_TRUE(torch::equal(StateAfter({pieces[0]}), pieces[0][0]));
  }
}

// A product in bfloat16 would keep 8 bits of a state that whole sequences sum
// up to.
TEST(StateMaps, StayWideUnderAutocast) {
  for (const bool matrices : {false, true}) {
    const auto pieces = Pieces(matrices);
    const torch::Tensor want = StateAfter(pieces);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const torch::Tensor given = StateAfter(pieces);
    const torch::Tensor narrow = torch::matmul(want, want.transpose(2, 3));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_TRUE(torch::equal(given, want));
    EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);  // it was on
  }
}

}  // namespace
}  // namespace tarn::nn
