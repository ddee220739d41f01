// torch.ops.tarn.is_published, read_model_config, read_model_weights and
// model_companion: models by their paths, published ones among them, for the
// modules of Python. The tables
// of importers/ are the only ones that know the published names.
#include <ATen/core/List.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/text.h"
#include "importers/directory.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

// path: [n] uint8 on the CPU, since names of files need not be UTF-8.
std::string PathOf(const at::Tensor& path) {
  const at::Tensor bytes = path.contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<size_t>(bytes.numel())};
}

// False where config.json cannot be read.
bool IsPublished(const at::Tensor& path) {
  return WithTorchErrors([&] {
    const Result<bool> published = IsPublishedModel(PathOf(path));
    return published.ok() && published.value();
  });
}

std::string ReadConfigOf(const at::Tensor& path) {
  return WithTorchErrors([&] {
    Result<ModelConfig> config = ReadModelConfig(PathOf(path));
    if (!config.ok()) Throw(config.error());
    return ConfigToFlatJson(config.value());
  });
}

void CheckOut(const std::string& name, const at::Tensor& out,
              const WeightTensor* tensor, const WeightSource& source) {
  const std::vector<int64_t> shape = out.sizes().vec();
  if (tensor == nullptr) {
    throw FormatError(StrCat(source.path(), ": tensor ", Quoted(name, 200)),
                      StrCat("shape ", ShapeText(shape)), "none");
  }
  if (tensor->shape != shape) {
    throw FormatError(source.Where(*tensor), StrCat("shape ", ShapeText(shape)),
                      ShapeText(tensor->shape));
  }
  if (out.scalar_type() != at::kFloat || !out.is_cpu() ||
      !out.is_contiguous()) {
    throw ArgumentError(StrCat("read_model_weights: out of ", Quoted(name)),
                        "a dense float32 tensor on the CPU", "another one");
  }
}

// Writes the tensors of these names into those given; all are checked before
// the first is written, and the directory must hold no others but those of an
// extra prediction head, which modules do not have.
void ReadWeightsOf(const at::Tensor& path,
                   const std::vector<std::string>& names, at::TensorList out) {
  WithTorchErrors([&] {
    const ModelPath model(PathOf(path));
    Result<ModelConfig> config = ReadModelConfig(model);
    if (!config.ok()) Throw(config.error());
    const auto opened = OpenNamedWeights(model, config.value());
    if (!opened.ok()) Throw(opened.error());
    const WeightSource& source = *opened.value();
    if (names.size() != out.size()) {
      throw ArgumentError("read_model_weights: out",
                          StrCat(names.size(), " tensors"), StrCat(out.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      CheckOut(names[i], out[i], source.Find(names[i]), source);
    }
    const std::set<std::string_view> wanted(names.begin(), names.end());
    for (const WeightTensor& tensor : source.tensors()) {
      if (wanted.contains(tensor.name) || tensor.name.starts_with(kMtpPrefix)) {
        continue;
      }
      throw FormatError(source.Where(tensor), "a tensor of the model",
                        "one of no part of it");
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const WeightTensor& tensor = *source.Find(names[i]);
      source.ReadRows(tensor, {0, tensor.rows()},
                      out[i].mutable_data_ptr<float>());
      source.Release(tensor);
    }
    return 0;
  });
}

constexpr uint64_t kMaxCompanionBytes = 64 << 20;

// The contents of one of CompanionFiles, [n] uint8; none where the model lacks
// it.
std::optional<at::Tensor> ReadCompanion(const at::Tensor& path,
                                        const std::string& name) {
  return WithTorchErrors([&]() -> std::optional<at::Tensor> {
    const ModelPath model(PathOf(path));
    if (!model.Has(name)) return std::nullopt;
    const std::string text = model.Read(name, kMaxCompanionBytes).Take();
    const auto size = static_cast<int64_t>(text.size());
    at::Tensor bytes = at::empty({size}, at::kByte);
    std::copy_n(text.data(), text.size(),
                static_cast<char*>(bytes.mutable_data_ptr()));
    return bytes;
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("is_published(Tensor path) -> bool", &IsPublished);
  m.def("read_model_config(Tensor path) -> str", &ReadConfigOf);
  m.def("read_model_weights(Tensor path, str[] names, Tensor(a!)[] out) -> ()",
        &ReadWeightsOf);
  m.def("model_companions() -> str[]", &CompanionFiles);
  m.def("model_companion(Tensor path, str name) -> Tensor?", &ReadCompanion);
}

}  // namespace
}  // namespace tarn::ops
