#include "runtime/model/convert_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/folder.h"
#include "core/hash.h"
#include "core/text.h"
#include "importers/directory.h"

namespace tarn {
namespace {

constexpr const char* kConfigFileName = "config.json";
constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

bool IsThere(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

void CheckFolder(const std::string& from, const std::string& dir,
                 bool overwrite) {
  std::error_code none;
  if (std::filesystem::equivalent(from, dir, none)) {
    throw ArgumentError("output folder", "another one than the model's", dir);
  }
  if (overwrite) return;
  for (const char* name : {kConfigFileName, kWeightsName, kIndexName}) {
    if (!IsThere(dir + "/" + name)) continue;
    throw ArgumentError(dir, "a folder without a model, or --overwrite",
                        StrCat("one with ", name));
  }
}

}  // namespace

std::vector<std::string> NamesWith(const std::string& dir,
                                   const std::vector<std::string>& begins) {
  std::error_code none;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir, none)) {
    const std::string name = entry.path().filename().string();
    if (std::any_of(begins.begin(), begins.end(), [&](const auto& begin) {
          return name.starts_with(begin);
        })) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

FileDescriptor LockFolder(const std::string& dir) {
  FileDescriptor lock(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) throw SystemError(dir, "a readable folder", errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(dir, "no other import or export into this folder",
                  "one that runs");
  }
  return lock;
}

std::string ConversionKey(const std::string& from, const std::string& head,
                          const std::string& config, const std::string& build) {
  std::error_code none;
  uint64_t key = HashBytes(build);
  key = ExtendHash(key, std::filesystem::absolute(from, none).string());
  key = ExtendHash(key, config);
  key = ExtendHash(key, head);
  std::vector<std::string> names = NamesWith(from, {""});
  if (names.empty()) names.push_back("");  // from is a file
  for (const std::string& name : names) {
    const std::string path = name.empty() ? from : from + "/" + name;
    struct stat info;
    if (stat(path.c_str(), &info) != 0) continue;
    key =
        ExtendHash(key, StrCat(name, " ", info.st_size, " ",
                               info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec));
  }
  return HashText(key);
}

ConvertFolder::ConvertFolder(const std::string& from, std::string dir,
                             const std::string& key, bool overwrite)
    : dir_(std::move(dir)),
      key_(key),
      marker_(StrCat(dir_, "/", kConfigFileName, ".partial-", key)) {
  // One that was killed at its end may have given the weights their name.
  CheckFolder(from, dir_, overwrite || IsThere(marker_));
  train::MakeWritableFolder(dir_);
  lock_ = LockFolder(dir_);
  RemoveTemporaries();
  const ResumableFile marker(dir_ + "/" + kConfigFileName, key, 0, 1);
}

ConvertFolder::~ConvertFolder() {
  if (kept_) return;
  if (weights_) weights_->Discard();
  unlink(marker_.c_str());
}

ResumableFile& ConvertFolder::Weights(uint64_t bytes, uint64_t step) {
  return weights_.emplace(dir_ + "/" + kWeightsName, key_, bytes, step);
}

void ConvertFolder::Add(const std::string& name, std::string_view text) {
  files_.emplace_back(name, std::make_unique<AtomicFile>(dir_ + "/" + name));
  files_.back().second->Write(text.data(), text.size());
}

std::vector<std::string> ConvertFolder::Commit() {
  Remove(kConfigFileName);
  if (IsThere(dir_ + "/" + kIndexName)) RemoveShards();
  Remove(kIndexName);
  weights_->Commit();
  std::vector<std::string> names = {kWeightsName};
  for (auto& [name, file] : files_) {
    file->Commit();
    names.push_back(name);
  }
  for (const std::string& name : CompanionFiles()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Remove(name);
    }
  }
  // Of conversions of other models and with other arguments too.
  for (const std::string& name :
       NamesWith(dir_, {StrCat(kConfigFileName, ".partial-"),
                        StrCat(kWeightsName, ".partial-")})) {
    Remove(name);
  }
  return names;
}

// Of small files, which a killed conversion leaves.
void ConvertFolder::RemoveTemporaries() {
  std::vector<std::string> begins = {StrCat(kConfigFileName, ".tmp-")};
  for (const std::string& name : CompanionFiles()) {
    begins.push_back(name + ".tmp-");
  }
  for (const std::string& name : NamesWith(dir_, begins)) Remove(name);
}

// The shards that the index of the replaced model names, by their form.
void ConvertFolder::RemoveShards() {
  for (const std::string& name : NamesWith(dir_, {"model-"})) {
    if (name.ends_with(".safetensors") && name.find("-of-") != name.npos) {
      Remove(name);
    }
  }
}

void ConvertFolder::Remove(const std::string& name) {
  std::error_code error;
  const std::string path = dir_ + "/" + name;
  std::filesystem::remove(path, error);
  if (error) throw SystemError(path, "a file to remove", error.value());
}

}  // namespace tarn
