// The runtime half of a mixer: one object per layer, which holds the layer's
// weights and maps rows to rows over the state. A layer runs it in three
// parts, in = W_in norm(x), out = Mix(in), x += W_out out; the two products
// belong to the stack, the middle to the mixer. A mixer without W_in gets in =
// norm(x), and what one without W_out gives is added as it is. Virtual calls
// are made once per layer and piece of work, never in an inner loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/mixer_spec.h"
#include "config/model_config.h"
#include "core/error.h"
#include "kernels/matmul/weight_matrix.h"
#include "runtime/mixer/cross.h"
#include "runtime/mixer/mixer_block.h"
#include "runtime/mixer/step.h"

namespace tarn {

/// Immutable once made: any number of blocks may use it.
class RuntimeMixer {
 public:
  virtual ~RuntimeMixer() = default;

  const WeightMatrix& in() const { return in_; }  // [in width, d_model]
  /// Numbers of a row of `in`; d_model where in() is empty.
  virtual int64_t in_width() const { return in_.outputs(); }
  const WeightMatrix& out() const { return out_; }  // [d_model, out width]
  /// Numbers of a row of `out`; d_model where out() is empty.
  virtual int64_t out_width() const { return out_.inputs(); }
  /// Bytes of all weights as held.
  virtual int64_t bytes() const { return in_.bytes() + out_.bytes(); }

  /// Floats of a row of `passed` that it makes or reads (MixerSpec::passed).
  virtual int64_t passed_width() const { return 0; }
  /// Floats that the mixer keeps in `extra` for each row, and floats of scratch
  /// that a worker needs for the segments of a block.
  virtual int64_t row_floats() const { return 0; }
  virtual int64_t WorkerFloats(const MixerBlock&) const { return 0; }

  /// Mixes the segments' rows in order, each over its state, which advances
  /// (the caller advances the position). The bits of a row depend on its
  /// sequence alone, not on the split into segments, the batch or the workers.
  virtual void Mix(MixerBlock& block, int64_t layer) const = 0;
  /// Mixes whole sequences at once, without states; rows see all of their
  /// segment. Only for mixers whose spec is bidirectional.
  virtual void MixSequences(MixerBlock& block) const;

  /// A step (runtime/mixer/step.h) has the bits of Mix on the block's rows,
  /// kStepRows at most: the phases between the two products (0: the mixer takes
  /// no part, and the model's steps go layer by layer), the units of a phase,
  /// some of them, and where a unit begins to read, so that it can be
  /// prefetched.
  virtual int phases() const { return 1; }
  virtual int64_t units(int phase) const = 0;
  virtual void Step(MixerBlock& block, const StepShare& share) const = 0;
  virtual const void* Reads(const MixerBlock&, int64_t /*layer*/, int /*phase*/,
                            int64_t /*unit*/) const {
    return nullptr;
  }

 protected:
  WeightMatrix in_, out_;
};

/// The tensors of one mixer by their names in MixerSpec::weights, and the
/// memory that holds its matrices.
class MixerTensors {
 public:
  virtual ~MixerTensors() = default;
  virtual std::vector<float> Vector(const std::string& name) = 0;
  /// The matrices `names` below one another (with name.bias if `biases`), as
  /// one matrix that a step reads: [sum of rows, inputs].
  virtual WeightMatrix Stack(const std::vector<std::string>& names,
                             const std::vector<int64_t>& rows, int64_t inputs,
                             bool biases) = 0;
  /// The matrices of a tensor [count, outputs, inputs] or [count * outputs,
  /// inputs].
  virtual std::vector<WeightMatrix> Matrices(const std::string& name,
                                             int64_t count, int64_t outputs,
                                             int64_t inputs) = 0;
  /// The layer's number in its stack.
  virtual int64_t layer() const = 0;
  /// Vectors by name that layers leave for the later ones of their stack.
  virtual std::map<std::string, std::vector<float>>& passed() = 0;
};

/// One row of the runtime's registry.
struct RuntimeMixerRow {
  const char* name;  // of a MixerSpec
  /// Nothing if this build can run such a layer, else what it can run.
  std::optional<Error> (*check)(const ModelConfig& layer);
  std::unique_ptr<RuntimeMixer> (*make)(const ModelConfig& layer,
                                        MixerTensors& tensors);
  /// The mixer as a decoder's cross attention; null where it cannot be that.
  std::unique_ptr<RuntimeCross> (*make_cross)(const ModelConfig& layer) =
      nullptr;
};

/// Adds a row. Throws ArgumentError for a name that is taken. Thread-safe; call
/// it before a model of such a mixer is opened.
void RegisterRuntimeMixer(const RuntimeMixerRow& row);
/// The row of a name, or null. Thread-safe; rows live as long as the program.
const RuntimeMixerRow* FindRuntimeMixer(const std::string& name);
std::vector<const char*> RuntimeMixerNames();

/// The mixer of a layer that the rows of its mixers have checked.
std::unique_ptr<RuntimeMixer> MakeRuntimeMixer(const ModelConfig& layer,
                                               MixerTensors& tensors);

/// The rows that every build has: what the folders of src/mixers define, listed
/// by the build.
std::vector<RuntimeMixerRow> BuiltinRuntimeMixers();

}  // namespace tarn
