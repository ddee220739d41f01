// One visitor of several functions, for std::visit.
#pragma once

namespace tarn {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace tarn
