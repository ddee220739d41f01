// State, over the sequence of its layers' tensors.
#include <utility>

#include "runtime/model/impl.h"

namespace tarn {

State::State(const Model& model) {
  if (model.impl_ == nullptr) {
    throw ArgumentError("State: model", "an open model", "one moved from");
  }
  if (model.config().arch == Arch::kEncoder) {
    throw ArgumentError("State: model", "a model that generates",
                        "a classifier");
  }
  impl_ = std::make_unique<Impl>(SequenceState(model.impl_->layout));
}

void Model::PrepareState() const {
  if (impl_->layout->fixed_floats < SpareFloats::kLeastFloats) return;
  SequenceState state(impl_->layout);
  state.Reserve(
      0);  // copies the initial state into memory, which it then frees
}

State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

State::Impl& State::Get() const {
  if (impl_ == nullptr) {
    throw ArgumentError("State", "a state that holds a sequence",
                        "one moved from");
  }
  return *impl_;
}

State State::Clone() const {
  return State(std::make_unique<Impl>(Get().sequence.Clone()));
}

void State::CopyFrom(const State& other) {
  const SequenceState& from = other.Get().sequence;
  SequenceState& to = Get().sequence;
  if (&from.layout() != &to.layout()) {
    throw ArgumentError("State::CopyFrom: other", "a state of the same model",
                        "one of another model");
  }
  to.CopyFrom(from);
}

void State::Reset() { Get().sequence.Reset(); }

int64_t State::position() const { return Get().sequence.position; }

int64_t State::bytes() const { return Get().sequence.bytes(); }

int64_t State::source_len() const {
  const auto& memory = Get().sequence.memory;
  return memory == nullptr ? 0 : memory->source_len();
}

int64_t State::memory_bytes() const {
  const auto& memory = Get().sequence.memory;
  return memory == nullptr ? 0 : memory->bytes();
}

bool State::operator==(const State& other) const {
  return Get().sequence.SameBits(other.Get().sequence);
}

uint64_t State::Hash() const { return Get().sequence.Hash(); }

std::span<const float> State::last_logits() const {
  const SequenceState& s = std::as_const(Get()).sequence;
  if (!s.has_logits) return {};
  return {s.logits(), static_cast<size_t>(s.layout().outputs)};
}

}  // namespace tarn
