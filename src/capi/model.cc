// Models of the C interface: opened, described, closed.
#include <string>
#include <utility>

#include "capi/guard.h"

namespace {

using tarn::ArgumentError;
using tarn::StrCat;
using tarn::capi::Guard;
using tarn::capi::Require;

// The numbers of TARN_WEIGHTS_* are the formats' own, which a test compares.
tarn::WeightType WeightsOf(int32_t id) {
  if (id == TARN_WEIGHTS_AUTO) return tarn::WeightType::kAuto;
  std::string wanted = StrCat(TARN_WEIGHTS_AUTO, " (auto)");
  for (const tarn::WeightFormat* format : tarn::WeightFormats()) {
    if (id == format->id) return *format;
    wanted += StrCat(" or ", format->id, " (", format->name, ")");
  }
  throw ArgumentError("options.weights", wanted, StrCat(id));
}

static_assert(TARN_CACHE_F32 == static_cast<int>(tarn::CacheType::kF32) &&
              TARN_CACHE_BF16 == static_cast<int>(tarn::CacheType::kBF16) &&
              TARN_CACHE_INT8 == static_cast<int>(tarn::CacheType::kInt8));
tarn::CacheType CacheOf(int32_t id) {
  std::string wanted;
  for (const tarn::CacheType type : tarn::kCacheTypes) {
    if (id == static_cast<int32_t>(type)) return type;
    wanted += StrCat(wanted.empty() ? "" : ", ", static_cast<int>(type), " (",
                     tarn::Name(type), ")");
  }
  throw ArgumentError("options.cache", "one of " + wanted, StrCat(id));
}

tarn::ModelOptions ModelOptionsOf(const tarn_model_options* given) {
  const tarn_model_options c = tarn::capi::ReadOptions(
      given, tarn_model_options TARN_MODEL_OPTIONS_INIT, "options");
  if (c.threads < 0 || c.threads > 1024) {
    throw ArgumentError("options.threads", "0 to 1024", StrCat(c.threads));
  }
  tarn::ModelOptions options;
  options.weights = WeightsOf(c.weights);
  options.threads = c.threads;
  options.use_mmap = c.use_mmap != 0;
  options.exact = c.exact != 0;
  options.cache = CacheOf(c.cache);
  return options;
}

}  // namespace

tarn_status tarn_model_open(const char* path, const tarn_model_options* options,
                            tarn_model** model, tarn_error** error) {
  return Guard(error, [&] {
    Require(path, "path");
    Require(model, "model");
    *model = new tarn_model{
        tarn::LoadedModel::Open(path, ModelOptionsOf(options)).Take()};
  });
}

void tarn_model_close(tarn_model* model) {
  if (model != nullptr) tarn::capi::Release(model);
}

uint64_t tarn_model_vocab_size(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.vocab_size());
}

uint64_t tarn_model_n_outputs(const tarn_model* model) {
  return model == nullptr ? 0 : static_cast<uint64_t>(model->model.n_outputs());
}

uint64_t tarn_model_tokenizer_size(const tarn_model* model) {
  return model == nullptr
             ? 0
             : static_cast<uint64_t>(model->tokenizer.vocab_size());
}

uint64_t tarn_model_parameters(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.parameters());
}

uint64_t tarn_model_d_model(const tarn_model* model) {
  return model == nullptr
             ? 0
             : static_cast<uint64_t>(model->model.config().d_model);
}

int32_t tarn_model_threads(const tarn_model* model) {
  return model == nullptr ? 0 : model->model.threads();
}

uint64_t tarn_model_state_bytes(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.state_bytes());
}

uint64_t tarn_model_state_bytes_per_token(const tarn_model* model) {
  return model == nullptr
             ? 0
             : static_cast<uint64_t>(model->model.state_bytes_per_token());
}

int32_t tarn_model_arch(const tarn_model* model) {
  if (model == nullptr) return TARN_ARCH_DECODER;
  switch (model->model.config().arch) {
    case tarn::Arch::kEncoder:
      return TARN_ARCH_ENCODER;
    case tarn::Arch::kSeq2seq:
      return TARN_ARCH_SEQ2SEQ;
    default:
      return TARN_ARCH_DECODER;
  }
}

uint64_t tarn_model_n_classes(const tarn_model* model) {
  return model == nullptr ? 0 : model->model.labels().size();
}

const char* tarn_model_label(const tarn_model* model, uint64_t index) {
  if (index >= tarn_model_n_classes(model)) return nullptr;
  return model->model.labels()[index].c_str();
}
