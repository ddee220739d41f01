// Threads for what takes long before a text begins: reading a document,
// tokenizing it, compiling a grammar. The server's thread only hands requests
// over, so that no request holds up the streams of others.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tarn::serve {

/// Runs functions in the order in which they came, `threads` at a time. They
/// must not throw. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(int threads = 2);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }
  void Add(std::function<void()> function);
  /// Runs what has been added and ends the threads; what is added from now on
  /// is dropped.
  void Finish();

 private:
  void Loop();

  std::mutex turn_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace tarn::serve
