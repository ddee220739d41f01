// Hashes that pick held-out records, name a corpus or a model, and find damage
// in a file. Not cryptographic: collisions can be made on purpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tarn {

/// A bijection of 64-bit words in which every input bit reaches every output
/// bit (the finaliser of MurmurHash3).
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Hash of bytes that come in pieces, read as little-endian words: any split of
/// them gives HashBytes of the whole. `total`: the bytes of all pieces.
class PiecewiseHash {
 public:
  explicit PiecewiseHash(uint64_t total)
      : hash_(Mix(total + 0x9e3779b97f4a7c15ULL)) {}

  void Add(std::string_view bytes) {
    size_t i = 0;
    while (held_ > 0 && i < bytes.size()) {  // completes the word begun before
      AddByte(bytes[i++]);
    }
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, 8);
      AddWord(word);
    }
    while (i < bytes.size()) AddByte(bytes[i++]);
  }
  uint64_t Finish() const { return Mix(hash_ ^ word_); }

 private:
  void AddWord(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 32;
  }
  void AddByte(char byte) {
    word_ |= uint64_t{static_cast<uint8_t>(byte)} << (8 * held_);
    if (++held_ < 8) return;
    AddWord(word_);
    word_ = 0;
    held_ = 0;
  }

  uint64_t hash_;
  uint64_t word_ = 0;  // of `held_` bytes, the rest zero
  int held_ = 0;
};

/// Another hash of bytes that come in pieces, for large contents: words go in
/// turn to eight hashes, which a processor runs side by side. Any split of the
/// bytes gives the same.
class WideHash {
 public:
  void Add(std::string_view bytes) {
    if (bytes.empty()) return;
    total_ += bytes.size();
    if (held_ > 0) {
      const size_t count = std::min(bytes.size(), kBlock - held_);
      std::memcpy(block_ + held_, bytes.data(), count);
      held_ += count;
      bytes.remove_prefix(count);
      if (held_ < kBlock) return;
      AddBlocks({block_, kBlock});
      held_ = 0;
    }
    const size_t whole = bytes.size() / kBlock * kBlock;
    AddBlocks(bytes.substr(0, whole));
    held_ = bytes.size() - whole;
    if (held_ > 0) std::memcpy(block_, bytes.data() + whole, held_);
  }
  uint64_t Finish() const {
    WideHash last = *this;
    if (last.held_ > 0) {
      std::memset(last.block_ + held_, 0, kBlock - held_);
      last.AddBlocks({last.block_, kBlock});
    }
    uint64_t hash = Mix(total_ + 0x9e3779b97f4a7c15ULL);
    for (const uint64_t lane : last.lanes_) hash = Mix(hash ^ lane);
    return hash;
  }

 private:
  static constexpr size_t kLanes = 8, kBlock = kLanes * sizeof(uint64_t);

  void AddBlocks(std::string_view bytes) {
    uint64_t lanes[kLanes];
    std::memcpy(lanes, lanes_, sizeof(lanes));
    for (size_t i = 0; i < bytes.size(); i += kBlock) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        uint64_t word;
        std::memcpy(&word, bytes.data() + i + lane * sizeof(word),
                    sizeof(word));
        lanes[lane] = (lanes[lane] ^ word) * 0x9e3779b97f4a7c15ULL;
        lanes[lane] ^= lanes[lane] >> 32;
      }
    }
    std::memcpy(lanes_, lanes, sizeof(lanes));
  }

  uint64_t lanes_[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  char block_[kBlock] = {};  // the first `held_` bytes of the next block
  size_t held_ = 0;
  uint64_t total_ = 0;
};

/// Hash of bytes. O(bytes), several GB/s.
inline uint64_t HashBytes(std::string_view bytes) {
  PiecewiseHash hash(bytes.size());
  hash.Add(bytes);
  return hash.Finish();
}

/// The hash of the bytes that gave `hash` followed by these bytes.
inline uint64_t ExtendHash(uint64_t hash, std::string_view bytes) {
  return Mix(hash ^ HashBytes(bytes));
}

/// 16 hexadecimal digits.
inline std::string HashText(uint64_t hash) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4) {
    *digit = "0123456789abcdef"[hash & 15];
  }
  return text;
}

}  // namespace tarn
