#include "runtime/model/mtp_head.h"

#include <mutex>
#include <string>
#include <utility>

#include "importers/directory.h"
#include "runtime/model/files.h"
#include "runtime/model/fingerprint.h"
#include "runtime/model/impl.h"
#include "runtime/weights/packer.h"

namespace tarn {

struct MtpHead::Parts {
  Parts(Insides::ModelImpl& model, ModelConfig head, MtpWeights made,
        int64_t weight_bytes)
      : model(model),
        config(std::move(head)),
        weights(std::move(made)),
        bytes(weight_bytes),
        layout(std::make_shared<StateLayout>(config, model.options.cache)),
        forward(config, weights, model.workers) {}

  Insides::ModelImpl& model;
  const ModelConfig config;
  const MtpWeights weights;
  const int64_t bytes;
  const std::shared_ptr<const StateLayout> layout;
  MtpForward forward;  // of the thread that has the model's turn
};

namespace {

// The model's turn is taken. Throws Error.
std::unique_ptr<MtpHead::Parts> Load(Insides::ModelImpl& model) {
  if (!model.has_mtp) {
    throw ArgumentError(
        "model", "one with an extra prediction head of one layer (mtp.*)",
        WhyNoMtp(model.path));
  }
  const ModelConfig& config = model.config;
  Result<ModelFiles> opened =
      OpenModelFiles(model.path, config, model.options.use_mmap);
  if (!opened.ok()) Throw(opened.error());
  const WeightSource& source = *opened.value().weights;
  const WeightPlan plan(config, model.options.weights.format(),
                        model.options.exact);
  const WeightFormat& held = EmbeddingFormat(source, config, plan);
  const uint64_t fingerprint = HeldFingerprint(
      ModelFingerprint(source, config, held), held, model.weights.held);
  if (fingerprint != model.fingerprint || !HasMtp(source)) {
    throw FormatError(model.path.path(), "the files of the open model",
                      "files that were changed since");
  }
  Packer packer(source, plan, *model.pool);
  MtpWeights weights = MakeMtpWeights(packer, config);
  weights.ShareEnds(model.weights, config);
  return std::make_unique<MtpHead::Parts>(model, MtpConfig(config).value(),
                                          std::move(weights), packer.bytes());
}

}  // namespace

const MtpHead& MtpHead::Of(const Model& model) {
  Insides::ModelImpl* impl = Insides::Mutable(model);
  if (impl == nullptr) {
    throw ArgumentError("model", "an open model", "one moved from");
  }
  const std::lock_guard lock(impl->turn);
  if (impl->mtp == nullptr) impl->mtp = std::make_shared<MtpHead>(Load(*impl));
  return *impl->mtp;
}

MtpHead::MtpHead(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
MtpHead::~MtpHead() = default;

int64_t MtpHead::d_model() const { return parts_->config.d_model; }
int64_t MtpHead::n_outputs() const { return parts_->config.Outputs(); }
int64_t MtpHead::weight_bytes() const { return parts_->bytes; }

SequenceState MtpHead::NewState() const {
  return SequenceState(parts_->layout);
}

void MtpHead::Run(SequenceState& state, std::span<const int32_t> tokens,
                  const float* hidden, float* logits, float* out) const {
  Parts& p = *parts_;
  state.Reserve(state.position + static_cast<int64_t>(tokens.size()));
  const std::lock_guard lock(p.model.turn);
  const StopScope scope(p.model.workers, {});
  p.forward.Run(state, tokens, hidden, logits, out);
}

}  // namespace tarn
