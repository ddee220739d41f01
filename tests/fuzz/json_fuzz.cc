// The strict readers of JSON: all three refuse the same texts, and what they
// read is what they read again of what is written.
#include <optional>
#include <string>

#include "core/json.h"
#include "fuzz/fuzz_input.h"
#include "text/template/ordered_json.h"

namespace tarn::fuzz {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;

void ReadJson(std::string_view text) {
  const Result<nlohmann::json> read =
      ParseStrictJson(text, "input", kMostBytes);
  const Result<nlohmann::ordered_json> ordered =
      ParseOrderedJson(text, "input", kMostBytes);
  Require(read.ok() == ordered.ok(), "two readers do not agree");
  if (!read.ok()) {
    CheckRefusal(read.error());
    return CheckRefusal(ordered.error());
  }
  const nlohmann::json& value = read.value();
  Require(nlohmann::json::accept(text), "a text that is no JSON");
  Require(nlohmann::json(ordered.value()) == value, "two values of one text");
  const Result<nlohmann::json> again =
      ParseStrictJson(value.dump(), "input", kMostBytes);
  Require(again.ok() && again.value() == value, "another value is read again");
  JsonInteger(value);
  JsonGiven(value);
  ++Accepted();
  size_t members = 0;
  const std::optional<Error> visited = VisitStrictJson(
      text, "input", kMostBytes, kMaxJsonValues,
      [&](const std::string& key, nlohmann::json& member) {
        Require(value.at(key) == member, "another member is visited");
        ++members;
        return std::optional<Error>();
      });
  Require(visited.has_value() != value.is_object(), "visits do not agree");
  Require(!value.is_object() || members == value.size(), "unvisited members");
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tarn::fuzz::Try(
      [&] { tarn::fuzz::ReadJson(tarn::fuzz::TextOf(data, size)); });
  return 0;
}
