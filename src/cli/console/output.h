// stdout carries the payload, stderr everything else.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tarn::cli {

/// Whether stdout and stderr are one file, pipe or terminal, as after 2>&1.
bool StreamsAreOne();

/// Buffered writer of the payload. When the reader goes away (EPIPE) it stops
/// writing and reports it; any other failure, such as a full disk, is IoError.
class Payload {
 public:
  explicit Payload(std::FILE* file) : fd_(fileno(file)) {}
  void Write(std::string_view text);
  /// Sends what is buffered.
  void Flush();
  /// Flush() if the last one is at least 10 ms ago: a fast model then costs
  /// few system calls, a slow one still shows each token at once.
  void FlushIfDue();
  bool reader_gone() const { return reader_gone_; }

 private:
  int fd_;
  std::string buffer_;
  bool reader_gone_ = false;
  std::chrono::steady_clock::time_point last_flush_{};
};

/// Holds back the bytes of an unfinished UTF-8 sequence (at most 3), so that a
/// terminal never sees half a character.
class Utf8Stream {
 public:
  /// Adds bytes and returns those that may be shown now. Bytes that are not
  /// UTF-8 pass unchanged.
  std::string Push(std::string_view bytes);
  /// What is still held back, as it is.
  std::string Finish();

 private:
  std::string held_;
};

/// One line of progress on stderr: on a terminal rewritten at most ten times a
/// second and cleared at the end, otherwise a plain line every ten seconds.
class Progress {
 public:
  /// total: 0 when not known.
  Progress(std::string label, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `done` of `total`, and a text of the caller's. Cheap when nothing is due.
  void Update(uint64_t done, const std::string& note);

 private:
  std::string label_;
  uint64_t total_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Shortest text that reads back as the same double; JSON has no NaN or
/// infinity, which become "null".
std::string NumberText(double value);

}  // namespace tarn::cli
