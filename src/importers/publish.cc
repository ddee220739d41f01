#include "importers/publish.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "config/fields.h"
#include "core/json.h"
#include "core/text.h"
#include "importers/importer.h"
#include "weights/reversed_view.h"

namespace tarn {
namespace {

constexpr const char* kWhere = "config.json";
// Of factors that are stored as their inverse.
constexpr double kSameReal = 1e-12;

bool SameValue(const nlohmann::json& a, const nlohmann::json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= kSameReal * std::max(std::abs(x), std::abs(y));
}

// Keys that are 0 where other sizes decide: the shapes of weights show them.
constexpr const char* kRanks[] = {"gate_rank", "output_gate_rank", "rate_rank",
                                  "value_rank", "shift_rank"};
// As many differences are not counted further; a type that leaves out layers
// has more.
constexpr int kFar = 100, kOtherDepth = 1 << 20;

// What differs between a configuration and what its published keys say.
struct Difference {
  int count = 0;
  std::string key, read, given;
};

// The entry of the pattern for a layer; the empty one where all are alike.
const LayerConfig& EntryOf(const ModelConfig& config, int64_t layer) {
  static const LayerConfig none;
  if (config.layers.empty()) return none;
  return config.layers[static_cast<size_t>(layer) % config.layers.size()];
}

// Mixers are compared as they see their keys, so that patterns may be written
// in different ways; what neither of them reads makes no difference. Layers
// with the same entries on both sides are compared once.
class Comparison {
 public:
  Comparison(const ModelConfig& given, const ModelConfig& read)
      : given_(given), read_(read) {
    struct Compared {
      const LayerConfig &ours, &theirs;
      int count;
    };
    std::vector<Compared> compared;
    for (int64_t i = 0; i < given.n_layers; ++i) {
      if (difference_.count > kFar) break;
      const LayerConfig &own = EntryOf(given, i), &other = EntryOf(read, i);
      const auto same = std::find_if(
          compared.begin(), compared.end(), [&](const Compared& one) {
            return one.ours == own && one.theirs == other;
          });
      if (same != compared.end()) {
        difference_.count += same->count;
        continue;
      }
      const int before = difference_.count;
      const ModelConfig ours = LayerView(given, i), theirs = LayerView(read, i);
      const std::string of = i == 0 ? "" : StrCat(" of layer ", i);
      Add(of, ours, theirs);
      const size_t both =
          std::min(ours.branches.size(), theirs.branches.size());
      for (size_t branch = 0; branch < both; ++branch) {
        Add(of, ours.branches[branch], theirs.branches[branch]);
      }
      compared.push_back({own, other, difference_.count - before});
    }
  }

  Difference Take() { return std::move(difference_); }

 private:
  void Add(const std::string& of, const ModelConfig& ours,
           const ModelConfig& theirs) {
    const nlohmann::json given = KeysOf(ours), read = KeysOf(theirs);
    for (const auto& [key, value] : given.items()) {
      const auto found = read.find(key);
      if (found != read.end() && IsSame(key, value, *found)) continue;
      const ConfigField* field = FindField(key);
      if (field != nullptr && !ReadsField(ours, *field) &&
          !ReadsField(theirs, *field)) {
        continue;
      }
      if (difference_.count++ > 0) continue;
      difference_.key = key + of;
      difference_.read = found == read.end() ? "no such key" : found->dump();
      difference_.given = value.dump();
    }
  }

  static nlohmann::json KeysOf(const ModelConfig& view) {
    nlohmann::json keys = nlohmann::json::parse(FieldsText(view));
    // Heads of keys have two ways to say that all heads have some.
    if (keys["key_heads"] == 0) keys["key_heads"] = keys["n_heads"];
    return keys;
  }

  bool IsSame(const std::string& key, const nlohmann::json& ours,
              const nlohmann::json& theirs) {
    if (SameValue(ours, theirs)) return true;
    const bool rank = std::find(std::begin(kRanks), std::end(kRanks), key) !=
                      std::end(kRanks);
    return rank && ours == 0 && HaveSameShapes();
  }

  bool HaveSameShapes() {
    if (!same_shapes_.has_value()) {
      same_shapes_ = WeightShapes(given_) == WeightShapes(read_);
    }
    return *same_shapes_;
  }

  const ModelConfig &given_, &read_;
  std::optional<bool> same_shapes_;  // once asked for
  Difference difference_;
};

Difference Compare(const ModelConfig& given, const ModelConfig& read) {
  if (given.n_layers != read.n_layers) {
    return {kOtherDepth, "n_layers", StrCat(read.n_layers),
            StrCat(given.n_layers)};
  }
  return Comparison(given, read).Take();
}

struct Attempt {
  PublishedKeys keys;
  PublishedConfig Published(const Importer& row) const {
    return {nlohmann::json::parse(keys.dump()),
            StrCat(kWhere, " of ", row.model_type)};
  }
  ModelConfig config;  // as it is read again
  Difference difference;
};

// Writes the keys of a type and reads them again. Throws FormatError where they
// cannot be read.
Attempt Try(const Importer& row, const ModelConfig& config) {
  Attempt attempt;
  attempt.keys = {{"architectures", {row.architecture}},
                  {"model_type", row.model_type},
                  {"bos_token_id", nullptr},  // generation_config.json has them
                  {"eos_token_id", nullptr},
                  {"pad_token_id", nullptr}};
  row.publish(config, attempt.keys);
  PublishedConfig published = attempt.Published(row);
  attempt.config = ReadPublished(row, published);
  // How texts become tokens, and what acts in training, are no keys of it.
  attempt.config.tokenizer = config.tokenizer;
  CopyTrainingKeys(config, attempt.config);
  attempt.difference = Compare(config, attempt.config);
  return attempt;
}

Error Inexpressible(const Importer& row, const Difference& difference,
                    bool nearest) {
  return FormatError(
      StrCat(kWhere, ": ", difference.key),
      StrCat(difference.read, ", as ",
             nearest ? "the nearest published type, " : "", row.model_type,
             nearest ? "," : "", " would have it"),
      difference.given);
}

// Null: none.
const Importer* WritableRow(const std::string& type) {
  for (const Importer& row : Importers()) {
    if (row.publish != nullptr && type == row.model_type) return &row;
  }
  return nullptr;
}

// The type, which can be written, and its keys. Throws Error.
std::pair<const Importer*, Attempt> Choose(const ModelConfig& config,
                                           const std::string& type) {
  if (!type.empty()) {
    const Importer* row = WritableRow(type);
    Attempt attempt = Try(*row, config);
    if (attempt.difference.count > 0) {
      Throw(Inexpressible(*row, attempt.difference, false));
    }
    return {row, std::move(attempt)};
  }
  const Importer* nearest = nullptr;
  Difference least;
  for (const Importer& row : Importers()) {
    if (row.publish == nullptr) continue;
    try {
      Attempt attempt = Try(row, config);
      if (attempt.difference.count == 0) return {&row, std::move(attempt)};
      if (nearest == nullptr || attempt.difference.count < least.count) {
        nearest = &row;
        least = attempt.difference;
      }
    } catch (const Error&) {
      continue;  // its keys have no values for this configuration
    }
  }
  if (nearest != nullptr) Throw(Inexpressible(*nearest, least, true));
  throw FormatError(kWhere, "a configuration that a published type has",
                    "one that none has");
}

}  // namespace

std::vector<const char*> WritableModelTypes() {
  std::vector<const char*> types;
  for (const Importer& row : Importers()) {
    if (row.publish != nullptr) types.push_back(row.model_type);
  }
  return types;
}

Result<PublishedForm> Publish(const ModelConfig& config,
                              std::shared_ptr<const WeightSource> weights,
                              const std::string& type) {
  if (!type.empty() && WritableRow(type) == nullptr) {
    std::string known;
    for (const char* word : WritableModelTypes()) {
      known += (known.empty() ? "" : ", ") + std::string(word);
    }
    return ArgumentError("model type", "one of " + known, Quoted(type));
  }
  try {
    if (config.arch != Arch::kDecoder || config.task != Task::kLm) {
      throw FormatError(StrCat(kWhere, ": task"), "\"lm\" of a decoder",
                        StrCat('"', Name(config.task), '"'));
    }
    auto [row, attempt] = Choose(config, type);
    if (weights->Find(StrCat(kMtpPrefix, "norm.weight")) != nullptr) {
      if (row->mtp_key == nullptr) {
        throw FormatError(weights->path(),
                          StrCat("no tensors ", kMtpPrefix, "* for the type ",
                                 row->model_type),
                          "an extra prediction head");
      }
      attempt.keys[row->mtp_key] = 1;
    }
    PublishedTensors from(nullptr, attempt.Published(*row));
    ImportedTensors to(attempt.config);
    row->tensors(attempt.config, from, to);
    return PublishedForm{
        row->model_type, attempt.keys.dump(2) + "\n",
        std::make_shared<ReversedView>(to.Take(), std::move(weights))};
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

}  // namespace tarn
