#include "serve/api/work_queue.h"

#include <utility>

namespace tarn::serve {

WorkQueue::WorkQueue(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([line = line_] { Loop(*line); });
  }
}

WorkQueue::~WorkQueue() { Finish(); }

void WorkQueue::Add(std::function<void()> function) {
  {
    const std::lock_guard lock(line_->turn);
    if (line_->ending) return;
    line_->waiting.push_back(std::move(function));
  }
  line_->wake.notify_one();
}

void WorkQueue::Finish() {
  {
    const std::lock_guard lock(line_->turn);
    line_->ending = true;
  }
  line_->wake.notify_all();
  for (std::thread& thread : threads_) {
    if (!thread.joinable()) continue;
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void WorkQueue::Loop(Line& line) {
  std::unique_lock lock(line.turn);
  while (true) {
    line.wake.wait(lock, [&] { return line.ending || !line.waiting.empty(); });
    if (line.waiting.empty()) return;
    std::function<void()> function = std::move(line.waiting.front());
    line.waiting.pop_front();
    lock.unlock();
    function();
    function = nullptr;  // what it holds goes before the next one is awaited
    lock.lock();
  }
}

}  // namespace tarn::serve
