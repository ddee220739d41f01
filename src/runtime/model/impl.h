// What Model and State are made of. Private to the runtime.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "core/executor.h"
#include "core/fork.h"
#include "core/threads/stoppable.h"
#include "runtime/model/model.h"
#include "runtime/stack/cross.h"
#include "runtime/stack/encoder.h"
#include "runtime/stack/forward.h"
#include "runtime/state/sequence_state.h"
#include "runtime/weights/weights.h"

namespace tarn {

class MtpHead;

struct State::Impl {
  explicit Impl(SequenceState sequence) : sequence(std::move(sequence)) {}
  SequenceState sequence;
};

struct Model::Impl {
  static std::shared_ptr<const StateLayout> LayoutOf(const ModelConfig& config,
                                                     CacheType cache) {
    auto layout = std::make_shared<StateLayout>(config, cache);
    layout->initial = SequenceState(layout).Mark().block;
    return layout;
  }

  Impl(ModelConfig config, const ModelOptions& options, Weights weights,
       std::vector<std::string> labels, uint64_t fingerprint,
       std::unique_ptr<ThreadPool> threads, bool has_mtp, ModelPath path)
      : config(std::move(config)),
        options(options),
        weights(std::move(weights)),
        labels(std::move(labels)),
        fingerprint(fingerprint),
        layout(LayoutOf(this->config, options.cache)),
        has_mtp(has_mtp),
        path(std::move(path)),
        pool(std::move(threads)) {
    if (this->config.arch == Arch::kSeq2seq) cross.emplace(this->config);
    const Cross* const of = cross ? &*cross : nullptr;
    if (this->config.arch != Arch::kEncoder) {
      forward.emplace(this->config, this->weights, of, workers);
    }
    if (this->config.arch != Arch::kDecoder) {
      encoder.emplace(this->config, this->weights, of, workers);
    }
  }

  const ModelConfig config;
  const ModelOptions options;
  const Weights weights;
  const std::vector<std::string> labels;
  const uint64_t fingerprint;  // see ModelFingerprint
  const std::shared_ptr<const StateLayout> layout;
  const bool has_mtp;    // its files hold an extra prediction head
  const ModelPath path;  // where that is read
  const std::unique_ptr<ThreadPool> pool;
  StoppableExecutor workers{*pool};
  std::optional<Cross> cross;  // sequence-to-sequence models
  // Guards `workers` and what follows: one call at a time uses its scratch.
  ForkFreedMutex turn;
  std::vector<const SequenceState*> batch;  // of a call, while it is checked
  FloatCopies copies;                       // of a call, before its step
  std::optional<Forward> forward;           // language models, decoders
  std::optional<Encoder> encoder;  // classifiers, sequence-to-sequence models
  std::shared_ptr<const MtpHead> mtp;  // once asked for (MtpHead::Of)
};

/// For the files of the runtime that handle a state's contents.
struct Insides {
  using ModelImpl = Model::Impl;
  /// Null for a model that was moved from.
  static const ModelImpl* Of(const Model& model) { return model.impl_.get(); }
  /// What the holder of the model's turn may change.
  static ModelImpl* Mutable(const Model& model) { return model.impl_.get(); }
  /// Throws ArgumentError for a state that was moved from.
  static SequenceState& Of(const State& state) { return state.Get().sequence; }
};

}  // namespace tarn
