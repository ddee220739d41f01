// Changes to the bytes of files and to the values of JSON texts, drawn from a
// seed. For tests alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace tarn {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(seed) {}

  // One to four changes; every third time flipped bits and bytes only, which
  // keep the size and so reach what comes after the size checks.
  void Mutate(std::string& bytes) {
    const uint64_t kinds = rng_.Below(3) == 0 ? 2 : 9;
    for (uint64_t n = 1 + rng_.Below(4); n > 0; --n) Change(bytes, kinds);
  }
  uint64_t Below(uint64_t bound) { return rng_.Below(bound); }

  // One to three values of a JSON text become others, so that what is read
  // after the parser is reached too.
  void MutateJson(std::string& text) {
    auto root = nlohmann::ordered_json::parse(text, nullptr, false);
    if (root.is_discarded()) return Mutate(text);
    for (uint64_t n = 1 + rng_.Below(3); n > 0; --n) ChangeValue(root);
    text = root.dump(-1, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace);
  }

 private:
  size_t At(const std::string& bytes) {
    // Half of the changes fall into the first 2 KiB, where the headers are.
    const uint64_t size = bytes.size();
    const uint64_t reach =
        rng_.Below(2) ? size : std::min<uint64_t>(size, 2048);
    return reach == 0 ? 0 : rng_.Below(reach);
  }

  void Change(std::string& bytes, uint64_t kinds) {
    const size_t at = At(bytes);
    switch (rng_.Below(kinds)) {
      case 0:  // one bit
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << rng_.Below(8));
        break;
      case 1:  // one byte
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng_.Below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1 + rng_.Below(40),
                     static_cast<char>(rng_.Below(256)));
        break;
      case 4:
        bytes.erase(at, 1 + rng_.Below(40));
        break;
      case 5:  // a piece of itself elsewhere
        bytes.insert(at, bytes.substr(At(bytes), 1 + rng_.Below(200)));
        break;
      case 6:
        ReplaceWord(bytes);
        break;
      case 7:
        ReplaceNumber(bytes);
        break;
      default:
        Length(bytes);
    }
  }

  // Words that JSON, the header and the config give a meaning to.
  void ReplaceWord(std::string& bytes) {
    static constexpr const char* kWords[] = {"F32",
                                             "BF16",
                                             "F16",
                                             "I64",
                                             "shape",
                                             "dtype",
                                             "data_offsets",
                                             "\"linear\"",
                                             "\"full\"",
                                             "\"rotary\"",
                                             "\"none\"",
                                             "true",
                                             "false",
                                             "null",
                                             "NaN",
                                             "[",
                                             "]",
                                             "{",
                                             "}",
                                             "[[[[[[[[",
                                             "\"",
                                             ",",
                                             ":",
                                             "\\u0000",
                                             "vocab_size",
                                             "n_layers",
                                             "d_model",
                                             "__metadata__",
                                             "\"char\"",
                                             "predictor.bias",
                                             "norm.weight"};
    const auto pick = [&] { return kWords[rng_.Below(std::size(kWords))]; };
    const std::string from = pick();
    const size_t found = bytes.find(from, At(bytes));
    if (found != std::string::npos) {
      bytes.replace(found, from.size(), pick());
    } else {
      bytes.insert(At(bytes), pick());
    }
  }

  // The number at or after a place becomes one of those that break programs.
  void ReplaceNumber(std::string& bytes) {
    static constexpr const char* kNumbers[] = {"0",
                                               "1",
                                               "-1",
                                               "2",
                                               "3",
                                               "255",
                                               "257",
                                               "65536",
                                               "2147483647",
                                               "2147483648",
                                               "4294967295",
                                               "4294967296",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551615",
                                               "18446744073709551616",
                                               "1e999",
                                               "-0",
                                               "1.5",
                                               "1e-320",
                                               "1000000",
                                               "1073741824"};
    const size_t found = bytes.find_first_of("0123456789", At(bytes));
    if (found == std::string::npos) return;
    size_t end = bytes.find_first_not_of("0123456789", found);
    if (end == std::string::npos) end = bytes.size();
    bytes.replace(found, end - found,
                  kNumbers[rng_.Below(std::size(kNumbers))]);
  }

  using Json = nlohmann::ordered_json;

  // Any value of the tree, the root too.
  Json& Some(Json& root) {
    Json* at = &root;
    while (at->is_structured() && !at->empty() && rng_.Below(8) != 0) {
      auto next = at->begin();
      std::advance(next, static_cast<int64_t>(rng_.Below(at->size())));
      at = &*next;
    }
    return *at;
  }

  Json Odd() {
    static const std::vector<Json> kOdd = {
        nullptr,
        true,
        false,
        0,
        1,
        -1,
        2,
        3,
        7,
        97,
        255,
        65536,
        1 << 24,
        int64_t{1} << 31,
        int64_t{1} << 32,
        INT64_MAX,
        INT64_MIN,
        UINT64_MAX,
        0.0,
        -0.5,
        1.5,
        1e-320,
        1e30,
        1e300,
        "",
        "linear",
        "full",
        "Infinity",
        "linear_attention",
        "full_attention",
        "sliding_attention",
        "yarn",
        "llama3",
        "\x01",
        "\xF0\x9F\x98\x80",
        std::string(3000, 'x'),
        Json::array(),
        Json::object(),
        {1, 2, 3},
        {{"a", 1}},
        {nullptr},
        std::vector<int>(600, 1),
        std::vector<std::string>(600, "moe")};
    return kOdd[rng_.Below(kOdd.size())];
  }

  void ChangeValue(Json& root) {
    Json& at = Some(root);
    switch (rng_.Below(6)) {
      case 0:
      case 1:
        at = Odd();
        break;
      case 2:  // that of another key
        at = Json(Some(root));
        break;
      case 3:
        Drop(at);
        break;
      case 4:
        if (at.is_array()) at.push_back(at.empty() ? Odd() : Json(at[0]));
        if (at.is_object()) at[std::to_string(rng_.Below(10))] = Odd();
        if (at.is_number_integer()) at = at.get<int64_t>() / 2;
        break;
      default:
        for (uint64_t depth = rng_.Below(300); depth > 0; --depth) {
          at = Json::array({std::move(at)});
        }
    }
  }

  void Drop(Json& at) {
    if (!at.is_structured() || at.empty()) {
      at = nullptr;
      return;
    }
    auto gone = at.begin();
    std::advance(gone, static_cast<int64_t>(rng_.Below(at.size())));
    at.erase(gone);
  }

  // The header length of safetensors: the first eight bytes.
  void Length(std::string& bytes) {
    if (bytes.size() < 8) return;
    static constexpr uint64_t kLengths[] = {
        0,          1,          2,          7,     100'000'000, 100'000'001,
        1ull << 31, 1ull << 32, 1ull << 63, ~0ull, ~0ull - 7};
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    length = rng_.Below(2) ? kLengths[rng_.Below(std::size(kLengths))]
                           : length + rng_.Below(64) - 32;
    std::memcpy(bytes.data(), &length, sizeof(length));
  }

  Rng rng_;
};

}  // namespace tarn
