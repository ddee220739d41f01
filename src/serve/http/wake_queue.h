// How threads tell the server's thread that an answer has news. Private to this
// folder.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace tarn::serve {

class Exchange;

/// News from any thread for the one that polls the descriptor. Posting to an
/// io_context wakes its thread while its lock is held, so that it sleeps again,
/// and does so for every answer: here it is woken once for all that come before
/// it looks.
class WakeQueue {
 public:
  /// Throws IoError.
  WakeQueue();
  ~WakeQueue();
  WakeQueue(const WakeQueue&) = delete;
  WakeQueue& operator=(const WakeQueue&) = delete;

  /// Any thread.
  void Add(std::shared_ptr<Exchange> exchange);
  /// What was added; the descriptor is not readable afterwards. One thread.
  std::vector<std::shared_ptr<Exchange>> Take();
  /// Readable while there is something to take. It stays the queue's.
  int descriptor() const { return ends_[0]; }

 private:
  std::mutex turn_;
  std::vector<std::shared_ptr<Exchange>> added_;
  int ends_[2];  // of a pipe: read, write
};

}  // namespace tarn::serve
