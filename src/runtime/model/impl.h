// What stands behind Model and State. Private to the runtime.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/fork.h"
#include "core/threads/stoppable.h"
#include "runtime/stack/encoder.h"
#include "runtime/stack/forward.h"
#include "runtime/model/model.h"
#include "runtime/state/sequence_state.h"
#include "runtime/weights/weights.h"

namespace tarn {

struct State::Impl {
  explicit Impl(SequenceState sequence) : sequence(std::move(sequence)) {}
  SequenceState sequence;
};

struct Model::Impl {
  Impl(ModelConfig config, const ModelOptions& options, Weights weights,
       std::vector<std::string> labels, uint64_t fingerprint)
      : config(std::move(config)),
        options(options),
        weights(std::move(weights)),
        labels(std::move(labels)),
        fingerprint(fingerprint),
        layout(std::make_shared<StateLayout>(this->config)),
        pool(options.threads > 0 ? options.threads : DefaultThreads()) {
    if (this->config.arch != Arch::kEncoder) {
      forward.emplace(this->config, this->weights, workers);
    }
    if (this->config.arch != Arch::kDecoder) {
      encoder.emplace(this->config, this->weights, workers);
    }
  }

  const ModelConfig config;
  const ModelOptions options;
  const Weights weights;
  const std::vector<std::string> labels;
  const uint64_t fingerprint;  // see ModelFingerprint
  const std::shared_ptr<const StateLayout> layout;
  ThreadPool pool;
  StoppableExecutor workers{pool};
  ForkFreedMutex turn;  // guards `workers` and what follows; one call at a time uses its scratch
  std::optional<Forward> forward;  // language models, decoders
  std::optional<Encoder> encoder;  // classifiers, sequence-to-sequence models
};

}  // namespace tarn
