// std::bit_cast, also where the standard library has none yet: the one of the
// WebAssembly build.
#pragma once

#include <bit>
#include <type_traits>

namespace tarn {

/// The object of type To with the bits of `from`; both of one size.
template <typename To, typename From>
constexpr To BitCast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  static_assert(std::is_trivially_copyable_v<To> &&
                std::is_trivially_copyable_v<From>);
#if defined(__cpp_lib_bit_cast)
  return std::bit_cast<To>(from);
#else
  return __builtin_bit_cast(To, from);
#endif
}

}  // namespace tarn
