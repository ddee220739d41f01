// The discrete choices inside clustered attention: which keys a cluster reads,
// and which queries are computed together. Plain loops over CPU data; tensors
// of other devices are fetched, and what was chosen goes back.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "torch_ops/common/executor.h"
#include "torch_ops/sparse/clustered_compute.h"

namespace tarn::ops {
namespace {

// The first `count` of `order` become the keys of the highest scores.
template <typename T>
void SelectTop(const T* scores, int64_t count, std::vector<int64_t>* order) {
  const auto value = [scores](int64_t j) {  // NaN has no place in an order
    return std::isnan(scores[j]) ? -std::numeric_limits<T>::infinity()
                                 : scores[j];
  };
  const auto before = [&](int64_t a, int64_t b) {
    const T x = value(a), y = value(b);
    return x > y || (x == y && a < b);
  };
  if (count < static_cast<int64_t>(order->size())) {
    std::nth_element(order->begin(), order->begin() + count, order->end(),
                     before);
  }
  std::sort(order->begin(), order->begin() + count, before);
}

template <typename T>
void RunTopKeys(const at::Tensor& scores, const at::Tensor& kept,
                const at::Tensor& members, int64_t slots, int64_t* top) {
  const int64_t heads = scores.size(1), clusters = scores.size(2);
  const int64_t keys = scores.size(3);
  const T* data = scores.const_data_ptr<T>();
  const int64_t* count = members.const_data_ptr<int64_t>();
  TorchExecutor executor;
  executor.ParallelFor(scores.size(0) * heads, [&](int64_t plane, int) {
    std::vector<int64_t> usable, masked, order;
    for (int64_t j = 0; j < keys; ++j) {
      const bool keeps = !kept.defined() ||
                         kept.const_data_ptr<bool>()[plane / heads * keys + j];
      (keeps ? usable : masked).push_back(j);
    }
    const int64_t used = std::min(slots, static_cast<int64_t>(usable.size()));
    for (int64_t c = plane * clusters; c < (plane + 1) * clusters; ++c) {
      if (count[c] == 0) continue;
      order = usable;
      SelectTop(data + c * keys, used, &order);
      std::copy_n(order.begin(), used, top + c * slots);
      std::copy_n(masked.begin(), slots - used, top + c * slots + used);
    }
  });
}

}  // namespace

at::Tensor TopKeys(const at::Tensor& scores, const at::Tensor& kept,
                   const at::Tensor& members, int64_t topk) {
  const at::Tensor dense = scores.detach().to(at::kCPU).contiguous();
  const int64_t slots = std::min(topk, scores.size(3));
  const at::Tensor top =
      at::zeros({scores.size(0), scores.size(1), scores.size(2), slots},
                members.options().device(at::kCPU));
  const auto run = scores.scalar_type() == at::kDouble ? &RunTopKeys<double>
                                                       : &RunTopKeys<float>;
  run(dense, kept.defined() ? kept.to(at::kCPU).contiguous() : kept,
      members.to(at::kCPU), slots, top.data_ptr<int64_t>());
  return top.to(scores.device());
}

ClusterGroups GroupByCluster(const at::Tensor& given, int64_t clusters) {
  const at::Tensor cluster = given.to(at::kCPU);
  const int64_t planes = cluster.size(0) * cluster.size(1);
  const int64_t seq_len = cluster.size(2);
  const int64_t* of = cluster.const_data_ptr<int64_t>();
  std::vector<int64_t> rows, groups;
  const at::Tensor place = at::zeros({planes * seq_len}, cluster.options());
  int64_t* place_of = place.data_ptr<int64_t>();
  std::vector<int64_t> open(clusters), filled(clusters);
  for (int64_t plane = 0; plane < planes; ++plane) {
    std::fill(filled.begin(), filled.end(), int64_t{0});
    for (int64_t row = plane * seq_len; row < (plane + 1) * seq_len; ++row) {
      const int64_t c = of[row];
      if (c < 0) continue;
      if (filled[c] % kGroupRows == 0) {
        open[c] = static_cast<int64_t>(groups.size());
        groups.push_back(plane * clusters + c);
        rows.resize(rows.size() + kGroupRows, row);
      }
      place_of[row] = open[c] * kGroupRows + filled[c]++ % kGroupRows;
      rows[place_of[row]] = row;
    }
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    const at::Tensor out =
        at::empty({static_cast<int64_t>(values.size())}, cluster.options());
    std::copy(values.begin(), values.end(), out.data_ptr<int64_t>());
    return out.to(given.device());
  };
  return {tensor(rows), tensor(groups), place.to(given.device())};
}

}  // namespace tarn::ops
