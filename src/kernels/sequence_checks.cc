#include "kernels/sequence_checks.h"

#include <string>

#include "core/error.h"

namespace tarn {

void CheckSequences(const char* op, const char* name, const TensorView& view,
                    const int64_t* lengths, const int64_t* cu_seqlens,
                    int64_t sequences, bool readable) {
  const int64_t batch = view.size[0], seq_len = view.size[1];
  if (lengths != nullptr && cu_seqlens != nullptr) {
    throw ArgumentError(StrCat(op, ": lengths"), "no lengths with cu_seqlens",
                        "both");
  }
  for (int64_t b = 0; lengths != nullptr && readable && b < batch; ++b) {
    if (lengths[b] < 0 || lengths[b] > seq_len) {
      throw ArgumentError(StrCat(op, ": lengths[", b, "]"),
                          StrCat("0 to ", seq_len), StrCat(lengths[b]));
    }
  }
  if (cu_seqlens == nullptr) return;
  if (batch != 1) {
    throw ShapeError(StrCat(op, ": ", name, " (with cu_seqlens)"), "B = 1",
                     ShapeText(view.Shape()));
  }
  if (!readable && sequences >= 0) return;
  if (sequences < 0 || cu_seqlens[0] != 0 || cu_seqlens[sequences] != seq_len) {
    throw ArgumentError(StrCat(op, ": cu_seqlens"), StrCat("0, ..., ", seq_len),
                        sequences < 0 ? std::string("nothing")
                                      : StrCat(cu_seqlens[0], ", ..., ",
                                               cu_seqlens[sequences]));
  }
  for (int64_t s = 0; s < sequences; ++s) {
    if (cu_seqlens[s] > cu_seqlens[s + 1]) {
      throw ArgumentError(StrCat(op, ": cu_seqlens[", s + 1, "]"),
                          StrCat("at least ", cu_seqlens[s]),
                          StrCat(cu_seqlens[s + 1]));
    }
  }
}

}  // namespace tarn
