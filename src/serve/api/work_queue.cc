#include "serve/api/work_queue.h"

#include <utility>

namespace tarn::serve {

WorkQueue::WorkQueue(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkQueue::~WorkQueue() { Finish(); }

void WorkQueue::Add(std::function<void()> function) {
  {
    const std::lock_guard lock(turn_);
    if (ending_) return;
    waiting_.push_back(std::move(function));
  }
  wake_.notify_one();
}

void WorkQueue::Finish() {
  {
    const std::lock_guard lock(turn_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkQueue::Loop() {
  std::unique_lock lock(turn_);
  while (true) {
    wake_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> function = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    function();
    function = nullptr;  // what it holds goes before the next one is awaited
    lock.lock();
  }
}

}  // namespace tarn::serve
