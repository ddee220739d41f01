// Folders that appear by rename only, as core/file.h does for single files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"

namespace tarn::train {

/// Replaces the folder `path`: `fill` writes into an empty folder next to it
/// (`path-<tag>.tmp`), which then takes the name. At every moment a complete
/// folder is at `path` or, between two renames, at `path.old`, from where
/// RecoverFolder brings it back. `fill` syncs the files it writes. Throws
/// IoError, or what `fill` throws; the old folder then stays.
void ReplaceFolder(const std::string& path, const std::string& tag,
                   const std::function<void(const std::string&)>& fill);

/// After a process was killed: puts `path.old` back where `path` is missing,
/// and removes leftovers in it and next to it.
void RecoverFolder(const std::string& path);

/// Removes temporaries of a killed run directly in `folder`: of its files
/// ("model.safetensors.tmp-<process>-<n>", ...) and folders
/// ("checkpoint-<n>.tmp", "best-<n>.tmp"). Nothing else is touched.
void RemoveLeftovers(const std::string& folder);

/// Makes the folder and its parents; throws IoError unless it then exists and a
/// file can be made in it.
void MakeWritableFolder(const std::string& path);

/// Throws IoError unless the file system of `path` has `bytes` to spare.
void CheckFreeSpace(const std::string& path, uint64_t bytes);

/// The error of CheckFreeSpace, in the largest of MiB, KiB and bytes in which
/// the two numbers differ.
IoError FreeSpaceError(const std::string& path, uint64_t bytes, uint64_t free);

}  // namespace tarn::train
