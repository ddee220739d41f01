// Texts that end a generated text: found in a stream of bytes, whatever tokens
// and characters they are split over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

inline constexpr size_t kMaxStopTexts = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of each

/// Holds bytes back as long as a stop text may begin in them. The stop text
/// that is complete first ends the stream; of those complete at one byte, the
/// longest. One thread at a time.
class StopTexts {
 public:
  StopTexts() = default;
  /// Throws ArgumentError for more than kMaxStopTexts, and for one that is
  /// empty or longer than kMaxStopBytes.
  explicit StopTexts(const std::vector<std::string>& texts);

  /// Takes the next bytes and appends to `out` those of all so far that no stop
  /// text can reach any more. True once a stop text is complete: then `out`
  /// ends before it, and nothing after it is read. O(bytes * texts).
  bool Push(std::string_view bytes, std::string& out);
  /// The one that ended the stream last; empty before.
  const std::string& found() const { return found_; }
  /// The bytes held back; from then on nothing is.
  std::string Take();
  /// Begins a new stream.
  void Reset();

 private:
  // One stop text, and how many of its first bytes the stream ends in.
  struct Pattern {
    std::string text;
    // [i]: the longest proper prefix of text that its first i + 1 bytes end in.
    std::vector<size_t> borders;
    size_t matched = 0;
    void Add(char byte);
  };

  std::vector<Pattern> patterns_;
  std::string held_, found_;
};

}  // namespace tarn
