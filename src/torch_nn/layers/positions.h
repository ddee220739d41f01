// Position information as tensors: the sinusoidal table, the rotary table and
// the rotation itself. Values come from kernels/positions/positions.h, so that
// the runtime holds the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "config/model_config.h"
#include "core/fork.h"

namespace tarn::nn {

/// Rows first .. first + seq_len - 1 of the sinusoidal table: [seq_len, width],
/// with the dtype and device of `like`. O(seq_len width) time.
at::Tensor SinusoidalTable(int64_t seq_len, int64_t width,
                           const at::Tensor& like, int64_t first = 0);

/// Cosines and sines of the rotary angles, [seq_len, 1, d_key / 2] each, or
/// [B, seq_len, 1, d_key / 2] where the sequences are at different positions:
/// the axis of size 1 broadcasts over heads. Undefined: "no rotation".
struct RotaryTable {
  at::Tensor cos, sin;
  std::vector<RotaryTable> own = {};  // of config.rotary_bases
  bool defined() const { return cos.defined(); }
  int64_t seq_len() const { return cos.size(-3); }
  /// f(tensor) of all of them.
  template <typename F>
  RotaryTable Each(const F& f) const {
    RotaryTable table = {f(cos), f(sin)};
    for (const RotaryTable& one : own) table.own.push_back(one.Each(f));
    return table;
  }
  /// This table, number 0, or one of `own`.
  const RotaryTable& At(int64_t table) const {
    return table == 0 ? *this : own[static_cast<size_t>(table - 1)];
  }
};

/// Table for tokens first .. first + seq_len - 1, dtype and device of `like`;
/// an undefined table when the config's positions are not rotary.
RotaryTable MakeRotaryTable(const ModelConfig& config, int64_t seq_len,
                            const at::Tensor& like, int64_t first = 0);

/// The tables of one module, kept between calls and grown for a longer
/// sequence: a row costs width sines and is the same in every table.
/// Thread-safe. Holds the longest table requested so far; of sequences that are
/// cut over ranks, the rows of the piece that is here and no others.
class PositionTables {
 public:
  /// Return what SinusoidalTable and MakeRotaryTable do, for one width and one
  /// config each.
  at::Tensor Sinusoidal(int64_t seq_len, int64_t width, const at::Tensor& like,
                        int64_t first = 0);
  RotaryTable Rotary(const ModelConfig& config, int64_t seq_len,
                     const at::Tensor& like, int64_t first = 0);
  /// The rows of tokens at `places` [B, T] int64 on the CPU, 0 or more:
  /// [B, T, width], and tables [B, T, 1, d_key / 2].
  at::Tensor SinusoidalAt(const at::Tensor& places, int64_t width,
                          const at::Tensor& like);
  RotaryTable RotaryAt(const ModelConfig& config, const at::Tensor& places,
                       const at::Tensor& like);

 private:
  ForkHeldMutex mutex_;
  at::Tensor sinusoidal_;  // [rows, width] float32, on the last caller's device
  RotaryTable rotary_;     // [rows, 1, d_key / 2] each
  int64_t sinusoidal_first_ = 0, rotary_first_ = 0;  // of the rows above
};

/// Rotates heads [B, T, H, K] by the table of T tokens, halves form (Su et al.
/// 2021): (x_i, x_{i+K/2}) -> (x_i cos - x_{i+K/2} sin, x_{i+K/2} cos + x_i
/// sin). Keeps the dtype of `heads`; returns `heads` for an undefined table.
at::Tensor Rotate(const at::Tensor& heads, const RotaryTable& table);

/// Places [B, T] of T tokens that follow lengths [B] int64 earlier ones.
at::Tensor PlacesAfter(const at::Tensor& lengths, int64_t seq_len);

/// Row of the learned table for each token, int64 on the device of `like`:
/// `places` [B, seq_len] (int64 on the CPU), or first, first + 1, ...
/// [seq_len] where they are undefined. Throws ArgumentError naming `where` for
/// a place of max_positions or more.
at::Tensor LearnedRows(const char* where, int64_t seq_len,
                       int64_t max_positions, const at::Tensor& like,
                       const at::Tensor& places = {}, int64_t first = 0);

}  // namespace tarn::nn
