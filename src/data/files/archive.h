// The files in a tar archive, plain or packed, one by one and in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tarn::train {

/// Bounds of what is read from one archive.
struct ArchiveBounds {
  int64_t max_members = int64_t{1} << 20;  // folders count
  uint64_t max_member_bytes = uint64_t{1} << 28;
  uint64_t max_bytes = uint64_t{1} << 32;  // of all members together
};

/// Gets the name as the archive has it (never used as a path here) and the
/// contents, which it may keep.
using MemberVisitor =
    std::function<void(const std::string& name, std::string contents)>;

/// Reads a tar file (ustar, pax, GNU), which may be packed with gzip or zstd,
/// and calls `visit` for every regular file in the order of the archive.
/// Folders are skipped. Throws FormatError naming the path, and the member
/// where there is one: not a tar archive, cut off (also between two members),
/// damaged, beyond a bound, or with a member that is neither file nor folder or
/// has no name; and what `visit` throws. Memory: the largest member.
void ReadArchive(const std::string& path, const ArchiveBounds& bounds,
                 const MemberVisitor& visit);

}  // namespace tarn::train
