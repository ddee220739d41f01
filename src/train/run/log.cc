#include "train/run/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>

namespace tarn::train {
namespace {

// Nine digits give back every float32; JSON has no NaN.
void Field(std::string& line, const char* name, double value) {
  char buffer[64];
  if (std::isfinite(value)) {
    std::snprintf(buffer, sizeof buffer, ", \"%s\": %.9g", name, value);
  } else {
    std::snprintf(buffer, sizeof buffer, ", \"%s\": null", name);
  }
  line += buffer;
}

void Field(std::string& line, const char* name,
           const std::optional<double>& value) {
  if (value) Field(line, name, *value);
}

}  // namespace

std::string LogLine(const StepFigures& figures) {
  std::string line = StrCat("{\"step\": ", figures.step);
  Field(line, "loss", figures.loss);
  Field(line, "bits_per_byte", figures.bits_per_byte);
  Field(line, "bits_per_dim", figures.bits_per_dim);
  Field(line, "accuracy", figures.accuracy);
  Field(line, "val_loss", figures.val_loss);
  Field(line, "val_bits_per_byte", figures.val_bits_per_byte);
  Field(line, "val_bits_per_dim", figures.val_bits_per_dim);
  Field(line, "val_accuracy", figures.val_accuracy);
  Field(line, "val_token_error_rate", figures.val_token_error_rate);
  Field(line, "test_loss", figures.test_loss);
  Field(line, "test_token_error_rate", figures.test_token_error_rate);
  Field(line, "lr", figures.lr);
  Field(line, "grad_norm", figures.grad_norm);
  line += StrCat(", \"tokens\": ", figures.tokens);
  if (figures.epoch_tokens) {
    line += StrCat(", \"epoch_tokens\": ", *figures.epoch_tokens);
  }
  Field(line, "tokens_per_s", figures.tokens_per_s);
  Field(line, "elapsed_s", figures.elapsed_s);
  Field(line, "cpu_s", figures.cpu_s);
  if (figures.ranks > 1) {
    line += StrCat(", \"ranks\": ", figures.ranks);
    Field(line, "exchange_s", figures.exchange_s);
    if (figures.sequence_bytes) {
      line += StrCat(", \"sequence_bytes\": ", *figures.sequence_bytes);
    }
  }
  line +=
      StrCat(", \"device\": \"", DeviceName(figures.device),
             "\", \"precision\": \"", PrecisionName(figures.precision), "\"");
  return line + "}\n";
}

StepLog::StepLog(const std::string& path, uint64_t keep_bytes)
    : path_(path),
      fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)),
      bytes_(keep_bytes) {
  struct stat info;
  if (fd_.get() < 0 || fstat(fd_.get(), &info) != 0) {
    throw SystemError(path, "a log that can be written", errno);
  }
  if (static_cast<uint64_t>(info.st_size) < keep_bytes) {
    throw FormatError(path, StrCat(keep_bytes, " bytes or more"),
                      StrCat(info.st_size));
  }
  if (ftruncate(fd_.get(), static_cast<off_t>(keep_bytes)) != 0 ||
      lseek(fd_.get(), 0, SEEK_END) < 0) {
    throw SystemError(path, "a log that can be cut", errno);
  }
}

void StepLog::Write(const StepFigures& figures) {
  const std::string line = LogLine(figures);
  // A line takes one write call as a rule: a reader never sees half of it for
  // long.
  for (size_t done = 0; done < line.size();) {
    const ssize_t put =
        write(fd_.get(), line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw SystemError(path_, "room for a line", errno);
    done += static_cast<size_t>(put);
  }
  bytes_ += line.size();
}

void StepLog::Sync() {
  if (fsync(fd_.get()) != 0 && errno != EINVAL) {
    throw SystemError(path_, "a log that can be synced", errno);
  }
}

}  // namespace tarn::train
