#include "weights/shard_index.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr const char* kMap = "weight_map";
// Values of one member: every tensor that a model may have, with its file.
constexpr uint64_t kMaxValues = uint64_t{1} << 19;
constexpr size_t kMaxNameBytes = 255;  // of a file, the system's own bound

// Printable ASCII, as the name becomes part of messages.
bool IsBareName(const std::string& name) {
  const auto fits = [](char c) {
    return c >= 0x20 && c < 0x7F && c != '/' && c != '\\';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." &&
         name != ".." && std::all_of(name.begin(), name.end(), fits);
}

std::optional<Error> ReadMap(const nlohmann::json& value,
                             const std::string& where,
                             std::map<std::string, std::string>& shards) {
  if (!value.is_object() || value.empty()) {
    return FormatError(StrCat(where, ": ", kMap),
                       "an object of tensor names and file names",
                       value.is_object() ? "an empty one" : JsonGiven(value));
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : value.items()) {
    const std::string entry = StrCat(where, ": ", kMap, ": ", Quoted(tensor));
    if (!file.is_string()) {
      return FormatError(entry, "the name of a file", JsonGiven(file));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!IsBareName(name)) {
      return FormatError(entry, "the name of a file in the same folder",
                         Quoted(name));
    }
    files.insert(name);
    if (files.size() > kMaxShards) {
      return FormatError(where, StrCat("at most ", kMaxShards, " files"),
                         "more");
    }
    shards.emplace(tensor, name);
  }
  return std::nullopt;
}

}  // namespace

Result<std::map<std::string, std::string>> ShardsFromJson(
    std::string_view text, const std::string& where) {
  std::map<std::string, std::string> shards;
  const auto error = VisitStrictJson(
      text, where, kMaxIndexBytes, kMaxValues,
      [&](const std::string& key, const nlohmann::json& value) {
        return key == kMap ? ReadMap(value, where, shards) : std::nullopt;
      });
  if (error) return *error;
  if (shards.empty()) {
    return FormatError(where, StrCat("the key ", kMap), "none");
  }
  return shards;
}

}  // namespace tarn
