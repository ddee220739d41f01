#include "cli/console/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/cli.h"
#include "cli/console/signals.h"
#include "core/file.h"

namespace tarn::cli {
namespace {

[[noreturn]] void Fail(const std::string& path, int reason) {
  throw FormatError(InputName(path), "a readable file", SystemReason(reason));
}

}  // namespace

InputFile::InputFile(const std::string& path, InputForm form) : path_(path) {
  fd_ = path == "-" ? dup(STDIN_FILENO)
                    : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) Fail(path_, errno);
  struct stat facts = {};
  if (fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode)) {
    waits_ = false;
    size_ = static_cast<uint64_t>(facts.st_size);
    if (path != "-" && BeginsPacked(fd_)) {
      unpack_ = std::make_unique<UnpackStream>(path);
    }
  }
  if (form == InputForm::kFasta) {
    fasta_ = std::make_unique<FastaReader>(InputName(path_));
  }
  if (unpack_ || fasta_) size_ = 0;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

size_t InputFile::ReadFile(char* out, size_t bytes) {
  if (unpack_) return unpack_->Read(out, bytes);
  ssize_t got = 0;
  do {
    if (waits_ && !WaitForInput(fd_)) return 0;
    got = read(fd_, out, bytes);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno != EINTR) Fail(path_, errno);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

bool InputFile::Read(size_t bytes, std::string& out) {
  std::string piece;
  std::string& read = fasta_ ? piece : out;
  const size_t before = read.size();
  read.resize(before + bytes);
  size_t got = 0;
  try {
    got = ReadFile(read.data() + before, bytes);
  } catch (...) {
    read.resize(before);
    throw;
  }
  read.resize(before + got);
  if (fasta_ && got > 0) fasta_->Read(piece, out);
  if (fasta_ && got == 0 && PendingSignal() == 0) fasta_->Finish();
  return got > 0;
}

}  // namespace tarn::cli
