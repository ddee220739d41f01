#include "torch_ops/common/sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/searchsorted.h>

#include "core/error.h"
#include "torch_ops/common/forms.h"
#include "torch_ops/common/tensors.h"

namespace tarn::ops {
namespace sequences {
namespace {

void CheckLengths(const char* op, const at::Tensor& given, int64_t seq_len) {
  const at::Tensor lengths = HostLongs(given);
  const int64_t* at = lengths.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    if (at[b] >= 0 && at[b] <= seq_len) continue;
    throw ArgumentError(StrCat(op, ": lengths[", b, "]"),
                        StrCat("0 to ", seq_len), StrCat(at[b]));
  }
}

void CheckBounds(const char* op, const at::Tensor& given, int64_t seq_len) {
  const at::Tensor bounds = HostLongs(given);
  const int64_t last = bounds.size(0) - 1;
  const int64_t* at = bounds.const_data_ptr<int64_t>();
  if (at[0] != 0 || at[last] != seq_len) {
    throw ArgumentError(StrCat(op, ": cu_seqlens"), StrCat("0, ..., ", seq_len),
                        StrCat(at[0], ", ..., ", at[last]));
  }
  for (int64_t i = 0; i < last; ++i) {
    if (at[i] <= at[i + 1]) continue;
    throw ArgumentError(StrCat(op, ": cu_seqlens[", i + 1, "]"),
                        StrCat("at least ", at[i]), StrCat(at[i + 1]));
  }
}

}  // namespace
}  // namespace sequences

at::Tensor HostLongs(const at::Tensor& x) {
  return x.to(at::kCPU).to(at::kLong).contiguous();
}

void CheckSequences(const char* op, const std::optional<at::Tensor>& lengths,
                    const std::optional<at::Tensor>& cu_seqlens,
                    const c10::SymInt& seq_len) {
  if (lengths.has_value() && HoldsData(*lengths)) {
    sequences::CheckLengths(op, *lengths,
                            seq_len.guard_int(__FILE__, __LINE__));
  }
  if (cu_seqlens.has_value() && !IsTraced(*cu_seqlens)) {
    sequences::CheckBounds(op, *cu_seqlens,
                           seq_len.guard_int(__FILE__, __LINE__));
  }
}

TokenSequences SequencesOf(const at::Tensor& tokens,
                           const std::optional<at::Tensor>& lengths,
                           const std::optional<at::Tensor>& cu_seqlens) {
  const c10::SymInt batch = tokens.sym_size(0), seq_len = tokens.sym_size(1);
  const at::Tensor places = Range(batch * seq_len, tokens);
  if (cu_seqlens.has_value()) {
    const at::Tensor bounds = cu_seqlens->to(at::kLong);
    const c10::SymInt count = bounds.sym_size(0) - 1;
    const at::Tensor end = bounds.narrow_symint(0, 1, count);
    return {count, bounds.narrow_symint(0, 0, count), end,
            at::searchsorted(end.contiguous(), places, /*out_int32=*/false,
                             /*right=*/true)};
  }
  const at::Tensor rows = Range(batch, tokens);
  const at::Tensor first = rows * seq_len;
  const at::Tensor end =
      lengths.has_value() ? first + lengths->to(at::kLong) : first + seq_len;
  return {batch, first, end,
          rows.unsqueeze(1)
              .expand_symint({batch, seq_len})
              .reshape_symint({batch * seq_len})};
}

}  // namespace tarn::ops
