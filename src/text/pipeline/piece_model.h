// What turns one piece of a text into tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace tarn {

/// Immutable, thread-safe.
class PieceModel {
 public:
  static constexpr size_t kDone = ~size_t{0};
  virtual ~PieceModel() = default;
  /// Appends the ids of a piece, which is not empty. kDone, or the offset of
  /// the first byte that no token stands for; then `ids` has any content.
  virtual size_t Encode(std::string_view piece,
                        std::vector<int32_t>& ids) const = 0;
};

using PieceModelPointer = std::unique_ptr<const PieceModel>;

}  // namespace tarn
