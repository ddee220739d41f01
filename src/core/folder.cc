#include "core/folder.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace tarn::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Refuse(const fs::path& path, const std::string& wanted,
                         const std::error_code& error) {
  throw IoError(path.string(), wanted, SystemReason(error.value()));
}

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) Refuse(path, "a folder that can be removed", error);
}

void Rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) Refuse(from, "a folder that can be renamed", error);
}

bool StartsWith(const std::string& text, const std::string& head) {
  return text.compare(0, head.size(), head) == 0;
}

// Only names that a run itself gives: the folder may hold a user's files too.
bool IsLeftover(const std::string& name) {
  for (const char* file :
       {"config.json", "tokenizer.json", "model.safetensors", "train.json",
        "optimizer.safetensors", ".writable"}) {
    if (StartsWith(name, StrCat(file, ".tmp-"))) return true;
  }
  const bool tmp = name.size() > 4 && name.substr(name.size() - 4) == ".tmp";
  return tmp && (StartsWith(name, "checkpoint-") || StartsWith(name, "best-"));
}

// Makes renames in a folder survive a power cut; where a file system cannot,
// nothing more can be done.
void Sync(const fs::path& folder) {
  const FileDescriptor fd(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) fsync(fd.get());
}

}  // namespace

void ReplaceFolder(const std::string& path, const std::string& tag,
                   const std::function<void(const std::string&)>& fill) {
  const std::string fresh = path + "-" + tag + ".tmp", old = path + ".old";
  Remove(fresh);  // left by a killed run that got as far as this step
  std::error_code error;
  fs::create_directory(fresh, error);
  if (error) Refuse(fresh, "a folder that can be made", error);
  try {
    fill(fresh);
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
  Remove(old);
  // A kill between these two leaves path.old for RecoverFolder.
  if (fs::exists(path)) Rename(path, old);
  Rename(fresh, path);
  Sync(fs::path(path).parent_path());
  Remove(old);
}

void RecoverFolder(const std::string& path) {
  if (fs::exists(path + ".old")) {
    if (fs::exists(path)) {
      Remove(path + ".old");
    } else {
      Rename(path + ".old", path);
    }
  }
  if (fs::is_directory(path)) RemoveLeftovers(path);
}

void RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsLeftover(entry.path().filename().string())) {
      leftovers.push_back(entry.path());
    }
  }
  if (error) Refuse(folder, "a folder that can be read", error);
  for (const fs::path& path : leftovers) Remove(path);
}

void MakeWritableFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  // A file that exists at `path` may give no error code.
  if (!error && !fs::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) Refuse(path, "a folder that can be made", error);
  // Permission bits do not decide it alone (read-only mounts, root).
  WriteFileAtomically(path + "/.writable", "");
  Remove(path + "/.writable");
}

void CheckFreeSpace(const std::string& path, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return;  // unknown: try and see
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (free >= bytes) return;
  throw FreeSpaceError(path, bytes, free);
}

IoError FreeSpaceError(const std::string& path, uint64_t bytes, uint64_t free) {
  int shift = 20;
  while (shift > 0 && bytes >> shift == free >> shift) shift -= 10;
  const char* unit = shift == 20 ? " MiB" : shift == 10 ? " KiB" : " bytes";
  return IoError(path, StrCat(bytes >> shift, unit, " of free space"),
                 StrCat(free >> shift, unit));
}

}  // namespace tarn::train
