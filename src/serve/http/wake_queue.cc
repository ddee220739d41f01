#include "serve/http/wake_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tarn::serve {

WakeQueue::WakeQueue() {
  if (::pipe(ends_) != 0) {
    throw IoError("pipe", "two descriptors", std::strerror(errno));
  }
  for (const int end : ends_) {
    ::fcntl(end, F_SETFL, O_NONBLOCK);
    ::fcntl(end, F_SETFD, FD_CLOEXEC);
  }
}

WakeQueue::~WakeQueue() {
  for (const int end : ends_) ::close(end);
}

void WakeQueue::Add(std::shared_ptr<Exchange> exchange) {
  {
    const std::lock_guard lock(turn_);
    added_.push_back(std::move(exchange));
    if (added_.size() > 1) return;
  }
  const char byte = 0;
  while (::write(ends_[1], &byte, 1) < 0 && errno == EINTR) {
  }
}

std::vector<std::shared_ptr<Exchange>> WakeQueue::Take() {
  // First the bytes, then the list: what is added in between has its byte.
  char bytes[16];
  while (::read(ends_[0], bytes, sizeof(bytes)) > 0) {
  }
  const std::lock_guard lock(turn_);
  return std::exchange(added_, {});
}

}  // namespace tarn::serve
