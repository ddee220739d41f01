#include "torch_ops/sparse/hash.h"

#include <ATen/ops/empty.h>

#include "torch_ops/common/executor.h"

namespace tarn::ops {
namespace {

template <typename T>
HashRows<T> RowsOf(const at::Tensor& queries, const at::Tensor& lengths) {
  return {queries.const_data_ptr<T>(),
          lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr,
          queries.size(0),
          queries.size(1),
          queries.size(2),
          queries.size(3)};
}

// f(zero of the rows' type).
template <typename F>
void WithType(const at::Tensor& queries, const F& f) {
  if (queries.scalar_type() == at::kDouble) return f(double{});
  f(float{});
}

}  // namespace

at::Tensor ClusterQueries(const at::Tensor& given, const at::Tensor& lengths,
                          const ClusterOptions& options) {
  const at::Tensor queries = given.to(at::kCPU);
  const at::Tensor ends =
      lengths.defined() ? lengths.to(at::kCPU) : at::Tensor();
  const at::Tensor clusters =
      at::empty({queries.size(0), queries.size(2), queries.size(1)},
                queries.options().dtype(at::kLong));
  TorchExecutor executor;
  WithType(queries, [&](auto zero) {
    tarn::ClusterQueries(RowsOf<decltype(zero)>(queries, ends), options,
                         clusters.data_ptr<int64_t>(), executor);
  });
  return clusters.to(given.device());
}

at::Tensor HashBuckets(const at::Tensor& given, int64_t bits, int64_t rounds,
                       int64_t hash_seed) {
  const at::Tensor queries = given.to(at::kCPU);
  const at::Tensor buckets =
      at::empty({queries.size(0), queries.size(2), rounds, queries.size(1)},
                queries.options().dtype(at::kInt));
  TorchExecutor executor;
  WithType(queries, [&](auto zero) {
    tarn::HashBuckets(RowsOf<decltype(zero)>(queries, {}), bits, rounds,
                      hash_seed, buckets.data_ptr<int32_t>(), executor);
  });
  return buckets.to(given.device());
}

}  // namespace tarn::ops
