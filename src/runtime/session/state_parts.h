// The parts of a state's file: which tensors there are, and where their floats
// are in a state. Private to state_write.cc and state_read.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/text.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "runtime/model/impl.h"

namespace tarn::state_file {

inline constexpr char kFormat[] = "tarn-state";
inline constexpr int64_t kVersion = 3;

/// What a state holds besides its tensors.
struct Facts {
  int64_t position = 0;
  int64_t source_len = -1;  // -1: no source
  bool has_logits = false;
  CacheType cache = CacheType::kF32;

  /// Begins the hash of the contents.
  uint64_t Hash(uint64_t fingerprint) const {
    uint64_t hash = Mix(fingerprint ^ static_cast<uint64_t>(position));
    hash = Mix(hash ^ static_cast<uint64_t>(source_len));
    return Mix(hash ^ (has_logits ? 1 : 0) ^
               (static_cast<uint64_t>(cache) << 1));
  }
};

/// A tensor of the file and where its floats are in a state: runs of one
/// length, one after the other. Float: const float to save, float to load.
template <typename Float>
struct Part {
  std::string name;
  std::vector<int64_t> shape;
  float initial = 0.0f;  // allowed in the file even if not finite
  std::vector<Float*> runs;
  CacheType type = CacheType::kF32;
  int64_t numbers = 0;  // of a rounded row, whose words are the last axis

  /// Of the tensor in the file: that of `shape`, or the bytes of the words of
  /// cache_rows.h, as in memory.
  std::vector<int64_t> stored_shape() const {
    std::vector<int64_t> stored = shape;
    if (numbers > 0) stored.back() *= static_cast<int64_t>(sizeof(float));
    return stored;
  }

  size_t floats() const {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    return count;
  }
  size_t run_floats() const { return floats() / runs.size(); }
};

/// Names and shapes only: a file is compared with them before memory is taken.
/// A tensor of a layer is layers.{i}.{name}; a growing tensor has its tokens
/// after its first axis, as in memory.
template <typename Float>
std::vector<Part<Float>> Shapes(const Insides::ModelImpl& model,
                                const Facts& facts) {
  const StateLayout& layout = *model.layout;
  std::vector<Part<Float>> parts;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (const StatePlace& place : layout.layers[i]) {
      std::vector<int64_t> shape = place.tensor.shape;
      if (place.tensor.grows) shape.insert(shape.begin() + 1, facts.position);
      if (place.numbers > 0) {
        shape.back() = CacheRowWords(place.type, place.numbers);
      }
      parts.push_back({StrCat("layers.", i, ".", place.tensor.name),
                       std::move(shape),
                       place.tensor.initial,
                       {},
                       place.type,
                       place.numbers});
    }
  }
  if (facts.has_logits) parts.push_back({"logits", {layout.outputs}, 0.0f, {}});
  if (facts.source_len >= 0) {
    parts.push_back({"memory", model.cross->Shape(facts.source_len), 0.0f, {}});
  }
  return parts;
}

/// Fills in the runs of Shapes(). `memory`: the block of a CrossMemory.
template <typename Float, typename Sequence>
void Locate(Sequence& sequence, Float* memory,
            std::vector<Part<Float>>& parts) {
  const StateLayout& layout = sequence.layout();
  size_t next = 0;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (size_t t = 0; t < layout.layers[i].size(); ++t, ++next) {
      const int64_t layer = static_cast<int64_t>(i);
      const int64_t tensor = static_cast<int64_t>(t);
      for (int64_t row = 0; row < layout.layers[i][t].rows; ++row) {
        parts[next].runs.push_back(row == 0 ? sequence.Tensor(layer, tensor)
                                            : sequence.Row(layer, tensor, row));
      }
    }
  }
  for (; next < parts.size(); ++next) {
    parts[next].runs.push_back(parts[next].name == "logits" ? sequence.logits()
                                                            : memory);
  }
}

/// In a form that compilers turn into vectors: no branch on a number.
inline bool AllFinite(const float* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  constexpr size_t kBlock = 1024;
  for (size_t i = 0; i < count; i += kBlock) {
    uint32_t bad = 0;
    for (size_t j = i; j < std::min(count, i + kBlock); ++j) {
      uint32_t bits;
      std::memcpy(&bits, values + j, sizeof(bits));
      bad |= static_cast<uint32_t>((bits & kExponent) == kExponent);
    }
    if (bad != 0) return false;
  }
  return true;
}

/// The first of `count` numbers that is neither finite nor `initial`, which a
/// part begins with; -1 when there is none.
inline int64_t FirstNotFinite(const float* values, size_t count,
                              float initial) {
  if (AllFinite(values, count)) return -1;
  const float* end = values + count;
  const float* found = std::find_if(values, end, [initial](float x) {
    return !std::isfinite(x) && x != initial;
  });
  return found == end ? -1 : found - values;
}

/// A number of a part that may not be in a file: where it is among all numbers,
/// -1: there is none; and the number.
struct BadNumber {
  int64_t at = -1;
  float value = 0.0f;
};

/// The first bad number of a run of a part, before which the part has `first`
/// floats.
template <typename Float>
BadNumber FirstBad(const Part<Float>& part, const float* run, size_t first) {
  if (part.numbers == 0) {
    const int64_t at = FirstNotFinite(run, part.run_floats(), part.initial);
    if (at < 0) return {};
    return {static_cast<int64_t>(first) + at, run[at]};
  }
  const int64_t words = part.shape.back();
  std::vector<float> row(static_cast<size_t>(part.numbers));
  const int64_t rows = static_cast<int64_t>(part.run_floats()) / words;
  for (int64_t i = 0; i < rows; ++i) {
    LoadCacheRow(part.type, run + i * words, part.numbers, row.data());
    const int64_t at = FirstNotFinite(row.data(), row.size(), part.initial);
    if (at < 0) continue;
    const int64_t before = static_cast<int64_t>(first) / words + i;
    return {before * part.numbers + at, row[static_cast<size_t>(at)]};
  }
  return {};
}

/// The name of a fixed tensor, or "logits", in which a mark holds a number that
/// may not be in a file; "" where there is none.
std::string BadFixed(const StateLayout& layout, const StateMark& mark);

inline std::string_view BytesOf(const float* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(float)};
}

/// Extends `hash` by the floats of a part, run by run, as if they were dense.
/// f(run, first): called with each run before it is hashed, and with the number
/// of floats before it in the part.
template <typename Float, typename F>
uint64_t HashPart(const Part<Float>& part, uint64_t hash, const F& f) {
  const size_t count = part.run_floats();
  WideHash bytes;
  size_t first = 0;
  for (Float* run : part.runs) {
    f(run, first);
    bytes.Add(BytesOf(run, count));
    first += count;
  }
  return Mix(hash ^ bytes.Finish());
}

}  // namespace tarn::state_file
