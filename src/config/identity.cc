#include "config/identity.h"

#include "config/fields.h"

namespace tarn {

std::string ConfigIdentity(const ModelConfig& config) {
  return FieldsText(Finished(config), /*unread=*/false);
}

}  // namespace tarn
