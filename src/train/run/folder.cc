#include "train/run/folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>

#include "core/error.h"

namespace tarn::train {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMaxStateBytes = 1 << 20;

}  // namespace

bool HoldsCheckpoint(const RunFolder& folder) {
  return fs::exists(folder.checkpoint()) ||
         fs::exists(folder.checkpoint() + ".old");
}

bool HoldsRun(const RunFolder& folder) {
  return HoldsCheckpoint(folder) || fs::exists(folder.model());
}

FileDescriptor LockRun(const RunFolder& folder) {
  FileDescriptor lock(
      open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) throw SystemError(folder.path, "a folder", errno);
  // Some file systems have no locks: then there is nothing to hold.
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(folder.path, "a folder that no other run uses",
                  "another run that writes to it");
  }
  return lock;
}

TrainState ReadState(const RunFolder& folder) {
  const std::string path = folder.checkpoint() + "/train.json";
  Result<std::string> text = ReadFile(path, kMaxStateBytes);
  if (!text.ok()) throw FormatError(text.error().what());
  try {
    TrainState state = TrainStateFromJson(text.value());
    state.options.out = folder.path;
    return state;
  } catch (const FormatError& error) {
    throw FormatError(folder.checkpoint() + "/" + error.what());
  }
}

void RemoveRun(const RunFolder& folder) {
  // The checkpoint goes first: what is left can no longer be resumed.
  for (const std::string& path :
       {folder.checkpoint(), folder.checkpoint() + ".old", folder.best(),
        folder.best() + ".old", folder.model(), folder.log()}) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
      throw SystemError(path, "a file that can be removed", error.value());
    }
  }
}

void WriteModelFiles(const std::string& dir, const ModelConfig& config,
                     const std::string& tokenizer_json,
                     const std::string& labels_json) {
  WriteFileAtomically(dir + "/config.json", ConfigToJson(config));
  if (!tokenizer_json.empty()) {
    WriteFileAtomically(dir + "/tokenizer.json", tokenizer_json);
  }
  if (!labels_json.empty()) {
    WriteFileAtomically(dir + "/labels.json", labels_json);
  }
}

}  // namespace tarn::train
