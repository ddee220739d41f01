// The runtime half of a feed-forward part: one object per layer, which holds
// the part's weights and adds its result to the rows of a block. Virtual calls
// are made once per layer and piece of work, never in an inner loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "kernels/matmul/matmul.h"
#include "runtime/mixer/mixer.h"
#include "runtime/mixer/mixer_block.h"

namespace tarn {

/// Rows of one piece of a block, on their way through a part.
struct FeedForwardRows {
  Rows y;                        // what the part reads, after the norm
  Rows x;                        // what its result is added to
  Rows hidden;                   // [hidden_width()], free for use
  int64_t begin = 0, count = 0;  // rows of the block
};

/// Immutable once made: any number of blocks may use it.
class RuntimeFeedForward {
 public:
  virtual ~RuntimeFeedForward() = default;
  RuntimeFeedForward() = default;
  RuntimeFeedForward(const RuntimeFeedForward&) = delete;
  RuntimeFeedForward& operator=(const RuntimeFeedForward&) = delete;

  /// Bytes of all weights as held.
  virtual int64_t bytes() const = 0;
  /// Floats of a row of `hidden`, and those it uses of a row of the block's
  /// `in`, which the mixer no longer reads: a part with such floats cannot run
  /// before the mixer, as parallel_residual asks.
  virtual int64_t hidden_width() const = 0;
  virtual int64_t in_width() const { return 0; }

  /// x += part(y). The bits of a row depend on its sequence alone, not on the
  /// split into pieces and segments, the batch or the workers. A part with a
  /// state gets all rows of the segments as one piece.
  virtual void Run(MixerBlock& block, const FeedForwardRows& rows,
                   int64_t layer) const = 0;
  /// A step (runtime/mixer/step.h) has the bits of Run on the block's rows,
  /// kStepRows at most: two phases at least (0: the part takes no part, and the
  /// model's steps go layer by layer), the units of a phase, some of them, and
  /// where a unit begins to read. Each share has a copy of y. The last phase
  /// alone writes x, whose contents are replaced.
  virtual int phases() const { return 0; }
  virtual int64_t units(int /*phase*/) const { return 0; }
  virtual void Step(MixerBlock&, const FeedForwardRows&,
                    const StepShare&) const {}
  virtual const void* Reads(int /*phase*/, int64_t /*unit*/) const {
    return nullptr;
  }
};

/// One row of the runtime's registry.
struct RuntimeFeedForwardRow {
  const char* name;  // of a FeedForwardSpec
  /// tensors: those of the layer. Returns null for a part that does nothing.
  std::unique_ptr<RuntimeFeedForward> (*make)(const ModelConfig& layer,
                                              MixerTensors& tensors);
};

/// Adds a row. Throws ArgumentError for a name that is taken. Thread-safe; call
/// it before a model of such a part is opened.
void RegisterRuntimeFeedForward(const RuntimeFeedForwardRow& row);
/// The row of a name, or null. Thread-safe; rows live as long as the program.
const RuntimeFeedForwardRow* FindRuntimeFeedForward(const std::string& name);
std::vector<const char*> RuntimeFeedForwardNames();

/// The rows that every build has: plain.cc, channel_mix.cc, moe.cc.
std::vector<RuntimeFeedForwardRow> PlainFeedForwards();
std::vector<RuntimeFeedForwardRow> ChannelMixFeedForwards();
std::vector<RuntimeFeedForwardRow> MoeFeedForwards();

}  // namespace tarn
