#include "data/files/unpack.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace tarn {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

// The file as stored on disk, through one buffer.
class PackedFile {
 public:
  explicit PackedFile(const std::string& path)
      : path_(path),
        // Not blocking: a pipe without a writer must be refused, not awaited.
        fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
        buffer_(kBufferBytes) {
    struct stat info;
    if (fd_.get() < 0 || fstat(fd_.get(), &info) != 0) {
      throw FormatError(path, "a file that can be read", SystemReason(errno));
    }
    if (!S_ISREG(info.st_mode)) {
      throw FormatError(path, "a regular file",
                        S_ISDIR(info.st_mode) ? "a directory" : "another kind");
    }
  }

  const std::string& path() const { return path_; }
  std::string_view ahead() const {
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void Take(size_t bytes) { begin_ += bytes; }

  // Buffers `wanted` unread bytes (at most the buffer's size); fewer at the end
  // of the file.
  void Fill(size_t wanted) {
    if (end_ - begin_ >= wanted) return;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    while (end_ < wanted) {
      const ssize_t got =
          read(fd_.get(), buffer_.data() + end_, buffer_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        throw FormatError(path_, "bytes that can be read", SystemReason(errno));
      }
      if (got == 0) return;
      end_ += static_cast<size_t>(got);
    }
  }

 private:
  std::string path_;
  FileDescriptor fd_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of the unread bytes
};

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

}  // namespace

class UnpackStream::Decoder {
 public:
  explicit Decoder(PackedFile file) : file_(std::move(file)) {}
  virtual ~Decoder() = default;
  virtual size_t Read(char* out, size_t bytes) = 0;

 protected:
  [[noreturn]] void Refuse(const char* wanted, const std::string& given) {
    throw FormatError(file_.path(), wanted, given);
  }
  PackedFile file_;
};

namespace {

class Plain final : public UnpackStream::Decoder {
 public:
  using Decoder::Decoder;
  size_t Read(char* out, size_t bytes) override {
    file_.Fill(1);
    const size_t count = std::min(bytes, file_.ahead().size());
    std::copy_n(file_.ahead().data(), count, out);
    file_.Take(count);
    return count;
  }
};

class Gzip final : public UnpackStream::Decoder {
 public:
  explicit Gzip(PackedFile file) : Decoder(std::move(file)) {
    // 16: a gzip header and trailer, whose CRC-32 and length zlib checks.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t Read(char* out, size_t bytes) override {
    const size_t most = std::min<size_t>(bytes, size_t{1} << 30);
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(most);
    while (stream_.avail_out == most && most > 0) {
      file_.Fill(1);
      if (file_.ahead().empty()) {
        if (whole_) return 0;
        Refuse("a whole gzip file", "one that is cut off");
      }
      if (whole_) Begin();
      Inflate();
    }
    return most - stream_.avail_out;
  }

 private:
  void Begin() {
    file_.Fill(kGzip.size());
    if (!file_.ahead().starts_with(kGzip)) {
      Refuse("gzip data to the end of the file", "other bytes after it");
    }
    inflateReset(&stream_);
    whole_ = false;
  }
  void Inflate() {
    const std::string_view packed = file_.ahead();
    stream_.next_in =
        reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    file_.Take(packed.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      whole_ = true;
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      Refuse("valid gzip data",
             stream_.msg != nullptr ? stream_.msg : "damage");
    }
  }

  z_stream stream_ = {};
  bool whole_ = false;  // a part has ended, and none begun since
};

class Zstd final : public UnpackStream::Decoder {
 public:
  explicit Zstd(PackedFile file)
      : Decoder(std::move(file)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  size_t Read(char* out, size_t bytes) override {
    ZSTD_outBuffer made = {out, bytes, 0};
    while (made.pos == 0 && bytes > 0) {
      file_.Fill(1);
      const std::string_view packed = file_.ahead();
      // What libzstd still holds back comes out without further input.
      if (packed.empty() && whole_) return 0;
      ZSTD_inBuffer given = {packed.data(), packed.size(), 0};
      const size_t left = ZSTD_decompressStream(stream_, &made, &given);
      file_.Take(given.pos);
      if (ZSTD_isError(left)) {
        Refuse("valid zstd data", ZSTD_getErrorName(left));
      }
      whole_ = left == 0;
      if (packed.empty() && made.pos == 0 && !whole_) {
        Refuse("a whole zstd file", "one that is cut off");
      }
    }
    return made.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool whole_ = false;  // a frame has ended, and none begun since
};

std::unique_ptr<UnpackStream::Decoder> MakeDecoder(const std::string& path) {
  PackedFile file(path);
  file.Fill(kZstd.size());
  const std::string_view head = file.ahead();
  if (head.starts_with(kGzip)) return std::make_unique<Gzip>(std::move(file));
  if (head.starts_with(kZstd)) return std::make_unique<Zstd>(std::move(file));
  return std::make_unique<Plain>(std::move(file));
}

}  // namespace

UnpackStream::UnpackStream(const std::string& path)
    : decoder_(MakeDecoder(path)) {}
UnpackStream::~UnpackStream() = default;

size_t UnpackStream::Read(char* out, size_t bytes) {
  return decoder_->Read(out, bytes);
}

bool BeginsPacked(int fd) {
  char bytes[kZstd.size()];
  const ssize_t got = pread(fd, bytes, sizeof bytes, 0);
  const std::string_view head(bytes, got < 0 ? 0 : static_cast<size_t>(got));
  return head.starts_with(kGzip) || head.starts_with(kZstd);
}

std::string ReadUnpacked(const std::string& path, uint64_t max_bytes) {
  UnpackStream stream(path);
  std::string contents;
  size_t filled = 0;
  for (;;) {
    // Doubling, but never more than a byte beyond the bound.
    const uint64_t room = std::min<uint64_t>(
        std::max<uint64_t>(2 * filled, kBufferBytes), max_bytes + 1);
    contents.resize(std::max<size_t>(room, filled));
    if (contents.size() == filled) break;
    const size_t got =
        stream.Read(contents.data() + filled, contents.size() - filled);
    if (got == 0) break;
    filled += got;
  }
  if (filled > max_bytes) {
    throw FormatError(path, StrCat("at most ", max_bytes, " bytes, unpacked"),
                      "more");
  }
  contents.resize(filled);
  return contents;
}

}  // namespace tarn
