// Bounds of sizes in configurations: of the keys of every model, and for the
// keys that parts of a model register.
#pragma once

#include <cstdint>

namespace tarn {

// No product of sizes overflows int64: the largest is that of an encoder and a
// decoder stack, 12 * 2^12 layers * 2^12 heads * 2^16 * 2^16 < 2^60;
// with three parallel mixers a layer it is below 2^62.
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 16;
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = int64_t{1} << 12;
inline constexpr int64_t kMaxHeads = int64_t{1} << 12;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;
inline constexpr int64_t kMaxCount = int64_t{1} << 20;  // of classes, updates
inline constexpr int64_t kMaxRounds = int64_t{1} << 10;
/// The smallest normal float: an eps lives in float32 kernels.
inline constexpr double kMinEps = 0x1p-126;

}  // namespace tarn
