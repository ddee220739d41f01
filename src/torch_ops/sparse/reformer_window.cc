#include "torch_ops/sparse/reformer_window.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "torch_ops/common/executor.h"

namespace tarn::ops {
namespace {

const uint8_t* BytesOrNull(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<uint8_t>() : nullptr;
}

}  // namespace

ReformerWindows::ReformerWindows(ReformerPlan plan, int64_t seq_len,
                                 at::ScalarType dtype)
    : plan_(std::move(plan)), device_(plan_.buckets.device()), dtype_(dtype) {
  for (at::Tensor* x : {&plan_.buckets, &plan_.kept, &plan_.attention_mask}) {
    if (x->defined()) *x = x->to(at::kCPU);
  }
  const ReformerOptions& o = plan_.options;
  const at::Tensor buckets = plan_.buckets.contiguous();
  if (plan_.kept.defined()) kept_ = plan_.kept.to(at::kByte).contiguous();
  const auto options = buckets.options().dtype(at::kLong);
  const at::Tensor position = at::empty(buckets.sizes(), options);
  const at::Tensor place = at::empty(buckets.sizes(), options);
  const int64_t batch = buckets.size(0), heads = buckets.size(1);
  TorchExecutor executor;
  ReformerSort(buckets.const_data_ptr<int32_t>(), BytesOrNull(kept_), batch,
               heads * o.rounds, seq_len, position.data_ptr<int64_t>(),
               place.data_ptr<int64_t>(), executor);
  const auto flat = [&](const at::Tensor& x) {
    return x.reshape({batch * heads, o.rounds, seq_len});
  };
  inputs_.planes = batch * heads;
  inputs_.heads = heads;
  inputs_.seq_len = seq_len;
  inputs_.rounds = o.rounds;
  inputs_.chunk = std::min(o.chunk_size, seq_len);
  position_ = flat(position);
  place_ = flat(place);
  buckets_ = flat(buckets);
  chunk_of_ =
      place_.floor_divide(chunk()).transpose(1, 2).to(at::kInt).contiguous();
  inputs_.buckets = buckets_.const_data_ptr<int32_t>();
  inputs_.chunk_of = chunk_of_.const_data_ptr<int32_t>();
  inputs_.kept = BytesOrNull(kept_);
  inputs_.causal = plan_.causal;
  inputs_.causal_offset = plan_.causal_offset;
  inputs_.same_bucket = o.same_bucket;
  inputs_.masked = o.masked;
  inputs_.counted = !o.compat;
  if (!o.masked || o.compat) return;
  others_ = at::zeros({inputs_.planes, seq_len}, at::kByte);
  for (int64_t round = 0; round < o.rounds; ++round) {
    const ReformerWindow w = Positions(round);
    const at::Tensor mask = MaskAt(w);
    ReformerReadsOthers(inputs_, round, w.own.const_data_ptr<int64_t>(),
                        w.keys.const_data_ptr<int64_t>(), BytesOrNull(mask),
                        others_.data_ptr<uint8_t>(), executor);
  }
}

ReformerWindow ReformerWindows::Positions(int64_t round) const {
  ReformerWindow w;
  w.place = place_.select(1, round);
  w.own =
      at::cat({position_.select(1, round),
               at::full({inputs_.planes, chunks() * chunk() - inputs_.seq_len},
                        -1, position_.options())},
              1)
          .view({inputs_.planes, chunks(), chunk()});
  w.keys = w.own;
  if (chunks() > 1) {
    const at::Tensor before =
        at::cat({at::full({inputs_.planes, 1, chunk()}, -1, w.own.options()),
                 w.own.slice(1, 0, chunks() - 1)},
                1);
    w.keys = at::cat({before, w.own}, 2);
  }
  return w;
}

ReformerWindow ReformerWindows::Make(int64_t round) const {
  ReformerWindow w = Positions(round);
  w.bias = at::empty({inputs_.planes * chunks(), chunk(), w.keys.size(2)},
                     w.own.options().dtype(dtype_));
  const at::Tensor mask = MaskAt(w);
  TorchExecutor executor;
  const auto fill = [&](auto* bias) {
    ReformerBias(inputs_, round, w.own.const_data_ptr<int64_t>(),
                 w.keys.const_data_ptr<int64_t>(), BytesOrNull(mask),
                 BytesOrNull(others_), bias, executor);
  };
  if (dtype_ == at::kDouble) {
    fill(w.bias.data_ptr<double>());
  } else {
    fill(w.bias.data_ptr<float>());
  }
  return {w.own.to(device_), w.keys.to(device_), w.place.to(device_),
          w.bias.to(device_)};
}

// The caller's mask at the pairs, dense, or nothing; an axis of size 1 serves
// all.
at::Tensor ReformerWindows::MaskAt(const ReformerWindow& w) const {
  at::Tensor mask = plan_.attention_mask;
  if (!mask.defined()) return mask;
  while (mask.dim() < 4) mask = mask.unsqueeze(0);
  const at::Tensor plane = at::arange(inputs_.planes, position_.options())
                               .view({inputs_.planes, 1, 1, 1});
  const at::Tensor axes[] = {
      plane.floor_divide(inputs_.heads), plane.remainder(inputs_.heads),
      w.own.unsqueeze(3).clamp_min(0), w.keys.unsqueeze(2).clamp_min(0)};
  c10::List<std::optional<at::Tensor>> index;
  for (int64_t axis = 0; axis < 4; ++axis) {
    index.push_back(mask.size(axis) == 1 ? axes[axis] * 0 : axes[axis]);
  }
  return at::index(mask, index)
      .expand({inputs_.planes, chunks(), chunk(), w.keys.size(2)})
      .to(at::kByte)
      .contiguous();
}

}  // namespace tarn::ops
