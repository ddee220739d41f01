// What stands behind Model and State. Private to the runtime.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "core/executor.h"
#include "runtime/forward.h"
#include "runtime/model.h"
#include "runtime/sequence_state.h"
#include "runtime/weights.h"

namespace tarn {

struct State::Impl {
  explicit Impl(SequenceState sequence) : sequence(std::move(sequence)) {}
  SequenceState sequence;
};

struct Model::Impl {
  Impl(ModelConfig config, const ModelOptions& options, Weights weights)
      : config(std::move(config)),
        options(options),
        weights(std::move(weights)),
        layout(std::make_shared<StateLayout>(this->config)),
        pool(options.threads > 0 ? options.threads : DefaultThreads()),
        forward(this->config, this->weights, pool) {}

  const ModelConfig config;
  const ModelOptions options;
  const Weights weights;
  const std::shared_ptr<const StateLayout> layout;
  ThreadPool pool;
  std::mutex turn;  // guards forward, whose scratch a block uses alone
  Forward forward;
};

}  // namespace tarn
