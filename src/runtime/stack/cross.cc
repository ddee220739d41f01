#include "runtime/stack/cross.h"

#include <algorithm>

#include "config/layer_counts.h"

namespace tarn {
namespace {

constexpr int64_t kFloatSize = sizeof(float);

std::unique_ptr<const RuntimeCross> CrossHalf(const ModelConfig& config) {
  const ModelConfig view = CrossView(config);
  // CheckSupported has found the row.
  return FindRuntimeMixer(Name(view.attention))->make_cross(view);
}

// The longest source that a segment of the block reads.
int64_t LongestSource(const MixerBlock& block) {
  int64_t longest = 0;
  for (const Segment& s : block.segments) {
    longest = std::max(longest, s.state->memory->source_len());
  }
  return longest;
}

}  // namespace

Cross::Cross(const ModelConfig& config)
    : layers_(DecoderLayers(config)),
      heads_(config.n_heads),
      d_key_(config.d_key),
      d_value_(config.d_value),
      half_(CrossHalf(config)) {}

int64_t Cross::FixedBytes() const {
  return layers_ * heads_ * half_->HeadFloats(0) * kFloatSize;
}

int64_t Cross::BytesPerToken() const {
  return layers_ * heads_ * (half_->HeadFloats(1) - half_->HeadFloats(0)) *
         kFloatSize;
}

std::vector<int64_t> Cross::Shape(int64_t source_len) const {
  return {layers_, heads_, half_->HeadFloats(source_len)};
}

std::shared_ptr<CrossMemory> Cross::NewMemory(int64_t source_len) const {
  return std::make_shared<CrossMemory>(
      layers_, heads_, half_->HeadFloats(source_len), source_len);
}

int64_t Cross::ReadFloats(const MixerBlock& block) const {
  return half_->ReadFloats(LongestSource(block));
}

void Cross::Fill(MixerBlock& block, const Segment& segment, int64_t layer,
                 CrossMemory& memory) const {
  if (segment.count == 0) return;
  const int64_t keys_at = heads_ * d_key_, values_at = 2 * keys_at;
  block.ForTasks(
      heads_, segment.count * d_key_ * d_value_ / 16 + 100,
      [&](int64_t head, int worker) {
        float* row = block.in[segment.row];
        half_->Fill(
            {row + keys_at + head * d_key_, block.in.stride, segment.count},
            {row + values_at + head * d_value_, block.in.stride, segment.count},
            memory.Head(layer, head), block.Scratch(worker));
      });
}

void Cross::Read(MixerBlock& block, int64_t layer) const {
  const int64_t sequences = static_cast<int64_t>(block.segments.size());
  const int64_t width = half_->RowsRead(LongestSource(block));
  const int64_t rows_each = (block.rows() + sequences - 1) / sequences;
  block.ForTasks(
      sequences * heads_, rows_each * (width * (d_key_ + d_value_) / 16 + 100),
      [&](int64_t task, int worker) {
        ReadHead(block, block.segments[static_cast<size_t>(task / heads_)],
                 layer, task % heads_, worker);
      });
}

void Cross::ReadHead(MixerBlock& block, const Segment& segment, int64_t layer,
                     int64_t head, int worker) const {
  const CrossMemory& memory = *segment.state->memory;
  half_->Read(
      memory.Head(layer, head), memory.source_len(),
      {block.in[segment.row] + head * d_key_, block.in.stride, segment.count},
      {block.out[segment.row] + head * d_value_, block.out.stride,
       segment.count},
      block.Scratch(worker));
}

}  // namespace tarn
