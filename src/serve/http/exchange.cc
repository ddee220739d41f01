#include "serve/http/exchange.h"

#include <utility>

namespace tarn::serve {

void Exchange::Notify() {
  if (!queued_.exchange(true)) queue_->Add(shared_from_this());
}

void Exchange::Send(int status, std::string type, std::string body,
                    Headers headers) {
  {
    const std::lock_guard lock(turn_);
    if (std::exchange(begun_, true)) return;
    head_ = Head{status, std::move(type), std::move(headers), false};
    unsent_ += body.size();
    body_ = std::move(body);
    ended_ = true;
  }
  Notify();
}

void Exchange::Begin(int status, std::string type, Headers headers) {
  {
    const std::lock_guard lock(turn_);
    if (std::exchange(begun_, true)) return;
    head_ = Head{status, std::move(type), std::move(headers), true};
  }
  Notify();
}

bool Exchange::Write(std::string chunk) {
  if (gone()) return false;
  {
    const std::lock_guard lock(turn_);
    if (!begun_ || ended_) return false;
    unsent_ += chunk.size();
    body_ += chunk;
  }
  Notify();
  return true;
}

void Exchange::End() {
  {
    const std::lock_guard lock(turn_);
    if (!begun_) return;
    ended_ = true;
  }
  Notify();
}

void Exchange::OnGone(std::function<void()> function) {
  {
    const std::lock_guard lock(turn_);
    if (!gone()) {
      on_gone_.push_back(std::move(function));
      return;
    }
  }
  function();
}

std::optional<Exchange::Head> Exchange::TakeHead() {
  const std::lock_guard lock(turn_);
  return std::exchange(head_, std::nullopt);
}

std::string Exchange::TakeBody(bool& ended) {
  const std::lock_guard lock(turn_);
  ended = ended_;
  return std::exchange(body_, std::string());
}

bool Exchange::HasNews() const {
  const std::lock_guard lock(turn_);
  return head_.has_value() || !body_.empty() || ended_;
}

void Exchange::SetGone() {
  std::vector<std::function<void()>> functions;
  {
    const std::lock_guard lock(turn_);
    gone_.store(true, std::memory_order_relaxed);
    functions.swap(on_gone_);
  }
  for (const auto& function : functions) function();
}

std::string_view Request::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Response::Response(std::shared_ptr<Exchange> exchange)
    : exchange_(std::move(exchange)) {}

void Response::Send(int status, std::string content_type, std::string body,
                    Headers headers) {
  exchange_->Send(status, std::move(content_type), std::move(body),
                  std::move(headers));
}

void Response::Begin(int status, std::string content_type, Headers headers) {
  exchange_->Begin(status, std::move(content_type), std::move(headers));
}

bool Response::Write(std::string chunk) {
  return exchange_->Write(std::move(chunk));
}

void Response::End() { exchange_->End(); }
bool Response::gone() const { return exchange_->gone(); }

void Response::OnGone(std::function<void()> function) {
  exchange_->OnGone(std::move(function));
}

size_t Response::unsent() const { return exchange_->unsent(); }

}  // namespace tarn::serve
