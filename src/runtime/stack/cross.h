// Cross attention of a decoder: each layer's queries read what was kept of a
// source, which all layers project to keys and values once, in the encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/model_config.h"
#include "runtime/mixer/mixer.h"
#include "runtime/state/cross_memory.h"

namespace tarn {

/// The memories of a sequence-to-sequence model: their sizes, and how they are
/// filled and read, one task for each head. Immutable, thread-safe.
class Cross {
 public:
  /// config: CheckSupported.
  explicit Cross(const ModelConfig& config);

  /// Bytes of a memory of any length, and those of one more source token.
  int64_t FixedBytes() const;
  int64_t BytesPerToken() const;
  /// [layers, heads, floats of a head].
  std::vector<int64_t> Shape(int64_t source_len) const;
  std::shared_ptr<CrossMemory> NewMemory(int64_t source_len) const;

  /// Floats of scratch that each worker needs for Fill, and for Read of the
  /// block's segments.
  int64_t FillFloats() const { return half_->FillFloats(); }
  int64_t ReadFloats(const MixerBlock& block) const;
  /// Fills one layer's part of a memory from a segment's rows of `in`: room for
  /// queries [H K], which are not read, keys [H K], values [H V].
  void Fill(MixerBlock& block, const Segment& segment, int64_t layer,
            CrossMemory& memory) const;
  /// The queries [H K] in `in` read their segments' memories into `out`.
  void Read(MixerBlock& block, int64_t layer) const;
  /// One head of one segment's.
  void ReadHead(MixerBlock& block, const Segment& segment, int64_t layer,
                int64_t head, int worker) const;
  int64_t heads() const { return heads_; }

 private:
  const int64_t layers_, heads_, d_key_, d_value_;
  const std::unique_ptr<const RuntimeCross> half_;
};

}  // namespace tarn
