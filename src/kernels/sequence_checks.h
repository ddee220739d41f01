// The sequences of a call: the rows of a batch, each with its length, or
// several packed one after another along T.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace tarn {

/// Throws ShapeError or ArgumentError unless lengths [B] (or null) are 0 to T,
/// or cu_seqlens [sequences + 1] (or null) rise from 0 to T with B = 1. Tokens
/// are those of `view` [B, T, ...], which messages of `op` call `name`.
/// readable: whether the host can read them; values on a device are not
/// checked.
void CheckSequences(const char* op, const char* name, const TensorView& view,
                    const int64_t* lengths, const int64_t* cu_seqlens,
                    int64_t sequences, bool readable = true);

}  // namespace tarn
