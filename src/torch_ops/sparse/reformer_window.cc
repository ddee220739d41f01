#include "torch_ops/sparse/reformer_window.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "torch_ops/common/executor.h"

namespace tarn::ops {

// The pairs of one chunk, row by row: scratch of one task. Whole numbers of 32
// bits in dense rows, so that the loops over a window become vector code.
class ReformerWindows::Pairs {
 public:
  Pairs(const ReformerWindows& all, int64_t round, const ReformerWindow& window,
        const at::Tensor& mask)
      : all_(all),
        plan_(all.plan_),
        round_(round),
        rounds_(plan_.options.rounds),
        width_(window.keys.size(2)),
        own_(window.own.const_data_ptr<int64_t>()),
        keys_(window.keys.const_data_ptr<int64_t>()),
        mask_(mask.defined() ? mask.const_data_ptr<bool>() : nullptr),
        chunk_of_(all.chunk_of_.const_data_ptr<int32_t>()),
        buckets_(all.buckets_.const_data_ptr<int32_t>()),
        kept_(plan_.kept.defined() ? plan_.kept.const_data_ptr<bool>()
                                   : nullptr),
        key_(width_),
        key_chunk_(rounds_ * width_),
        key_bucket_(rounds_ * width_),
        allowed_(width_),
        count_(width_) {}

  /// To chunk c of a plane: what its keys are, once for all rows.
  void Enter(int64_t plane, int64_t c) {
    plane_ = plane;
    at_ = plane * all_.chunks_ + c;
    const bool* kept = kept_ == nullptr
                           ? nullptr
                           : kept_ + plane / all_.heads_ * all_.seq_len_;
    for (int64_t w = 0; w < width_; ++w) {
      const int64_t j = keys_[at_ * width_ + w];
      const bool there = j >= 0 && (kept == nullptr || kept[j]);
      key_[w] = there ? static_cast<int32_t>(j) : kNoKey;
      const int64_t known = std::max<int64_t>(j, 0);
      for (int64_t q = 0; q < rounds_; ++q) {
        key_chunk_[q * width_ + w] = ChunkOf(known)[q];
        if (plan_.options.same_bucket) {
          key_bucket_[q * width_ + w] = BucketOf(known, q);
        }
      }
    }
  }

  /// Fills allowed() for row a of the chunk; its position, -1 for none.
  int64_t Allow(int64_t a) {
    const int64_t i = own_[at_ * all_.chunk_ + a];
    int32_t* allowed = allowed_.data();
    const int64_t width = width_;
    if (i < 0) {
      std::fill_n(allowed, width, 0);
      return i;
    }
    const auto last = static_cast<int32_t>(
        plan_.causal ? std::min<int64_t>(i + plan_.causal_offset, kNoKey - 1)
                     : kNoKey - 1);
    const int32_t* key = key_.data();
    for (int64_t w = 0; w < width; ++w) allowed[w] = key[w] <= last ? 1 : 0;
    if (plan_.options.same_bucket) {
      const int32_t own = BucketOf(i, round_);
      const int32_t* bucket = key_bucket_.data() + round_ * width;
      for (int64_t w = 0; w < width; ++w) {
        allowed[w] &= bucket[w] == own ? 1 : 0;
      }
    }
    if (mask_ != nullptr) {
      const bool* row = mask_ + (at_ * all_.chunk_ + a) * width;
      for (int64_t w = 0; w < width; ++w) allowed[w] &= row[w] ? 1 : 0;
    }
    return i;
  }

  /// Whether row i reads anything but itself.
  bool ReadsOthers(int64_t i) const {
    const int32_t *key = key_.data(), *allowed = allowed_.data();
    const auto own = static_cast<int32_t>(i);
    const int64_t width = width_;
    int32_t found = 0;
    for (int64_t w = 0; w < width; ++w) {
      found |= key[w] != own ? allowed[w] : 0;
    }
    return found != 0;
  }

  void LeaveOut(int64_t i) {
    const int32_t* key = key_.data();
    int32_t* allowed = allowed_.data();
    const auto own = static_cast<int32_t>(i);
    const int64_t width = width_;
    for (int64_t w = 0; w < width; ++w) {
      allowed[w] = key[w] != own ? allowed[w] : 0;
    }
  }

  /// Fills count() with N_ij; 0 only where nothing is allowed.
  void CountRounds(int64_t i) {
    int32_t* count = count_.data();
    const int64_t width = width_;
    std::fill_n(count, width, 0);
    for (int64_t q = 0; q < rounds_; ++q) {
      const int32_t own = ChunkOf(i)[q];
      const int32_t* chunk = key_chunk_.data() + q * width;
      if (!plan_.options.same_bucket) {
        for (int64_t w = 0; w < width; ++w) {
          const int32_t ahead = own - chunk[w];
          count[w] += (ahead == 0 ? 1 : 0) + (ahead == 1 ? 1 : 0);
        }
        continue;
      }
      const int32_t own_bucket = BucketOf(i, q);
      const int32_t* bucket = key_bucket_.data() + q * width;
      for (int64_t w = 0; w < width; ++w) {
        const int32_t ahead = own - chunk[w];
        const int32_t near = (ahead == 0 ? 1 : 0) + (ahead == 1 ? 1 : 0);
        count[w] += bucket[w] == own_bucket ? near : 0;
      }
    }
  }

  int64_t first_row() const { return at_ * all_.chunk_; }
  const int32_t* allowed() const { return allowed_.data(); }  // [W], 0 or 1
  const int32_t* count() const { return count_.data(); }      // [W]

 private:
  // Behind every position (a sequence is shorter: its chunks are numbered in
  // 32 bits).
  static constexpr int32_t kNoKey = std::numeric_limits<int32_t>::max();

  const int32_t* ChunkOf(int64_t i) const {
    return chunk_of_ + (plane_ * all_.seq_len_ + i) * rounds_;
  }
  int32_t BucketOf(int64_t i, int64_t q) const {
    return buckets_[(plane_ * rounds_ + q) * all_.seq_len_ + i];
  }

  const ReformerWindows& all_;
  const ReformerPlan& plan_;
  int64_t round_, rounds_, width_, plane_ = 0, at_ = 0;
  const int64_t *own_, *keys_;
  const bool* mask_;
  const int32_t *chunk_of_, *buckets_;
  const bool* kept_;
  std::vector<int32_t> key_;                     // [W] kNoKey: not there
  std::vector<int32_t> key_chunk_, key_bucket_;  // [rounds, W]
  std::vector<int32_t> allowed_, count_;         // [W]
};

ReformerWindows::ReformerWindows(ReformerPlan plan, int64_t seq_len,
                                 at::ScalarType dtype)
    : plan_(plan),
      device_(plan.buckets.device()),
      heads_(plan.buckets.size(1)),
      planes_(plan.buckets.size(0) * heads_),
      seq_len_(seq_len),
      chunk_(std::min(plan.options.chunk_size, seq_len)),
      chunks_((seq_len + chunk_ - 1) / chunk_),
      dtype_(dtype) {
  for (at::Tensor* x : {&plan_.buckets, &plan_.kept, &plan_.attention_mask}) {
    if (x->defined()) *x = x->to(at::kCPU);
  }
  const at::Tensor buckets = plan_.buckets.contiguous();
  const BucketOrder order = SortByBucket(buckets, plan_.kept);
  const auto flat = [&](const at::Tensor& x) {
    return x.reshape({planes_, plan.options.rounds, seq_len_});
  };
  position_ = flat(order.position);
  place_ = flat(order.place);
  buckets_ = flat(buckets);
  chunk_of_ =
      place_.floor_divide(chunk_).transpose(1, 2).to(at::kInt).contiguous();
  if (plan.options.masked && !plan.options.compat) FindOthers();
}

ReformerWindow ReformerWindows::Positions(int64_t round) const {
  ReformerWindow w;
  w.place = place_.select(1, round);
  w.own = at::cat({position_.select(1, round),
                   at::full({planes_, chunks_ * chunk_ - seq_len_}, -1,
                            position_.options())},
                  1)
              .view({planes_, chunks_, chunk_});
  w.keys = w.own;
  if (chunks_ > 1) {
    const at::Tensor before =
        at::cat({at::full({planes_, 1, chunk_}, -1, w.own.options()),
                 w.own.slice(1, 0, chunks_ - 1)},
                1);
    w.keys = at::cat({before, w.own}, 2);
  }
  return w;
}

ReformerWindow ReformerWindows::Make(int64_t round) const {
  ReformerWindow w = Positions(round);
  w.bias = at::empty({planes_ * chunks_, chunk_, w.keys.size(2)},
                     w.own.options().dtype(dtype_));
  if (dtype_ == at::kDouble) {
    FillBias<double>(round, w);
  } else {
    FillBias<float>(round, w);
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
  const at::Tensor plane =
      at::arange(planes_, position_.options()).view({planes_, 1, 1, 1});
  const at::Tensor axes[] = {
      plane.floor_divide(heads_), plane.remainder(heads_),
      w.own.unsqueeze(3).clamp_min(0), w.keys.unsqueeze(2).clamp_min(0)};
  c10::List<std::optional<at::Tensor>> index;
  for (int64_t axis = 0; axis < 4; ++axis) {
    index.push_back(mask.size(axis) == 1 ? axes[axis] * 0 : axes[axis]);
  }
  return at::index(mask, index)
      .expand({planes_, chunks_, chunk_, w.keys.size(2)})
      .contiguous();
}

void ReformerWindows::FindOthers() {
  others_ =
      at::zeros({planes_, seq_len_}, position_.options().dtype(at::kBool));
  bool* others = others_.data_ptr<bool>();
  TorchExecutor executor;
  for (int64_t round = 0; round < plan_.options.rounds; ++round) {
    const ReformerWindow w = Positions(round);
    const at::Tensor mask = MaskAt(w);
    executor.ParallelFor(planes_ * Groups(), [&](int64_t task, int) {
      const int64_t plane = task / Groups(), first = task % Groups() * kGroup;
      Pairs pairs(*this, round, w, mask);
      for (int64_t c = first; c < std::min(first + kGroup, chunks_); ++c) {
        pairs.Enter(plane, c);
        for (int64_t a = 0; a < chunk_; ++a) {
          const int64_t i = pairs.Allow(a);
          if (i >= 0 && pairs.ReadsOthers(i))
            others[plane * seq_len_ + i] = true;
        }
      }
    });
  }
}

template <typename T>
void ReformerWindows::FillBias(int64_t round, const ReformerWindow& w) const {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const ReformerOptions& o = plan_.options;
  const bool counted = !o.compat && o.rounds > 1;
  std::vector<T> bias_of(static_cast<size_t>(o.rounds) + 1, T{0});
  for (int64_t n = 2; counted && n <= o.rounds; ++n) {
    bias_of[n] = static_cast<T>(-std::log(static_cast<double>(n)));
  }
  const at::Tensor mask = MaskAt(w);
  const bool* others =
      others_.defined() ? others_.const_data_ptr<bool>() : nullptr;
  const int64_t width = w.keys.size(2);
  T* bias = w.bias.data_ptr<T>();
  TorchExecutor executor;
  executor.ParallelFor(planes_ * Groups(), [&](int64_t task, int) {
    const int64_t plane = task / Groups(), first = task % Groups() * kGroup;
    Pairs pairs(*this, round, w, mask);
    for (int64_t c = first; c < std::min(first + kGroup, chunks_); ++c) {
      pairs.Enter(plane, c);
      T* row = bias + pairs.first_row() * width;
      for (int64_t a = 0; a < chunk_; ++a, row += width) {
        const int64_t i = pairs.Allow(a);
        if (i >= 0 && o.masked &&
            (others != nullptr ? others[plane * seq_len_ + i]
                               : pairs.ReadsOthers(i))) {
          pairs.LeaveOut(i);
        }
        if (counted && i >= 0) pairs.CountRounds(i);
        const int32_t *allowed = pairs.allowed(), *count = pairs.count();
        for (int64_t j = 0; j < width; ++j) {
          row[j] = allowed[j] == 0 ? kNone : counted ? bias_of[count[j]] : T{0};
        }
      }
    }
  });
}

}  // namespace tarn::ops
