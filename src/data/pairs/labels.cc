#include "data/pairs/labels.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "text/utf8.h"

namespace tarn::train {
namespace {

constexpr size_t kMaxLabels = 65536;
constexpr uint64_t kMaxBytes = uint64_t{1} << 26;

}  // namespace

Labels::Labels(const TextFiles& files, const PairSplit& split) {
  std::set<std::string_view> names;
  for (const std::vector<Pair>* side : {&split.training, &split.held_out}) {
    for (const Pair& pair : *side) {
      if (!names.insert(pair.output).second) continue;
      if (ReplaceInvalidUtf8(pair.output) != pair.output) {
        throw FormatError(PlaceOf(files, pair), "a label in UTF-8",
                          Quoted(pair.output));
      }
      if (names.size() > kMaxLabels) {
        throw FormatError(PlaceOf(files, pair),
                          StrCat("at most ", kMaxLabels, " labels"), "more");
      }
    }
  }
  if (names.size() < 2) {
    throw FormatError("data", "two labels or more", StrCat(names.size()));
  }
  names_.assign(names.begin(), names.end());
  Sort();
}

Labels Labels::Open(const std::string& dir, int64_t n_classes) {
  const std::string path = dir + "/labels.json";
  Result<std::string> text = ReadFile(path, kMaxBytes);
  if (!text.ok()) throw FormatError(text.error().what());
  Result<nlohmann::json> parsed =
      ParseStrictJson(text.value(), path, kMaxBytes);
  if (!parsed.ok()) throw FormatError(parsed.error().what());
  const nlohmann::json& json = parsed.value();
  if (!json.is_array() || static_cast<int64_t>(json.size()) != n_classes) {
    throw FormatError(path, StrCat("an array of ", n_classes, " labels"),
                      json.is_array() ? StrCat(json.size()) : JsonGiven(json));
  }
  Labels labels;
  for (const nlohmann::json& name : json) {
    if (!name.is_string()) {
      throw FormatError(path, "labels as texts", JsonGiven(name));
    }
    labels.names_.push_back(name.get<std::string>());
  }
  labels.Sort();
  for (int64_t i = 1; i < labels.size(); ++i) {
    const std::string& name = labels.names_[labels.sorted_[i]];
    if (labels.names_[labels.sorted_[i - 1]] == name) {
      throw FormatError(path, "distinct labels", Quoted(name) + " twice");
    }
  }
  return labels;
}

void Labels::Sort() {
  sorted_.resize(names_.size());
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  std::sort(sorted_.begin(), sorted_.end(),
            [&](int64_t a, int64_t b) { return names_[a] < names_[b]; });
}

int64_t Labels::Find(std::string_view name) const {
  const auto at = std::lower_bound(
      sorted_.begin(), sorted_.end(), name,
      [&](int64_t i, std::string_view wanted) { return names_[i] < wanted; });
  return at != sorted_.end() && names_[*at] == name ? *at : -1;
}

std::string Labels::ToJson() const {
  return nlohmann::json(names_).dump(1) + "\n";
}

}  // namespace tarn::train
