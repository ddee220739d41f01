// The extra prediction head of an open model (multi-token prediction), which
// drafts tokens for speculative decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/model/model.h"
#include "runtime/stack/mtp_forward.h"
#include "runtime/state/sequence_state.h"

namespace tarn {

/// Belongs to a model. Immutable once loaded: any number of threads may use it
/// with states of their own (calls take turns with the model's).
class MtpHead {
 public:
  /// The head of a model, read from its files when it is first asked for and
  /// kept until the model is closed; its matrices are held in the model's
  /// format. Throws ArgumentError for a model without such a head, FormatError
  /// or IoError where its files can no longer be read or are others than when
  /// it was opened.
  static const MtpHead& Of(const Model& model);

  struct Parts;  // private to mtp_head.cc
  explicit MtpHead(std::unique_ptr<Parts> parts);
  MtpHead(const MtpHead&) = delete;
  MtpHead& operator=(const MtpHead&) = delete;
  ~MtpHead();

  int64_t d_model() const;
  int64_t n_outputs() const;     // floats in a row of logits
  int64_t weight_bytes() const;  // without what the model holds anyway
  /// A state without rows: keys and values of the head's layer. All of it
  /// grows, so that a smaller `position` takes rows back.
  SequenceState NewState() const;
  /// MtpForward::Run; `state` grows by the tokens. Throws std::bad_alloc.
  void Run(SequenceState& state, std::span<const int32_t> tokens,
           const float* hidden, float* logits, float* out) const;

 private:
  const std::unique_ptr<Parts> parts_;
};

}  // namespace tarn
