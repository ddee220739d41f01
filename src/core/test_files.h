// Temporary folders and files for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tarn {

/// A folder that is removed with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "tarn-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_; }
  std::string Name(const std::string& file) const { return path_ + "/" + file; }
  /// Writes a file and returns its path.
  std::string Write(const std::string& file, const std::string& text) const {
    std::ofstream(Name(file), std::ios::binary) << text;
    return Name(file);
  }
  std::string Read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(Name(file), std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace tarn
