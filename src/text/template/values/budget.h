// What a rendering has used of its limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "text/template/chat_template.h"

namespace tarn::jinja {

/// Each function that counts throws a Fault once its limit is passed.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const TemplateLimits& limits() const { return limits_; }

  void Step(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) FailSteps();
  }
  /// An operation that reads or writes so many bytes.
  void Work(uint64_t bytes) { Step(1 + bytes / 64); }
  void Take(uint64_t bytes) {
    if (bytes > limits_.max_memory_bytes - memory_) FailMemory();
    memory_ += bytes;
  }
  void Return(uint64_t bytes) { memory_ -= bytes; }
  uint32_t depth() const { return depth_; }

 private:
  friend class Deeper;
  [[noreturn]] void FailSteps() const;
  [[noreturn]] void FailMemory() const;
  [[noreturn]] void FailDepth() const;

  const TemplateLimits limits_;
  uint64_t steps_ = 0, memory_ = 0;
  uint32_t depth_ = 0;
};

/// One level of evaluation, as long as it lives.
class Deeper {
 public:
  explicit Deeper(Budget& budget) : budget_(budget) {
    if (budget_.depth_ >= budget_.limits_.max_depth) budget_.FailDepth();
    ++budget_.depth_;
  }
  ~Deeper() { --budget_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Budget& budget_;
};

/// Memory that is returned when its owner goes. Without a budget (the constants
/// of a program) nothing is counted.
class Account {
 public:
  Account() = default;
  Account(Budget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->Take(bytes_);
  }
  Account(Account&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Account& operator=(Account&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Account() {
    if (budget_ != nullptr) budget_->Return(bytes_);
  }
  /// Raises the memory to at least `bytes`.
  void Grow(uint64_t bytes) {
    if (bytes <= bytes_) return;
    if (budget_ != nullptr) budget_->Take(bytes - bytes_);
    bytes_ = bytes;
  }

 private:
  Budget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tarn::jinja
