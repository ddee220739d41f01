#include "runtime/model/labels.h"

#include <set>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 26;
constexpr const char* kFile = "labels.json";

}  // namespace

Result<std::vector<std::string>> LabelsFromJson(std::string_view json,
                                                int64_t n_classes, bool blank) {
  const auto parsed = ParseStrictJson(json, kFile, kMaxBytes);
  if (!parsed.ok()) return parsed.error();
  const nlohmann::json& array = parsed.value();
  const std::string wanted =
      StrCat("an array of ", n_classes, " texts (n_classes of config.json)");
  if (!array.is_array()) return FormatError(kFile, wanted, JsonGiven(array));
  if (static_cast<int64_t>(array.size()) != n_classes) {
    return FormatError(kFile, wanted, StrCat("one of ", array.size()));
  }
  std::vector<std::string> labels;
  std::set<std::string> seen;
  for (const nlohmann::json& value : array) {
    const std::string where = StrCat(kFile, ": [", labels.size(), "]");
    if (!value.is_string()) {
      return FormatError(where, "a text", JsonGiven(value));
    }
    const std::string& label = value.get_ref<const std::string&>();
    if (blank && labels.empty()) {
      if (!label.empty()) {
        return FormatError(where, "\"\" (the blank)", JsonGiven(value));
      }
      labels.emplace_back();
      continue;
    }
    // Labels are lines of output and fields of tab-separated files.
    if (label.empty() || label.find_first_of("\n\r\t") != label.npos) {
      return FormatError(where, "a text without tabs and line ends",
                         JsonGiven(value));
    }
    if (!seen.insert(label).second) {
      return FormatError(where, "unique labels", JsonGiven(value) + " again");
    }
    labels.push_back(label);
  }
  return labels;
}

Result<std::vector<std::string>> ReadLabels(const std::string& dir,
                                            const ModelConfig& config) {
  const std::string path = StrCat(dir, "/", kFile);
  const Result<std::string> text = ReadFile(path, kMaxBytes);
  if (!text.ok()) return text.error();
  Result<std::vector<std::string>> labels =
      LabelsFromJson(text.value(), config.n_classes, config.task == Task::kCtc);
  if (labels.ok()) return labels;
  const Error& error = labels.error();
  if (error.wanted().empty()) {
    return FormatError(StrCat(dir, "/", error.what()));
  }
  return FormatError(StrCat(dir, "/", error.where()), error.wanted(),
                     error.given());
}

}  // namespace tarn
