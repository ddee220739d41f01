// What writes a weight file from its beginning into a sink that may have its
// first bytes already. Private to the writers of files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/file.h"

namespace tarn {

class ContinuedSink {
 public:
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  /// begun: bytes that `to` has. head: bytes before the data, of which there
  /// are `total`; progress counts these.
  ContinuedSink(ByteSink& to, uint64_t begun, uint64_t head, uint64_t total,
                Progress progress)
      : to_(to),
        begun_(begun),
        head_(head),
        total_(total),
        progress_(std::move(progress)) {
    Report(begun);
  }

  /// Passes over the next bytes if the sink has them all.
  bool Skip(uint64_t size) {
    if (at_ + size > begun_) return false;
    at_ += size;
    return true;
  }
  /// Writes those of the next bytes that the sink lacks.
  void Put(const void* data, uint64_t size) {
    const uint64_t skip = std::min(size, begun_ - std::min(begun_, at_));
    if (skip < size) {
      to_.Write(static_cast<const char*>(data) + skip,
                static_cast<size_t>(size - skip));
    }
    at_ += size;
  }
  /// Throws an Error of kind kInterrupted where `progress` says so.
  void Report() const { Report(std::max(at_, begun_)); }

 private:
  void Report(uint64_t has) const {
    const uint64_t done = has - std::min(has, head_);
    if (progress_ && !progress_(done, total_)) {
      throw Error(ErrorCode::kInterrupted, "interrupted");
    }
  }

  ByteSink& to_;
  const uint64_t begun_, head_, total_;
  const Progress progress_;
  uint64_t at_ = 0;
};

}  // namespace tarn
