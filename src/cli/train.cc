// `tarn train`: hands over to tarn-train, the training part, which stands on
// libtorch and may not be installed. Found as git finds its commands: beside
// this program, in libexec, on PATH.
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
#include "cli/signals.h"

namespace tarn::cli {
namespace {

constexpr char kProgram[] = "tarn-train";

// Where the program may stand, in the order it is looked for.
std::vector<std::string> Candidates() {
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path bin = self.parent_path();
    paths.push_back(bin / kProgram);
    paths.push_back((bin / "../libexec/tarn" / kProgram).lexically_normal());
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) paths.push_back(folder + "/" + kProgram);
  }
  return paths;
}

constexpr char kMissing[] =
    "tarn train: error: the training part, tarn-train, is not here\n"
    "It stands on libtorch and is built by `make build`; `make runtime` leaves "
    "it out.\nLooked beside this program, in ../libexec/tarn and on PATH.\n";

}  // namespace

int Train(int argc, char** argv) {
  for (const std::string& path : Candidates()) {
    if (access(path.c_str(), X_OK) != 0) continue;
    std::vector<char*> arguments(argv, argv + argc);
    arguments[0] = const_cast<char*>(path.c_str());
    arguments.push_back(nullptr);
    RestoreSignalDefaults();
    execv(path.c_str(), arguments.data());
    const int reason = errno;
    throw IoError(path, "a program that runs",
                  std::generic_category().message(reason));
  }
  std::fputs(kMissing, stderr);
  return kExitFailure;
}

}  // namespace tarn::cli
