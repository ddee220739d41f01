#include "torch_nn/layers/positions.h"

#include <algorithm>
#include <vector>

#include "kernels/positions/positions.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/positions.h"

namespace tarn::nn {

at::Tensor SinusoidalTable(int64_t seq_len, int64_t width,
                           const at::Tensor& like, int64_t first) {
  at::Tensor table = torch::empty({seq_len, width}, torch::kFloat32);
  float* rows = table.data_ptr<float>();
  for (int64_t t = 0; t < seq_len; ++t) {
    SinusoidalRow(first + t, width, rows + t * width);
  }
  return table.to(like.options());
}

namespace {

RotaryTable TableOf(int64_t width, double base, const RotaryScaling& scaling,
                    int64_t seq_len, const at::Tensor& like, int64_t first) {
  const int64_t half = width / 2;
  std::vector<double> frequencies(static_cast<size_t>(half));
  RotaryFrequencies(width, base, scaling, frequencies.data());
  at::Tensor cos = torch::empty({seq_len, 1, half}, torch::kFloat32);
  at::Tensor sin = torch::empty({seq_len, 1, half}, torch::kFloat32);
  for (int64_t t = 0; t < seq_len; ++t) {
    RotaryRow(first + t, width, frequencies.data(),
              cos.data_ptr<float>() + t * half,
              sin.data_ptr<float>() + t * half, RotaryMagnitude(scaling));
  }
  return {cos.to(like.options()), sin.to(like.options())};
}

}  // namespace

RotaryTable MakeRotaryTable(const ModelConfig& config, int64_t seq_len,
                            const at::Tensor& like, int64_t first) {
  if (config.positions != Positions::kRotary) return {};
  const int64_t width = config.RotaryWidth();
  RotaryTable table = TableOf(width, config.rotary_base, config.Scaling(),
                              seq_len, like, first);
  for (const double base : config.rotary_bases) {
    table.own.push_back(TableOf(width, base, {}, seq_len, like, first));
  }
  return table;
}

namespace {

// Rows [first, first + count) of a table.
struct RowRange {
  int64_t first, count;
  bool Holds(const RowRange& other) const {
    return count > 0 && first <= other.first &&
           other.first + other.count <= first + count;
  }
};

// Rows to make for a table that has `have` and needs `want`: at least twice as
// many where it grows, so that sequences that grow token by token cost O(1) a
// row.
int64_t RowsToMake(const RowRange& have, const RowRange& want) {
  const bool grows = have.first == want.first;
  return grows ? std::max(want.count, 2 * have.count) : want.count;
}

// Rows of a table that can be used on `device`: none if it is on another, so
// that it is made there once and not copied at every call.
int64_t RowsOn(at::Device device, const at::Tensor& table) {
  return table.defined() && table.device() == device ? table.size(0) : 0;
}

// The options of a kept table: float32, whatever the dtype of `like`.
at::Tensor InFloat32(const at::Tensor& like) {
  return torch::empty({0}, like.options().dtype(torch::kFloat32));
}

// Rows a table needs for these places.
int64_t RowsFor(const at::Tensor& places) {
  return places.numel() == 0 ? 0 : places.max().item<int64_t>() + 1;
}

}  // namespace

at::Tensor PositionTables::Sinusoidal(int64_t seq_len, int64_t width,
                                      const at::Tensor& like, int64_t first) {
  const std::lock_guard lock(mutex_);
  const RowRange have = {sinusoidal_first_, RowsOn(like.device(), sinusoidal_)};
  const RowRange want = {first, seq_len};
  if (!have.Holds(want)) {
    sinusoidal_ =
        SinusoidalTable(RowsToMake(have, want), width, InFloat32(like), first);
    sinusoidal_first_ = first;
  }
  return sinusoidal_.narrow(0, first - sinusoidal_first_, seq_len)
      .to(like.options());
}

RotaryTable PositionTables::Rotary(const ModelConfig& config, int64_t seq_len,
                                   const at::Tensor& like, int64_t first) {
  if (config.positions != Positions::kRotary) return {};
  const std::lock_guard lock(mutex_);
  const RowRange have = {rotary_first_, RowsOn(like.device(), rotary_.cos)};
  const RowRange want = {first, seq_len};
  if (!have.Holds(want)) {
    rotary_ =
        MakeRotaryTable(config, RowsToMake(have, want), InFloat32(like), first);
    rotary_first_ = first;
  }
  const int64_t row = first - rotary_first_;
  return rotary_.Each([&](const at::Tensor& rows) {
    return rows.narrow(0, row, seq_len).to(like.options());
  });
}

at::Tensor PositionTables::SinusoidalAt(const at::Tensor& places, int64_t width,
                                        const at::Tensor& like) {
  return Sinusoidal(RowsFor(places), width, like)
      .index({places.to(like.device())});
}

RotaryTable PositionTables::RotaryAt(const ModelConfig& config,
                                     const at::Tensor& places,
                                     const at::Tensor& like) {
  const RotaryTable table = Rotary(config, RowsFor(places), like);
  if (!table.defined()) return table;
  const at::Tensor rows = places.to(like.device());
  return table.Each([&](const at::Tensor& all) { return all.index({rows}); });
}

at::Tensor PlacesAfter(const at::Tensor& lengths, int64_t seq_len) {
  return lengths.unsqueeze(1) +
         torch::arange(seq_len, lengths.options()).unsqueeze(0);
}

at::Tensor Rotate(const at::Tensor& heads, const RotaryTable& table) {
  if (!table.defined()) return heads;
  // Under autocast the heads are narrower than the table: they are rotated in
  // float32 and keep their dtype, which is also that of the values.
  return ops::RotateHeads(heads, table.cos, table.sin).to(heads.scalar_type());
}

at::Tensor LearnedRows(const char* where, int64_t seq_len,
                       int64_t max_positions, const at::Tensor& like,
                       const at::Tensor& places, int64_t first) {
  const int64_t count = places.defined() ? RowsFor(places)
                        : seq_len == 0   ? 0
                                         : first + seq_len;
  if (count > max_positions) {
    throw ArgumentError(StrCat(where, ": tokens"),
                        StrCat("at most max_positions = ", max_positions,
                               " positions, those before included"),
                        StrCat(count));
  }
  if (places.defined()) return places.to(like.device());
  return torch::arange(first, first + seq_len,
                       like.options().dtype(torch::kInt64));
}

}  // namespace tarn::nn
