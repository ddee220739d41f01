// What a mixer carries from token to token, as a value: an ordered map from
// names to tensors, described by the mixer's StateSpec. Copying a state copies
// one handle per tensor, and no call changes a tensor that a state holds. So a
// fork is a copy, a beam is a reordering, and neither changes its source.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// No sequence is as long as this; sums of such lengths do not overflow.
inline constexpr int64_t kMaxLength = int64_t{1} << 40;

/// One tensor of a state: [B, shape...], or [B, tokens, shape...] where it
/// grows. A tensor that grows is a cache: it has the dtype of the mixer's
/// weights and is aligned at the end: of t rows the last min(t, lengths[b]) are
/// tokens of sequence b. Every other float32 tensor of the spec is a sum: it
/// stays float32 under 16-bit weights and is float64 under float64 ones.
struct StateSlot {
  StateTensor spec;
  /// bool [B, tokens], true where a row counts (wherever in the row); undefined
  /// where all do. Memories only.
  bool mask = false;
};

/// The form of the states of one mixer; everything that is done with a state
/// follows from it.
struct StateForm {
  AttentionKind kind{};
  std::vector<StateSlot> slots;
  int64_t window = kMaxLength;      // tokens that a cache keeps at most
  int64_t max_length = kMaxLength;  // tokens that a sequence may have
};

/// The state of one mixer for B sequences, made by Mixer::InitialState or, for
/// cross attention, Mixer::MemoryState.
class MixerState {
 public:
  MixerState() = default;  // belongs to no mixer
  /// B sequences that have seen nothing; `like`: dtype and device of the
  /// mixer's weights.
  MixerState(std::shared_ptr<const StateForm> form, int64_t batch,
             const torch::TensorOptions& like);

  /// The tensors of a form, in its order.
  MixerState(std::shared_ptr<const StateForm> form,
             std::vector<torch::Tensor> tensors, torch::Tensor lengths)
      : lengths(std::move(lengths)),
        form_(std::move(form)),
        tensors_(std::move(tensors)) {}

  const StateForm& form() const { return *form_; }
  /// Whether it has a tensor of that name, defined or not.
  bool Has(std::string_view name) const { return Find(name) >= 0; }
  /// The tensor of that name. Throws ArgumentError, listing the names, where
  /// there is none.
  const torch::Tensor& operator[](std::string_view name) const;
  torch::Tensor& operator[](std::string_view name);
  /// All tensors, in the order of the form.
  const std::vector<torch::Tensor>& tensors() const { return tensors_; }
  std::vector<torch::Tensor>& tensors() { return tensors_; }

  torch::Tensor lengths;  // [B] int64 on the CPU: tokens taken in, or in memory
  int64_t batch() const { return lengths.defined() ? lengths.size(0) : 0; }

  /// Row i of the result is row rows[i] of this state. rows int64, any length,
  /// repeats allowed. Throws ArgumentError for a row that is not there.
  MixerState IndexSelect(const torch::Tensor& rows) const;
  /// The state with rows selected by `which` [B] bool reset to the beginning.
  MixerState Reset(const torch::Tensor& which) const;
  /// Bytes of all its tensors, lengths among them.
  int64_t bytes() const;
  /// True for the same mixer with the same numbers; NaN equals nothing.
  bool operator==(const MixerState& other) const;

 private:
  int64_t Find(std::string_view name) const;  // -1: none
  size_t At(std::string_view name) const;

  std::shared_ptr<const StateForm> form_ = std::make_shared<StateForm>();
  std::vector<torch::Tensor> tensors_;
};

}  // namespace tarn::nn
