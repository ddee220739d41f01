#include "torch_nn/mixers/common/cached.h"

#include <algorithm>

namespace tarn::nn {
torch::Tensor AlignAtEnd(const torch::Tensor& rows, const torch::Tensor& added,
                         int64_t taken, int64_t kept) {
  const int64_t size = rows.size(1);
  // Row b moves right by T - added[b]; if all move alike, a view suffices.
  const torch::Tensor shift = taken - added;  // [B]
  const int64_t batch = rows.size(0);
  const bool same = batch == 0 || (shift == shift[0]).all().item<bool>();
  if (same) {
    const int64_t end = size - (batch == 0 ? 0 : shift[0].item<int64_t>());
    const int64_t begin = std::max<int64_t>(0, end - kept);
    return rows.narrow(1, begin, end - begin);
  }
  const int64_t width = std::min(size, kept);
  const torch::Tensor places =  // [B, width], clamped where there is no token
      (torch::arange(size - width, size).unsqueeze(0) - shift.unsqueeze(1))
          .clamp_min(0)
          .to(rows.device());
  return rows.index(
      {torch::arange(batch, places.options()).unsqueeze(1), places});
}

torch::Tensor CachedMixer::ContinueHeads(const Heads& heads,
                                         const RotaryTable& rotary,
                                         const NewTokens& taken,
                                         MixerState& state) {
  const Heads turned = Turned(heads, rotary);
  const Heads all = {turned.queries,
                     torch::cat({state["keys"], turned.keys}, 1),
                     torch::cat({state["values"], turned.values}, 1)};
  torch::Tensor out = AttendCache(turned, all, taken.added, state);
  const int64_t seq_len = heads.keys.size(1), kept = state.form().window;
  state["keys"] = AlignAtEnd(all.keys, taken.added, seq_len, kept);
  state["values"] = AlignAtEnd(all.values, taken.added, seq_len, kept);
  return out;
}

void CachedMixer::StateBefore(const Heads& heads, const RotaryTable& rotary,
                              const SequenceCut& cut, MixerState& state) {
  // Side by side, so that both travel at once.
  const torch::Tensor keys = Rotate(heads.keys, rotary);
  const torch::Tensor before = cut.EarlierRows(
      torch::cat({keys, heads.values}, /*dim=*/3), state.form().window);
  state["keys"] = before.slice(3, 0, keys.size(3));
  state["values"] = before.slice(3, keys.size(3));
}

// Old keys end at t and new ones begin there: the keys of a row are contiguous,
// and query i is at t + i.
torch::Tensor CacheMask(int64_t before, const torch::Tensor& rows,
                        const torch::Tensor& added,
                        const torch::Tensor& lengths) {
  const torch::Tensor places =
      torch::arange(before + rows.size(1)).unsqueeze(0);
  const torch::Tensor kept = (places >= before - lengths.unsqueeze(1)) &
                             (places < before + added.unsqueeze(1));
  if (kept.all().item<bool>()) return {};
  return kept.to(rows.device());
}

torch::Tensor CacheMask(const Heads& heads, const torch::Tensor& added,
                        const MixerState& state) {
  return CacheMask(state["keys"].size(1), heads.keys, added, state.lengths);
}

}  // namespace tarn::nn
