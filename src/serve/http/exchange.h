// What passes between a handler, on any thread, and a connection, on the
// server's. Private to this folder.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/request.h"
#include "serve/http/wake_queue.h"

namespace tarn::serve {

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const boost::asio::any_io_executor& executor,
           std::shared_ptr<WakeQueue> queue)
      : wake(executor), queue_(std::move(queue)) {}

  // Of a handler.
  void Send(int status, std::string type, std::string body, Headers headers);
  void Begin(int status, std::string type, Headers headers);
  bool Write(std::string chunk);
  void End();
  bool gone() const { return gone_.load(std::memory_order_relaxed); }
  void OnGone(std::function<void()> function);
  size_t unsent() const { return unsent_.load(std::memory_order_relaxed); }

  // Of the connection.
  struct Head {
    int status = 200;
    std::string type;
    Headers headers;
    bool stream = false;
  };
  /// Once an answer has begun.
  std::optional<Head> TakeHead();
  /// What waits to be sent, in one piece; `ended`: nothing follows it.
  std::string TakeBody(bool& ended);
  bool HasNews() const;
  void Sent(size_t bytes) { unsent_ -= bytes; }
  /// From here on, news is added to the queue again. Wakes who waits for it.
  void Wake() {
    queued_ = false;
    wake.cancel();
  }
  /// The client is gone; runs what was to be told.
  void SetGone();

  /// Never expires but is cancelled by news. On the server's thread alone.
  boost::asio::steady_timer wake;

 private:
  void Notify();

  const std::shared_ptr<WakeQueue> queue_;
  std::atomic<bool> queued_{false};
  mutable std::mutex turn_;
  std::optional<Head> head_;
  bool begun_ = false, ended_ = false;
  std::string body_;
  std::vector<std::function<void()>> on_gone_;
  std::atomic<bool> gone_{false};
  std::atomic<size_t> unsent_{0};
};

}  // namespace tarn::serve
