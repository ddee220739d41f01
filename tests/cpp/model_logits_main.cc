// model_logits FOLDER...: the C++ modules of models over batches, one thread. A
// folder holds the directory `model` and the file `batch`, and gets `out`. Both
// files are safetensors of F32 (ids and lengths as whole numbers); a batch
// holds what the model reads of nn::Batch, `out` gets "logits".
// tests/python/models/test_both_shells.py compares them with those of Python's
// module.
#include <cstdio>
#include <string>

#include "config/model_config.h"
#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn {
namespace {

torch::Tensor Read(const SafetensorsFile& file, const char* name,
                   torch::ScalarType dtype) {
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr) return {};
  torch::Tensor values = torch::empty(entry->shape, torch::kFloat32);
  file.ReadF32(*entry, values.data_ptr<float>());
  return values.to(dtype);
}

void Write(const std::string& folder) {
  const std::string dir = folder + "/model";
  torch::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  const std::string text = ReadFile(dir + "/config.json", 1 << 20).Take();
  const auto model = nn::MakeModel(ConfigFromJson(text).Take());
  nn::LoadWeights(*model, dir);
  model->eval();
  const SafetensorsFile file = SafetensorsFile::Open(folder + "/batch").Take();
  nn::Batch batch;
  batch.tokens = Read(file, "tokens", torch::kInt64);
  batch.lengths = Read(file, "lengths", torch::kInt64);
  batch.frames = Read(file, "frames", torch::kFloat32);
  batch.target_in = Read(file, "target_in", torch::kInt64);
  const torch::Tensor logits = model->Logits(batch).contiguous();
  WriteSafetensors(folder + "/out",
                   {{"logits", DType::kF32, logits.sizes().vec(),
                     logits.const_data_ptr<float>()}},
                   {});
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) tarn::Write(argv[i]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_logits: %s\n", error.what());
    return 1;
  }
  return 0;
}
