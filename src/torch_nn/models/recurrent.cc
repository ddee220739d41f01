#include "torch_nn/models/recurrent.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn/utils/rnn.h>

#include <optional>

#include "torch_nn/models/classifier.h"
#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

constexpr char kRecurrentModel[] = "RecurrentModel";

// torch warns about dropout if there is only one layer.
double BetweenLayers(const ModelConfig& config) {
  return config.n_layers > 1 ? config.dropout : 0.0;
}

// oneDNN has bfloat16 LSTMs on CPUs with AVX-512. Its float16 ones run no
// training even where the CPU computes in float16.
bool ComputesIn(torch::ScalarType type) {
  if (type != torch::kBFloat16) return false;
  const auto op = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_is_mkldnn_bf16_supported", ""});
  return op.has_value() && op->typed<bool()>().call();
}

// Under autocast torch hands 16-bit numbers to oneDNN's LSTM on every CPU.
// Where that computes in no such type, recurrent layers stay in float32.
class RecurrentAutocast {
 public:
  explicit RecurrentAutocast(const torch::Tensor& x) {
    if (!x.is_cpu() || !at::autocast::is_autocast_enabled(torch::kCPU)) return;
    const auto type = at::autocast::get_autocast_dtype(torch::kCPU);
    if (!ComputesIn(type)) without_.emplace(c10::DispatchKey::AutocastCPU);
  }

 private:
  std::optional<c10::impl::ExcludeDispatchKeyGuard> without_;
};

}  // namespace

RecurrentModelImpl::RecurrentModelImpl(const ModelConfig& config)
    : ModelImpl(config) {
  const int64_t d_model = config_.d_model;
  const int64_t inputs = config_.ReadsFrames() ? config_.input_dim : d_model;
  if (!config_.ReadsFrames()) {
    embedding_.emplace(*this, config_, "value_", /*shared=*/config_.tied_head);
  }
  switch (config_.arch) {
    case Arch::kRnn:
      rnn_ = register_module(
          "rnn", torch::nn::RNN(torch::nn::RNNOptions(d_model, d_model)
                                    .num_layers(config_.n_layers)
                                    .nonlinearity(torch::kTanh)
                                    .dropout(BetweenLayers(config_))
                                    .batch_first(true)));
      break;
    case Arch::kLstm:
      lstm_ = register_module(
          "rnn", torch::nn::LSTM(
                     torch::nn::LSTMOptions(
                         inputs, config_.bidirectional ? d_model / 2 : d_model)
                         .num_layers(config_.n_layers)
                         .bidirectional(config_.bidirectional)
                         .dropout(BetweenLayers(config_))
                         .batch_first(true)));
      break;
    default:
      throw ArgumentError("RecurrentModel: arch", "rnn or lstm",
                          Name(config_.arch));
  }
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor RecurrentModelImpl::Run(const torch::Tensor& x,
                                      const torch::Tensor& lengths) {
  if (x.size(0) == 0 || x.size(1) == 0) {  // torch's layers refuse
    return torch::zeros({x.size(0), x.size(1), config_.d_model}, x.options());
  }
  const RecurrentAutocast autocast(x);
  // Forwards, later tokens cannot affect a token. Backwards they come first:
  // packed, each sequence begins at its own end.
  if (config_.bidirectional && lengths.defined()) {
    const torch::Tensor some = lengths.clamp_min(1).to(torch::kCPU);
    const auto packed = torch::nn::utils::rnn::pack_padded_sequence(
        x, some, /*batch_first=*/true, /*enforce_sorted=*/false);
    const auto hidden = std::get<0>(lstm_->forward_with_packed_input(packed));
    return std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(
        hidden, /*batch_first=*/true, /*padding_value=*/0.0,
        /*total_length=*/x.size(1)));
  }
  return rnn_ ? std::get<0>(rnn_->forward(x)) : std::get<0>(lstm_->forward(x));
}

torch::Tensor RecurrentModelImpl::Table() const {
  return embedding_ ? embedding_->weight() : torch::Tensor();
}

torch::Tensor RecurrentModelImpl::Logits(const Batch& batch) {
  torch::Tensor x, key_mask;
  if (embedding_) {
    x = (*embedding_)(kRecurrentModel, batch.tokens);
    key_mask = PrefixMask(kRecurrentModel, batch.lengths, x);
  } else {
    const Frames frames =
        CheckFrames(kRecurrentModel, batch.frames, batch.lengths,
                    config_.input_dim, predictor_->bias.scalar_type());
    x = frames.values, key_mask = frames.key_mask;
  }
  torch::Tensor hidden = Run(x, batch.lengths);
  if (config_.task == Task::kClassify) {
    hidden = MeanOverTokens(hidden, key_mask);
  }
  hidden = torch::dropout(hidden, config_.dropout, is_training());
  return predictor_(hidden, Table());
}

RecurrentState RecurrentModelImpl::InitialState(int64_t batch) const {
  if (config_.task != Task::kLm) {
    throw ArgumentError("RecurrentModel: InitialState", "task lm",
                        Name(config_.task));
  }
  RecurrentState state;
  state.h = torch::zeros({config_.n_layers, batch, config_.d_model},
                         predictor_->bias.options().requires_grad(false));
  if (lstm_) state.c = torch::zeros_like(state.h);
  return state;
}

std::pair<torch::Tensor, RecurrentState> RecurrentModelImpl::Prefill(
    const torch::Tensor& tokens, const RecurrentState& state) {
  if (config_.task != Task::kLm) {
    throw ArgumentError("RecurrentModel: Prefill", "task lm",
                        Name(config_.task));
  }
  torch::Tensor x = (*embedding_)(kRecurrentModel, tokens);
  const std::vector<int64_t> wanted = {config_.n_layers, x.size(0),
                                       config_.d_model};
  if (!state.h.defined() || state.h.sizes() != wanted ||
      state.c.defined() != !lstm_.is_empty()) {
    throw ArgumentError(
        "RecurrentModel: state", StrCat("a state ", ShapeText(wanted)),
        state.h.defined() ? ShapeText(state.h.sizes().vec()) : "none");
  }
  RecurrentState next = state;
  if (x.size(0) > 0 && x.size(1) > 0) {
    const RecurrentAutocast autocast(x);
    if (lstm_) {
      auto [out, last] = lstm_->forward(x, std::make_tuple(state.h, state.c));
      x = out;
      next = {std::get<0>(last), std::get<1>(last)};
    } else {
      std::tie(x, next.h) = rnn_->forward(x, state.h);
    }
  }
  return {predictor_(x, Table()), std::move(next)};
}

}  // namespace tarn::nn
