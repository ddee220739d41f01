// Threads for what takes long before a text begins: reading a document,
// tokenizing it, compiling a grammar. The server's thread only hands requests
// over, so that no request holds up the streams of others.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
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
  /// is dropped. A function that drops the queue's last owner may end it, too:
  /// its own thread ends by itself.
  void Finish();

 private:
  // Shared with the threads, of which one may outlive the queue.
  struct Line {
    std::mutex turn;  // guards what follows
    std::condition_variable wake;
    std::deque<std::function<void()>> waiting;
    bool ending = false;
  };
  static void Loop(Line& line);

  std::shared_ptr<Line> line_ = std::make_shared<Line>();
  std::vector<std::thread> threads_;
};

}  // namespace tarn::serve
