// The runtime half of a mixer as cross attention: what one head keeps of a
// source that was read once, and how a decoder's queries read it. It holds no
// weights: projections belong to the stack.
#pragma once

#include <cstdint>

#include "runtime/mixer/mixer_block.h"

namespace tarn {

/// Immutable once made, thread-safe; calls allocate nothing.
class RuntimeCross {
 public:
  virtual ~RuntimeCross() = default;

  /// Floats that a head keeps of a source of this length: constant, or growing
  /// by as much with every token.
  virtual int64_t HeadFloats(int64_t source_len) const = 0;
  /// Floats of scratch for Fill and Read.
  virtual int64_t FillFloats() const = 0;
  virtual int64_t ReadFloats(int64_t source_len) const = 0;
  /// Rows of keys or features that a query reads: its cost.
  virtual int64_t RowsRead(int64_t source_len) const = 0;

  /// Fills the memory [HeadFloats] of one head from keys and values of a source
  /// of at least one token. Without tokens the memory stays zero.
  virtual void Fill(HeadRows keys, HeadRows values, float* memory,
                    float* scratch) const = 0;
  /// out[i] for queries[i]; each row's bits depend on it and the memory alone.
  /// A source without tokens gives zeros.
  virtual void Read(const float* memory, int64_t source_len, HeadRows queries,
                    HeadRows out, float* scratch) const = 0;
};

}  // namespace tarn
