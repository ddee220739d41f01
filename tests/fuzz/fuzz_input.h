// What the fuzz targets share: where an input may be refused, what must hold of
// what was read, and inputs of several parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn::fuzz {

/// A property that does not hold. No target catches it: it ends a fuzzer's run
/// and fails the test.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void Require(bool holds, const std::string& what) {
  if (!holds) throw Broken(what);
}

/// How many inputs were read to their end. The seeds whose names begin with
/// "valid" must be among them.
inline int64_t& Accepted() {
  static int64_t count = 0;
  return count;
}

/// What the last refusal said, for messages.
inline std::string& LastRefusal() {
  static std::string text;
  return text;
}

/// A refusal is one short line, and no broken invariant.
inline void CheckRefusal(const Error& error) {
  const std::string& text = LastRefusal() = error.what();
  Require(
      error.code() != ErrorCode::kInternal && error.code() != ErrorCode::kOk,
      error.what());
  Require(text.find_first_of("\n\r") == text.npos && text.size() < 4000,
          "a refusal that is no short line: " + text);
}

/// Runs what may refuse its input by a typed error. Anything else that it
/// throws, std::bad_alloc too, is a finding.
template <typename F>
void Try(const F& work) {
  try {
    work();
  } catch (const Error& error) {
    CheckRefusal(error);
  }
}

inline std::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// The parts of an input, which NUL bytes separate: `count` of them. The last
/// has the rest; those that the input lacks are empty.
inline std::vector<std::string> Parts(std::string_view input, size_t count) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    const size_t end = input.find('\0');
    parts.emplace_back(input.substr(0, end));
    input = end == input.npos ? std::string_view() : input.substr(end + 1);
  }
  parts.emplace_back(input);
  return parts;
}

}  // namespace tarn::fuzz
