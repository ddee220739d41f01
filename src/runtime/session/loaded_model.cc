#include "runtime/session/loaded_model.h"

#include <utility>

namespace tarn {

Result<LoadedModel> LoadedModel::Open(const std::string& dir,
                                      const ModelOptions& options) {
  Result<Model> model = Model::Open(dir, options);
  if (!model.ok()) return model.error();
  Result<Tokenizer> tokenizer = Tokenizer::Open(dir, model.value().config());
  if (!tokenizer.ok()) return tokenizer.error();
  return LoadedModel{std::move(model).Take(), std::move(tokenizer).Take()};
}

}  // namespace tarn
