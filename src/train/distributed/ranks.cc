#include "train/distributed/ranks.h"

#include <algorithm>

namespace tarn::train {
namespace {

class Alone final : public Ranks {
 public:
  Alone() : Ranks(0, 1) {}
  void Sum(std::span<double>) override {}
  void Broadcast(std::span<double>) override {}
  void Broadcast(const std::vector<torch::Tensor>&) override {}
  void Wait() override {}
  torch::Tensor SumOwn(const torch::Tensor& all) override { return all; }
  torch::Tensor Gather(const torch::Tensor& own) override { return own; }
  std::unique_ptr<GradientExchange> Exchange(
      const std::vector<torch::Tensor>&) override {
    return nullptr;
  }
};

}  // namespace

RowShare ShareOfRows(int64_t rows, int64_t rank, int64_t size) {
  const int64_t each = rows / size, more = rows % size;
  return {rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

std::unique_ptr<Ranks> OneRank() { return std::make_unique<Alone>(); }

}  // namespace tarn::train
