#include "kernels/reformer_window/reformer_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"

namespace tarn {
namespace {

constexpr int64_t kGroup = 64;  // chunks of one task

// The pairs of one chunk, row by row: scratch of one task. Whole numbers of 32
// bits in dense rows, so that the loops over a window become vector code.
class Pairs {
 public:
  Pairs(const ReformerWindowInputs& in, int64_t round, const int64_t* own,
        const int64_t* keys, const uint8_t* mask)
      : in_(in),
        round_(round),
        width_(in.width()),
        own_(own),
        keys_(keys),
        mask_(mask),
        key_(width_),
        key_chunk_(in.rounds * width_),
        key_bucket_(in.rounds * width_),
        allowed_(width_),
        count_(width_) {}

  /// Enters chunk c of a plane: loads what its keys are, once for all rows.
  void Enter(int64_t plane, int64_t c) {
    plane_ = plane;
    at_ = plane * in_.chunks() + c;
    const uint8_t* kept = in_.kept == nullptr
                              ? nullptr
                              : in_.kept + plane / in_.heads * in_.seq_len;
    for (int64_t w = 0; w < width_; ++w) {
      const int64_t j = keys_[at_ * width_ + w];
      const bool there = j >= 0 && (kept == nullptr || kept[j] != 0);
      key_[w] = there ? static_cast<int32_t>(j) : kNoKey;
      const int64_t known = std::max<int64_t>(j, 0);
      for (int64_t q = 0; q < in_.rounds; ++q) {
        key_chunk_[q * width_ + w] = ChunkOf(known)[q];
        if (in_.same_bucket) {
          key_bucket_[q * width_ + w] = BucketOf(known, q);
        }
      }
    }
  }

  /// Fills allowed() for row a of the chunk; returns its position, -1 for none.
  int64_t Allow(int64_t a) {
    const int64_t i = own_[at_ * in_.chunk + a];
    int32_t* allowed = allowed_.data();
    const int64_t width = width_;
    if (i < 0) {
      std::fill_n(allowed, width, 0);
      return i;
    }
    const auto last = static_cast<int32_t>(
        in_.causal ? std::min<int64_t>(i + in_.causal_offset, kNoKey - 1)
                   : kNoKey - 1);
    const int32_t* key = key_.data();
    for (int64_t w = 0; w < width; ++w) allowed[w] = key[w] <= last ? 1 : 0;
    if (in_.same_bucket) {
      const int32_t own = BucketOf(i, round_);
      const int32_t* bucket = key_bucket_.data() + round_ * width;
      for (int64_t w = 0; w < width; ++w) {
        allowed[w] &= bucket[w] == own ? 1 : 0;
      }
    }
    if (mask_ != nullptr) {
      const uint8_t* row = mask_ + (at_ * in_.chunk + a) * width;
      for (int64_t w = 0; w < width; ++w) allowed[w] &= row[w] != 0 ? 1 : 0;
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

  /// Fills count() with N_ij, which is 0 only where nothing is allowed.
  void CountRounds(int64_t i) {
    int32_t* count = count_.data();
    const int64_t width = width_;
    std::fill_n(count, width, 0);
    for (int64_t q = 0; q < in_.rounds; ++q) {
      const int32_t own = ChunkOf(i)[q];
      const int32_t* chunk = key_chunk_.data() + q * width;
      if (!in_.same_bucket) {
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

  int64_t first_row() const { return at_ * in_.chunk; }
  const int32_t* allowed() const { return allowed_.data(); }  // [W], 0 or 1
  const int32_t* count() const { return count_.data(); }      // [W]

 private:
  // Greater than every position (a sequence is shorter: its chunks are numbered
  // in 32 bits).
  static constexpr int32_t kNoKey = std::numeric_limits<int32_t>::max();

  const int32_t* ChunkOf(int64_t i) const {
    return in_.chunk_of + (plane_ * in_.seq_len + i) * in_.rounds;
  }
  int32_t BucketOf(int64_t i, int64_t q) const {
    return in_.buckets[(plane_ * in_.rounds + q) * in_.seq_len + i];
  }

  const ReformerWindowInputs& in_;
  int64_t round_, width_, plane_ = 0, at_ = 0;
  const int64_t *own_, *keys_;
  const uint8_t* mask_;
  std::vector<int32_t> key_;                     // [W] kNoKey: not there
  std::vector<int32_t> key_chunk_, key_bucket_;  // [rounds, W]
  std::vector<int32_t> allowed_, count_;         // [W]
};

// f(pairs, plane, chunk) over all chunks, in parallel.
template <typename F>
void ForChunks(const ReformerWindowInputs& in, int64_t round,
               const int64_t* own, const int64_t* keys, const uint8_t* mask,
               Executor& executor, const F& f) {
  const int64_t groups = (in.chunks() + kGroup - 1) / kGroup;
  executor.ParallelFor(in.planes * groups, [&](int64_t task, int) {
    const int64_t plane = task / groups, first = task % groups * kGroup;
    Pairs pairs(in, round, own, keys, mask);
    for (int64_t c = first; c < std::min(first + kGroup, in.chunks()); ++c) {
      pairs.Enter(plane, c);
      f(pairs, plane, c);
    }
  });
}

}  // namespace

void ReformerSort(const int32_t* buckets, const uint8_t* kept, int64_t batch,
                  int64_t tasks_a_row, int64_t seq_len, int64_t* position,
                  int64_t* place, Executor& executor) {
  constexpr int32_t kPadding = kReformerBuckets;  // after every bucket
  for (int64_t i = 0; i < batch * tasks_a_row * seq_len; ++i) {
    if (buckets[i] >= 0 && buckets[i] < kPadding) continue;
    throw ArgumentError("reformer_attention: buckets",
                        StrCat("0 to ", kPadding - 1), StrCat(buckets[i]));
  }
  executor.ParallelFor(batch * tasks_a_row, [&](int64_t task, int) {
    const int64_t begin = task * seq_len;
    const uint8_t* keeps =
        kept != nullptr ? kept + task / tasks_a_row * seq_len : nullptr;
    // Sorting by counting: equal buckets keep the order of positions.
    const auto bucket_of = [&](int64_t t) {
      return keeps == nullptr || keeps[t] != 0 ? buckets[begin + t] : kPadding;
    };
    std::vector<int64_t> next(kPadding + 2);  // next free place of each bucket
    for (int64_t t = 0; t < seq_len; ++t) ++next[bucket_of(t) + 1];
    for (int32_t b = 0; b <= kPadding; ++b) next[b + 1] += next[b];
    for (int64_t t = 0; t < seq_len; ++t) {
      position[begin + next[bucket_of(t)]++] = t;
    }
    for (int64_t p = 0; p < seq_len; ++p) {
      place[begin + position[begin + p]] = p;
    }
  });
}

void ReformerReadsOthers(const ReformerWindowInputs& in, int64_t round,
                         const int64_t* own, const int64_t* keys,
                         const uint8_t* mask, uint8_t* others,
                         Executor& executor) {
  ForChunks(in, round, own, keys, mask, executor,
            [&](Pairs& pairs, int64_t plane, int64_t) {
              for (int64_t a = 0; a < in.chunk; ++a) {
                const int64_t i = pairs.Allow(a);
                if (i >= 0 && pairs.ReadsOthers(i)) {
                  others[plane * in.seq_len + i] = 1;
                }
              }
            });
}

template <typename T>
void ReformerBias(const ReformerWindowInputs& in, int64_t round,
                  const int64_t* own, const int64_t* keys, const uint8_t* mask,
                  const uint8_t* others, T* bias, Executor& executor) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const bool counted = in.counted && in.rounds > 1;
  std::vector<T> bias_of(static_cast<size_t>(in.rounds) + 1, T{0});
  for (int64_t n = 2; counted && n <= in.rounds; ++n) {
    bias_of[n] = static_cast<T>(-std::log(static_cast<double>(n)));
  }
  const int64_t width = in.width();
  ForChunks(in, round, own, keys, mask, executor,
            [&](Pairs& pairs, int64_t plane, int64_t) {
              T* row = bias + pairs.first_row() * width;
              for (int64_t a = 0; a < in.chunk; ++a, row += width) {
                const int64_t i = pairs.Allow(a);
                if (i >= 0 && in.masked &&
                    (others != nullptr ? others[plane * in.seq_len + i] != 0
                                       : pairs.ReadsOthers(i))) {
                  pairs.LeaveOut(i);
                }
                if (counted && i >= 0) pairs.CountRounds(i);
                const int32_t *allowed = pairs.allowed(),
                              *count = pairs.count();
                for (int64_t j = 0; j < width; ++j) {
                  row[j] = allowed[j] == 0 ? kNone
                           : counted       ? bias_of[count[j]]
                                           : T{0};
                }
              }
            });
}

template void ReformerBias(const ReformerWindowInputs&, int64_t, const int64_t*,
                           const int64_t*, const uint8_t*, const uint8_t*,
                           float*, Executor&);
template void ReformerBias(const ReformerWindowInputs&, int64_t, const int64_t*,
                           const int64_t*, const uint8_t*, const uint8_t*,
                           double*, Executor&);

}  // namespace tarn
