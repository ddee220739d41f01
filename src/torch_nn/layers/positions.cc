#include "torch_nn/layers/positions.h"

#include <algorithm>

#include "kernels/positions/positions.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/positions.h"

namespace tarn::nn {

at::Tensor SinusoidalTable(int64_t seq_len, int64_t width,
                           const at::Tensor& like) {
  at::Tensor table = torch::empty({seq_len, width}, torch::kFloat32);
  float* rows = table.data_ptr<float>();
  for (int64_t t = 0; t < seq_len; ++t) {
    SinusoidalRow(t, width, rows + t * width);
  }
  return table.to(like.options());
}

RotaryTable MakeRotaryTable(const ModelConfig& config, int64_t seq_len,
                            const at::Tensor& like) {
  if (config.positions != Positions::kRotary) return {};
  const int64_t half = config.d_key / 2;
  at::Tensor cos = torch::empty({seq_len, 1, half}, torch::kFloat32);
  at::Tensor sin = torch::empty({seq_len, 1, half}, torch::kFloat32);
  for (int64_t t = 0; t < seq_len; ++t) {
    RotaryRow(t, config.d_key, config.rotary_base,
              cos.data_ptr<float>() + t * half,
              sin.data_ptr<float>() + t * half);
  }
  return {cos.to(like.options()), sin.to(like.options())};
}

namespace {

// Rows to make for a table that has `have` and needs `want`: at least twice as
// many, so that sequences that grow token by token cost O(1) a row.
int64_t RowsToMake(int64_t have, int64_t want) {
  return std::max(want, 2 * have);
}

// Rows of a table that can be used on `device`: none if it lies on another, so
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
                                      const at::Tensor& like) {
  const std::lock_guard lock(mutex_);
  const int64_t have = RowsOn(like.device(), sinusoidal_);
  if (have < seq_len || have == 0) {
    sinusoidal_ = SinusoidalTable(RowsToMake(have, seq_len), width,
                                  InFloat32(like));
  }
  return sinusoidal_.narrow(0, 0, seq_len).to(like.options());
}

RotaryTable PositionTables::Rotary(const ModelConfig& config, int64_t seq_len,
                                   const at::Tensor& like) {
  if (config.positions != Positions::kRotary) return {};
  const std::lock_guard lock(mutex_);
  const int64_t have = RowsOn(like.device(), rotary_.cos);
  if (have < seq_len || have == 0) {
    rotary_ =
        MakeRotaryTable(config, RowsToMake(have, seq_len), InFloat32(like));
  }
  return {rotary_.cos.narrow(0, 0, seq_len).to(like.options()),
          rotary_.sin.narrow(0, 0, seq_len).to(like.options())};
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
  return {table.cos.index({rows}), table.sin.index({rows})};
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

at::Tensor LearnedRows(int64_t seq_len, int64_t max_positions,
                       const at::Tensor& like) {
  return torch::arange(seq_len, like.options().dtype(torch::kInt64))
      .clamp_max(max_positions - 1);
}

}  // namespace tarn::nn
