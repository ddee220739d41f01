#include "data/files/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "core/error.h"
#include "data/files/unpack.h"

namespace tarn::train {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;
// What ends a tar archive: two blocks of zeros.
constexpr uint64_t kTarBlockBytes = 512, kEndBytes = 2 * kTarBlockBytes;

// Hands the unpacked bytes to libarchive and watches how they end.
class Source {
 public:
  explicit Source(const std::string& path)
      : stream_(path), buffer_(kBufferBytes) {}

  size_t Next() {
    const size_t got = stream_.Read(buffer_.data(), buffer_.size());
    const auto end = buffer_.rend();
    const auto begin = end - static_cast<std::ptrdiff_t>(got);
    const auto other =
        std::find_if(begin, end, [](char byte) { return byte != 0; });
    const auto zeros = static_cast<uint64_t>(other - begin);
    zeros_at_end_ = zeros == got ? zeros_at_end_ + zeros : zeros;
    bytes_ += got;
    return got;
  }
  const char* data() const { return buffer_.data(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t zeros_at_end() const { return zeros_at_end_; }

  // What Next threw below libarchive, which is C and must not be unwound.
  std::exception_ptr failure;

 private:
  UnpackStream stream_;
  std::vector<char> buffer_;
  uint64_t bytes_ = 0, zeros_at_end_ = 0;
};

la_ssize_t ReadSource(struct archive* archive, void* data, const void** out) {
  auto* source = static_cast<Source*>(data);
  try {
    const size_t got = source->Next();
    *out = source->data();
    return static_cast<la_ssize_t>(got);
  } catch (...) {
    source->failure = std::current_exception();
    archive_set_error(archive, -1, "unreadable");
    return -1;
  }
}

struct FreeArchive {
  void operator()(struct archive* archive) const { archive_read_free(archive); }
};

class TarReader {
 public:
  TarReader(const std::string& path, const ArchiveBounds& bounds)
      : path_(path),
        bounds_(bounds),
        source_(path),
        archive_(archive_read_new()) {
    if (archive_ == nullptr) throw std::bad_alloc();
    archive_read_support_format_tar(archive_.get());
    Check(archive_read_open(archive_.get(), &source_, nullptr, ReadSource,
                            nullptr));
  }

  // The next entry, or null after the last one.
  archive_entry* Next() {
    archive_entry* entry = nullptr;
    if (Check(archive_read_next_header(archive_.get(), &entry)) ==
        ARCHIVE_EOF) {
      return nullptr;
    }
    if (++members_ > bounds_.max_members) {
      throw FormatError(
          path_, StrCat("at most ", bounds_.max_members, " files and folders"),
          "more");
    }
    return entry;
  }

  std::string Contents(const std::string& name) {
    std::string contents;
    for (std::vector<char> part(kBufferBytes);;) {
      const la_ssize_t got =
          archive_read_data(archive_.get(), part.data(), part.size());
      if (got == 0) return contents;
      if (got < 0) Check(static_cast<int>(got));
      const auto count = static_cast<uint64_t>(std::max<la_ssize_t>(got, 0));
      bytes_ += count;
      CheckBound(name, contents.size() + count, bounds_.max_member_bytes);
      CheckBound(name, bytes_, bounds_.max_bytes);
      contents.append(part.data(), count);
    }
  }

  // libarchive takes a file that ends between two members as complete, and
  // stops before the last bytes, where a packed file has its checksum.
  void CheckEnd() {
    while (source_.Next() > 0) {
    }
    if (source_.zeros_at_end() >= kEndBytes &&
        source_.bytes() % kTarBlockBytes == 0) {
      return;
    }
    throw FormatError(path_, "a whole tar archive", "one that is cut off");
  }

 private:
  int Check(int status) {
    if (source_.failure) std::rethrow_exception(source_.failure);
    // A warning is about a name that is not text here, or the like.
    if (status >= ARCHIVE_WARN) return status;
    const char* text = archive_error_string(archive_.get());
    throw FormatError(path_, "a valid tar archive",
                      text == nullptr ? "damage" : text);
  }
  void CheckBound(const std::string& name, uint64_t bytes, uint64_t most) {
    if (bytes <= most) return;
    throw FormatError(path_ + ": " + name, StrCat("at most ", most, " bytes"),
                      "more");
  }

  std::string path_;
  ArchiveBounds bounds_;
  Source source_;
  std::unique_ptr<struct archive, FreeArchive> archive_;
  int64_t members_ = 0;
  uint64_t bytes_ = 0;  // of contents
};

std::string NameOf(const std::string& path, archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr || *name == '\0') {
    name = archive_entry_pathname_utf8(entry);
  }
  if (name == nullptr || *name == '\0') {
    throw FormatError(path, "members with names", "one without");
  }
  return name;
}

}  // namespace

void ReadArchive(const std::string& path, const ArchiveBounds& bounds,
                 const MemberVisitor& visit) {
  TarReader reader(path, bounds);
  while (archive_entry* entry = reader.Next()) {
    const std::string name = NameOf(path, entry);
    const auto type = archive_entry_filetype(entry);
    if (type == AE_IFDIR) continue;
    // A hard link has the type of a file but no contents.
    if (type != AE_IFREG || archive_entry_hardlink(entry) != nullptr) {
      throw FormatError(path + ": " + name, "a regular file or a folder",
                        "a link or a device");
    }
    visit(name, reader.Contents(name));
  }
  reader.CheckEnd();
}

}  // namespace tarn::train
