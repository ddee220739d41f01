#include "runtime/weights/mtp_weights.h"

#include <algorithm>
#include <string>

namespace tarn {
namespace {

// The tensors of the head under the names of a model of one layer.
class HeadTensors final : public ModelTensors {
 public:
  explicit HeadTensors(ModelTensors& all) : all_(all) {}

  bool Has(const std::string& name) const override {
    return all_.Has(Named(name));
  }
  std::vector<float> Vector(const std::string& name) override {
    return all_.Vector(Named(name));
  }
  WeightMatrix Matrix(const std::vector<NamedRows>& parts,
                      int64_t inputs) override {
    std::vector<NamedRows> named = parts;
    for (NamedRows& part : named) {
      part.weight = Named(part.weight);
      if (!part.bias.empty()) part.bias = Named(part.bias);
    }
    return all_.Matrix(named, inputs);
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override {
    return all_.Matrices(Named(name), count, outputs, inputs);
  }

 private:
  static std::string Named(const std::string& name) {
    return std::string(kMtpPrefix) + name;
  }

  ModelTensors& all_;
};

}  // namespace

void MtpWeights::ShareEnds(const Weights& model, const ModelConfig& config) {
  stack.decoder.embedding = model.decoder.embedding;
  if (!config.tied_head) stack.head = model.head;
}

bool HasMtp(const WeightSource& source) {
  return std::any_of(source.tensors().begin(), source.tensors().end(),
                     [](const WeightTensor& tensor) {
                       return tensor.name.starts_with(kMtpPrefix);
                     });
}

MtpWeights MakeMtpWeights(ModelTensors& tensors, const ModelConfig& config) {
  const ModelConfig head = MtpConfig(config).value();
  HeadTensors own(tensors);
  PassedVectors passed;
  MtpWeights w;
  w.embedding_norm = MakeNorm(own, "embedding_norm", head);
  w.hidden_norm = MakeNorm(own, "hidden_norm", head);
  w.projection =
      own.Matrix({{"projection.weight", "", head.d_model}}, 2 * head.d_model);
  w.stack.decoder.layers.push_back(MakeDecoderLayer(own, head, 0, passed));
  w.stack.decoder.norm = MakeNorm(own, "norm", head);
  return w;
}

}  // namespace tarn
