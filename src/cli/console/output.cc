#include "cli/console/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "core/file.h"
#include "text/utf8.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBufferBytes = 1 << 16;
constexpr auto kFlushInterval = std::chrono::milliseconds(10);
constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(10);

}  // namespace

bool StreamsAreOne() {
  struct stat out, error;
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
         out.st_dev == error.st_dev && out.st_ino == error.st_ino;
}

void Payload::Write(std::string_view text) {
  if (reader_gone_) return;
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) Flush();
}

void Payload::Flush() {
  const std::string text = std::exchange(buffer_, {});
  if (!reader_gone_) reader_gone_ = !WriteStream(fd_, text, "standard output");
  last_flush_ = Clock::now();
}

void Payload::FlushIfDue() {
  if (Clock::now() - last_flush_ >= kFlushInterval) Flush();
}

std::string Utf8Stream::Push(std::string_view bytes) {
  held_ += bytes;
  const size_t tail = UnfinishedUtf8Tail(held_);
  std::string ready = held_.substr(0, held_.size() - tail);
  held_.erase(0, ready.size());
  return ready;
}

std::string Utf8Stream::Finish() { return std::exchange(held_, {}); }

Progress::Progress(std::string label, uint64_t total)
    : label_(std::move(label)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      last_(Clock::now()) {}

Progress::~Progress() {
  if (terminal_ && shown_) std::fputs("\r\x1B[K", stderr);
}

void Progress::Update(uint64_t done, const std::string& note) {
  const auto now = Clock::now();
  const auto wait = terminal_ ? Clock::duration(kTerminalInterval)
                              : Clock::duration(kPlainInterval);
  if (now - last_ < wait) return;
  last_ = now;
  shown_ = true;
  std::string share;
  if (total_ > 0) share = StrCat(" ", 100 * done / total_, " %");
  std::fprintf(stderr, "%s%s%s  %s%s", terminal_ ? "\r" : "", label_.c_str(),
               share.c_str(), note.c_str(), terminal_ ? "\x1B[K" : "\n");
  std::fflush(stderr);
}

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

}  // namespace tarn::cli
