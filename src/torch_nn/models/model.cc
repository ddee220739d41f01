#include "torch_nn/models/model.h"

#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "core/safetensors.h"
#include "torch_nn/models/classifier.h"
#include "torch_nn/models/cnn.h"
#include "torch_nn/models/frame_classifier.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/recurrent.h"
#include "torch_nn/models/seq2seq.h"
#include "weights/weight_source.h"

namespace tarn::nn {
namespace {

// The device of the first parameter found. Listing all parameters takes longer
// than some products of a step.
std::optional<torch::Device> DeviceOf(const torch::nn::Module& module) {
  for (const torch::Tensor& own : module.parameters(/*recurse=*/false)) {
    return own.device();
  }
  for (const auto& child : module.children()) {
    if (const auto found = DeviceOf(*child)) return found;
  }
  return std::nullopt;
}

// Parameters and buffers by name; the tensors of a weight file are among them.
std::map<std::string, torch::Tensor> TensorsOf(const ModelImpl& model) {
  std::map<std::string, torch::Tensor> tensors;
  for (const auto& item : model.named_parameters()) {
    tensors[item.key()] = item.value();
  }
  for (const auto& item : model.named_buffers()) {
    tensors[item.key()] = item.value();
  }
  return tensors;
}

// Every tensor of the config, in its order; throws FormatError for one that is
// missing or misshapen and for one too many, those of an extra prediction head
// aside.
std::vector<const WeightTensor*> MatchTensors(const WeightSource& source,
                                              const ModelConfig& config) {
  std::vector<const WeightTensor*> tensors;
  std::set<std::string> wanted;
  for (const auto& [name, shape] : WeightShapes(config)) {
    const WeightTensor* tensor = source.Find(name);
    if (tensor == nullptr) {
      throw FormatError(StrCat(source.path(), ": tensor ", name),
                        ShapeText(shape), "no such tensor");
    }
    if (tensor->shape != shape) {
      throw FormatError(source.Where(*tensor), ShapeText(shape),
                        ShapeText(tensor->shape));
    }
    tensors.push_back(tensor);
    wanted.insert(name);
  }
  for (const WeightTensor& tensor : source.tensors()) {
    // Modules have no extra prediction head.
    if (tensor.name.starts_with(kMtpPrefix)) continue;
    if (wanted.count(tensor.name) == 0) {
      throw FormatError(source.Where(tensor),
                        "no tensor but those of the configuration",
                        ShapeText(tensor.shape));
    }
  }
  return tensors;
}

}  // namespace

ModelImpl::ModelImpl(const ModelConfig& config) : config_(Finished(config)) {}

StackState ModelImpl::EmptyState() const {
  throw ArgumentError("state file: model",
                      "a language model or a sequence-to-sequence model",
                      StrCat("arch '", Name(config_.arch), "'"));
}

torch::Device ModelImpl::device() const {
  return DeviceOf(*this).value_or(torch::kCPU);
}

Batch ToDevice(const Batch& batch, torch::Device device) {
  Batch moved = batch;
  for (torch::Tensor* tensor :
       {&moved.tokens, &moved.frames, &moved.target_in}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return moved;
}

void ModelImpl::RedrawFeatures(int64_t step) {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* mixer = module->as<Mixer>()) mixer->Redraw(step);
  }
}

std::shared_ptr<ModelImpl> MakeModel(const ModelConfig& config) {
  const ModelConfig finished = Finished(config);
  switch (finished.arch) {
    case Arch::kDecoder:
      return std::make_shared<LanguageModelImpl>(finished);
    case Arch::kEncoder:
      if (finished.ReadsFrames()) {
        return std::make_shared<FrameClassifierImpl>(finished);
      }
      return std::make_shared<ClassifierImpl>(finished);
    case Arch::kSeq2seq:
      return std::make_shared<Seq2SeqImpl>(finished);
    case Arch::kRnn:
    case Arch::kLstm:
      return std::make_shared<RecurrentModelImpl>(finished);
    case Arch::kCnn:
      return std::make_shared<CnnModelImpl>(finished);
  }
  throw ArgumentError("MakeModel: arch", "an architecture",
                      StrCat(static_cast<int>(finished.arch)));
}

void SaveWeights(const ModelImpl& model, const std::string& path,
                 const std::map<std::string, std::string>& metadata) {
  const auto present = TensorsOf(model);
  std::vector<torch::Tensor> held;  // keeps the converted copies alive
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : WeightShapes(model.config())) {
    held.push_back(present.at(name)
                       .detach()
                       .to(torch::kCPU, torch::kFloat32)
                       .contiguous());
    tensors.push_back({name, DType::kF32, shape, held.back().data_ptr()});
  }
  WriteSafetensors(path, tensors, metadata);
}

void LoadWeights(ModelImpl& model, const std::string& path) {
  const auto source =
      (std::filesystem::is_directory(path) ? OpenWeightSource(path)
                                           : OpenWeightFile(path))
          .Take();
  const std::vector<const WeightTensor*> tensors =
      MatchTensors(*source, model.config());
  torch::NoGradGuard no_grad;
  auto present = TensorsOf(model);
  for (const WeightTensor* tensor : tensors) {
    torch::Tensor values = torch::empty(tensor->shape, torch::kFloat32);
    source->ReadRows(*tensor, {0, tensor->rows()}, values.data_ptr<float>());
    source->Release(*tensor);
    present.at(tensor->name).copy_(values);
  }
}

}  // namespace tarn::nn
