// Sets a variable for as long as it lives.
#pragma once

#include <utility>

namespace tarn::jinja {

template <typename T>
class Restore {
 public:
  Restore(T& variable, T value)
      : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  ~Restore() { variable_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};

}  // namespace tarn::jinja
