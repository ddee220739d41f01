#include "torch_ops/linear/layout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "torch_ops/common/tensors.h"

namespace tarn::ops {
namespace {

c10::SymInt Clamp(const c10::SymInt& x, const c10::SymInt& least,
                  const c10::SymInt& most) {
  return x.max(least).min(most);
}

// Zeros before and after one axis, counted from the last.
at::Tensor Pad(const at::Tensor& x, int64_t axis_from_last,
               const c10::SymInt& front, const c10::SymInt& back) {
  std::vector<c10::SymInt> pad(static_cast<size_t>(2 * axis_from_last), 0);
  pad.push_back(front);
  pad.push_back(back);
  return at::constant_pad_nd_symint(x, pad, 0);
}

// The chunk size: one of few, between which a compiler need not trace again.
int64_t ChunkFor(int64_t wanted, const c10::SymInt& tokens) {
  for (const int64_t small : {1, 16}) {
    if (small < wanted && tokens <= small) return small;
  }
  return wanted;
}

}  // namespace

ChunkLayout::ChunkLayout(const Operands& in, const Settings& settings)
    : packed_(in.cu_seqlens.has_value()),
      chunk_(settings.chunk_size > 0 ? settings.chunk_size : 64),
      queries_(in.queries.sym_size(1)),
      keys_(in.keys.sym_size(1)) {
  const c10::SymInt offset = settings.causal ? settings.causal_offset : 0;
  if (!packed_) {
    const c10::SymInt shift = Clamp(offset, -queries_, keys_);
    before_queries_ = shift.max(0);
    before_keys_ = (-shift).max(0);
    const c10::SymInt slots =
        (queries_ + before_queries_).max(keys_ + before_keys_).max(1);
    chunk_ = ChunkFor(chunk_, slots);
    chunks_ = (slots + (chunk_ - 1)) / chunk_;
    return;
  }
  const at::Tensor bounds = in.cu_seqlens->to(at::kLong);
  const c10::SymInt sequences = bounds.sym_size(0) - 1;
  chunk_ = ChunkFor(chunk_, (keys_ + sequences - 1) / sequences);
  const at::Tensor starts = bounds.narrow_symint(0, 0, sequences);
  const at::Tensor lengths = bounds.narrow_symint(0, 1, sequences) - starts;
  // Query and key of one token: |offset| slots apart, at most its length.
  const at::Tensor shift =
      at::maximum(lengths.clamp_max(at::Scalar(offset)), -lengths);
  const at::Tensor queries_later = shift.clamp_min(0);
  const at::Tensor keys_later = (-shift).clamp_min(0);
  const at::Tensor own =  // chunks of each sequence
      (lengths + queries_later + keys_later + (chunk_ - 1))
          .floor_divide(chunk_);
  ends_ = own.cumsum(0);
  const at::Tensor token = Range(keys_, in.keys);
  const at::Tensor sequence = at::searchsorted(
      bounds.narrow_symint(0, 1, sequences), token, false, /*right=*/true);
  const at::Tensor first =  // slot of a sequence's token 0, less its index
      (ends_ - own) * chunk_ - starts;
  query_slots_ = token + (first + queries_later).index_select(0, sequence);
  key_slots_ = token + (first + keys_later).index_select(0, sequence);
  const bool shifted = offset != 0;
  chunks_ = ((shifted ? keys_ * 2 : keys_) / chunk_ + sequences).max(1);
  sequence_ = at::searchsorted(ends_, Range(chunks_, in.keys), false,
                               /*right=*/true)
                  .clamp_max(at::Scalar(sequences - 1));
}

at::Tensor ChunkLayout::Place(const at::Tensor& rows, const c10::SymInt& before,
                              const at::Tensor& slots) const {
  const c10::SymInt all = chunks_ * chunk_;
  at::Tensor placed;
  if (packed_) {
    std::vector<c10::SymInt> shape = rows.sym_sizes().vec();
    shape[shape.size() - 2] = all;
    placed =
        at::zeros_symint(shape, rows.options()).index_copy(-2, slots, rows);
  } else {
    placed = Pad(rows, 1, before, all - before - rows.sym_size(-2));
  }
  return placed.unflatten_symint(-2, {chunks_, chunk_});
}

at::Tensor ChunkLayout::PlaceQueries(const at::Tensor& rows) const {
  return Place(rows, before_queries_, query_slots_);
}

at::Tensor ChunkLayout::PlaceKeys(const at::Tensor& rows) const {
  return Place(rows, before_keys_, key_slots_);
}

at::Tensor ChunkLayout::TakeQueries(const at::Tensor& chunks) const {
  const at::Tensor rows = chunks.flatten(-3, -2);
  return packed_ ? rows.index_select(-2, query_slots_)
                 : rows.narrow_symint(-2, before_queries_, queries_);
}

// Sums up to and including each chunk, within its sequence. Packed: in rounds,
// each adding what ends 1, 2, 4, ... chunks before, so that a sum never holds
// another sequence, not even to subtract it again.
at::Tensor ChunkLayout::Through(const at::Tensor& sums) const {
  if (!packed_) return sums.cumsum(2);
  at::Tensor through = sums;
  const int64_t inner = sums.dim() - 3;  // axes after that of the chunks
  std::vector<c10::SymInt> shape(static_cast<size_t>(sums.dim()), 1);
  shape[2] = chunks_;
  for (int64_t step = 1; chunks_ > step; step *= 2) {
    const at::Tensor same =
        Pad(sequence_.narrow_symint(0, 0, chunks_ - step) + 1, 0, step, 0) ==
        sequence_ + 1;
    const at::Tensor earlier =
        Pad(through.narrow_symint(2, 0, chunks_ - step), inner, step, 0);
    through = through + at::where(same.view_symint(shape), earlier,
                                  at::zeros({}, sums.options()));
  }
  return through;
}

at::Tensor ChunkLayout::Before(const at::Tensor& sums) const {
  const at::Tensor earlier =
      Pad(Through(sums).narrow_symint(2, 0, chunks_ - 1), sums.dim() - 3, 1, 0);
  if (!packed_) return earlier;
  const at::Tensor same = Pad(sequence_.narrow_symint(0, 0, chunks_ - 1) + 1, 0,
                              1, 0) == sequence_ + 1;
  std::vector<c10::SymInt> shape(static_cast<size_t>(sums.dim()), 1);
  shape[2] = chunks_;
  return at::where(same.view_symint(shape), earlier,
                   at::zeros({}, sums.options()));
}

at::Tensor ChunkLayout::Total(const at::Tensor& sums) const {
  if (!packed_) return sums.sum(2);
  const at::Tensor last = Through(sums)
                              .squeeze(0)
                              .index_select(1, (ends_ - 1).clamp_min(0))
                              .transpose(0, 1);  // [sequences, H, ...]
  // A sequence without tokens has no chunk; what is at its place is the
  // sum of the one before.
  const at::Tensor empty =
      Pad(ends_.narrow_symint(0, 0, ends_.sym_size(0) - 1), 0, 1, 0) == ends_;
  std::vector<c10::SymInt> shape(static_cast<size_t>(last.dim()), 1);
  shape[0] = ends_.sym_size(0);
  return at::where(empty.view_symint(shape), at::zeros({}, sums.options()),
                   last);
}

at::Tensor ChunkLayout::ByChunk(const at::Tensor& states) const {
  if (!packed_) return states.unsqueeze(2);
  return states.index_select(0, sequence_).transpose(0, 1).unsqueeze(0);
}

}  // namespace tarn::ops
