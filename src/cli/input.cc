#include "cli/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "cli/cli.h"
#include "cli/signals.h"

namespace tarn::cli {
namespace {

[[noreturn]] void Fail(const std::string& path, int reason) {
  throw IoError(InputName(path), "a file to read",
                std::generic_category().message(reason));
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = path == "-" ? dup(STDIN_FILENO)
                    : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) Fail(path_, errno);
  struct stat facts = {};
  if (fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode)) {
    size_ = static_cast<uint64_t>(facts.st_size);
  }
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

bool InputFile::Read(size_t bytes, std::string& out) {
  const size_t before = out.size();
  out.resize(before + bytes);
  ssize_t got = 0;
  do {
    got = read(fd_, out.data() + before, bytes);
  } while (got < 0 && errno == EINTR && PendingSignal() == 0);
  const int reason = errno;
  out.resize(before + static_cast<size_t>(got > 0 ? got : 0));
  if (got < 0 && reason != EINTR) Fail(path_, reason);
  return got > 0;
}

}  // namespace tarn::cli
