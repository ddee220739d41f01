#include "cli/commands/hand_over.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "cli/cli.h"
#include "cli/console/signals.h"
#include "core/file.h"

namespace tarn::cli {
namespace {

// Where the program may be, in the order of the search.
std::vector<std::string> Candidates(const std::string& program) {
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path bin = self.parent_path();
    paths.push_back(bin / program);
    paths.push_back((bin / "../libexec/tarn" / program).lexically_normal());
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) paths.push_back(folder + "/" + program);
  }
  return paths;
}

}  // namespace

int HandOver(const char* program, const char* missing, int argc, char** argv) {
  for (const std::string& path : Candidates(program)) {
    if (access(path.c_str(), X_OK) != 0) continue;
    std::vector<char*> arguments(argv, argv + argc);
    arguments[0] = const_cast<char*>(path.c_str());
    arguments.push_back(nullptr);
    RestoreSignalDefaults();
    execv(path.c_str(), arguments.data());
    throw SystemError(path, "a program that runs", errno);
  }
  std::fputs(missing, stderr);
  return kExitFailure;
}

}  // namespace tarn::cli
