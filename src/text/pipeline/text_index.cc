#include "text/pipeline/text_index.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace tarn {
namespace {

// Slots are at most half full, so that honest texts need three at the most
// nearly always.
constexpr size_t kProbes = 16;

size_t SlotOf(std::string_view text, size_t slots) {
  return std::hash<std::string_view>()(text) & (slots - 1);
}

}  // namespace

TextIndex::TextIndex(std::vector<std::string_view> texts)
    : texts_(std::move(texts)) {
  slots_.assign(std::bit_ceil(2 * texts_.size() + 1), -1);
  const auto is_new = [&](int32_t known, int32_t id) {
    if (texts_[static_cast<size_t>(known)] != texts_[static_cast<size_t>(id)]) {
      return true;
    }
    if (twice_.first < 0) twice_ = {known, id};
    return false;
  };
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i].empty()) continue;
    const auto id = static_cast<int32_t>(i);
    const size_t first = SlotOf(texts_[i], slots_.size());
    size_t probe = 0;
    for (; probe < kProbes; ++probe) {
      int32_t& slot = slots_[(first + probe) & (slots_.size() - 1)];
      if (slot < 0) slot = id;
      if (slot == id || !is_new(slot, id)) break;
    }
    if (probe == kProbes) left_.push_back(id);
  }
  std::stable_sort(left_.begin(), left_.end(), [this](int32_t a, int32_t b) {
    return texts_[static_cast<size_t>(a)] < texts_[static_cast<size_t>(b)];
  });
  left_.erase(std::unique(left_.begin(), left_.end(),
                          [&](int32_t a, int32_t b) { return !is_new(a, b); }),
              left_.end());
}

int32_t TextIndex::Find(std::string_view text) const {
  if (slots_.empty() || text.empty()) return -1;
  const size_t first = SlotOf(text, slots_.size());
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const int32_t id = slots_[(first + probe) & (slots_.size() - 1)];
    if (id < 0) return -1;
    if (texts_[static_cast<size_t>(id)] == text) return id;
  }
  return FindLeft(text);
}

int32_t TextIndex::FindLeft(std::string_view text) const {
  const auto found =
      std::lower_bound(left_.begin(), left_.end(), text,
                       [this](int32_t id, std::string_view wanted) {
                         return texts_[static_cast<size_t>(id)] < wanted;
                       });
  return found == left_.end() || texts_[static_cast<size_t>(*found)] != text
             ? -1
             : *found;
}

}  // namespace tarn
