#include "core/files/text_files.h"

#include <filesystem>
#include <system_error>

#include "core/file.h"

namespace tarn {

bool FolderFiles::Has(const std::string& name) const {
  std::error_code none;
  return std::filesystem::exists(Where(name), none);
}

Result<std::string> FolderFiles::Read(const std::string& name,
                                      uint64_t max_bytes) const {
  return ReadFile(Where(name), max_bytes);
}

}  // namespace tarn
