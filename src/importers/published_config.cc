#include "importers/published_config.h"

#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

// What transformers writes into every configuration: texts about the file, ids
// of tokens (generation_config.json and the tokenizer decide them), and options
// of training.
constexpr const char* kNeutral[] = {"architectures",
                                    "auto_map",
                                    "model_type",
                                    "transformers_version",
                                    "_name_or_path",
                                    "torch_dtype",
                                    "dtype",
                                    "use_cache",
                                    "initializer_range",
                                    "bos_token_id",
                                    "eos_token_id",
                                    "pad_token_id",
                                    "attention_dropout",
                                    "pretraining_tp",
                                    "max_position_embeddings",
                                    "return_dict",
                                    "output_hidden_states",
                                    "output_attentions"};

}  // namespace

PublishedConfig::PublishedConfig(nlohmann::json object, std::string where)
    : object_(std::move(object)), where_(std::move(where)) {
  for (const char* key : kNeutral) read_.insert(key);
}

bool PublishedConfig::Has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool PublishedConfig::HasWord(const char* key, const char* word) {
  const auto found = object_.find(key);
  if (found == object_.end() || *found != word) return false;
  read_.insert(key);
  return true;
}

bool PublishedConfig::Holds(const char* key) const {
  return object_.contains(key);
}

const nlohmann::json* PublishedConfig::Find(const char* key) {
  read_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void PublishedConfig::Refuse(const char* key, const std::string& wanted,
                             const std::string& given) const {
  throw FormatError(StrCat(where_, ": ", key), wanted, given);
}

int64_t PublishedConfig::Integer(const char* key, int64_t least, int64_t most) {
  const nlohmann::json* value = Find(key);
  const auto number =
      value == nullptr ? std::optional<int64_t>() : JsonInteger(*value);
  if (!number || *number < least || *number > most) {
    Refuse(key, StrCat("an integer from ", least, " to ", most),
           value == nullptr ? "no such key" : JsonGiven(*value));
  }
  return *number;
}

int64_t PublishedConfig::Integer(const char* key, int64_t least, int64_t most,
                                 int64_t value) {
  return Has(key) ? Integer(key, least, most) : (Find(key), value);
}

double PublishedConfig::Real(const char* key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr || !value->is_number()) {
    Refuse(key, "a number",
           value == nullptr ? "no such key" : JsonGiven(*value));
  }
  return value->get<double>();
}

double PublishedConfig::Real(const char* key, double value) {
  return Has(key) ? Real(key) : (Find(key), value);
}

bool PublishedConfig::Flag(const char* key, bool value) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return value;
  if (!given->is_boolean()) Refuse(key, "true or false", JsonGiven(*given));
  return given->get<bool>();
}

std::string PublishedConfig::Word(const char* key, const std::string& value) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return value;
  if (!given->is_string()) Refuse(key, "a text", JsonGiven(*given));
  return given->get<std::string>();
}

std::vector<std::string> PublishedConfig::Words(const char* key,
                                                int64_t count) {
  std::vector<std::string> words;
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return words;
  const std::string wanted = StrCat("a list of ", count, " texts");
  if (!given->is_array() || static_cast<int64_t>(given->size()) != count) {
    Refuse(key, wanted, JsonGiven(*given));
  }
  for (const nlohmann::json& one : *given) {
    if (!one.is_string()) Refuse(key, wanted, JsonGiven(one));
    words.push_back(one.get<std::string>());
  }
  return words;
}

std::vector<std::string> PublishedConfig::WordsUpTo(const char* key,
                                                    int64_t most) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return {};
  if (!given->is_array() || static_cast<int64_t>(given->size()) > most) {
    Refuse(key, StrCat("a list of at most ", most, " texts"),
           JsonGiven(*given));
  }
  return Words(key, static_cast<int64_t>(given->size()));
}

std::vector<int64_t> PublishedConfig::Integers(const char* key, int64_t least,
                                               int64_t most) {
  std::vector<int64_t> numbers;
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return numbers;
  const std::string wanted =
      StrCat("a list of integers from ", least, " to ", most);
  if (!given->is_array()) Refuse(key, wanted, JsonGiven(*given));
  for (const nlohmann::json& one : *given) {
    const std::optional<int64_t> number = JsonInteger(one);
    if (!number || *number < least || *number > most) {
      Refuse(key, wanted, JsonGiven(one));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<double> PublishedConfig::Reals(const char* key, int64_t count) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) {
    return std::vector<double>(static_cast<size_t>(count), 1.0);
  }
  const std::string wanted = StrCat("a list of ", count, " numbers");
  if (!given->is_array() || static_cast<int64_t>(given->size()) != count) {
    Refuse(key, wanted, JsonGiven(*given));
  }
  std::vector<double> numbers;
  for (const nlohmann::json& one : *given) {
    if (!one.is_number()) Refuse(key, wanted, JsonGiven(one));
    numbers.push_back(one.get<double>());
  }
  return numbers;
}

PublishedConfig PublishedConfig::TextSection() {
  constexpr const char* kTied = "tie_word_embeddings";
  PublishedConfig text = Section("text_config");
  const nlohmann::json* own = Find(kTied);
  const nlohmann::json* inner = text.Find(kTied);
  if (own == nullptr) return text;
  if (inner == nullptr) {
    text.object_[kTied] = *own;
  } else if (*inner != *own) {
    Refuse(kTied, StrCat("that of text_config, ", JsonGiven(*inner)),
           JsonGiven(*own));
  }
  return text;
}

PublishedConfig PublishedConfig::Section(const char* key) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) {
    return PublishedConfig(nlohmann::json::object(), StrCat(where_, ": ", key));
  }
  if (!given->is_object()) Refuse(key, "an object", JsonGiven(*given));
  return PublishedConfig(*given, StrCat(where_, ": ", key));
}

void PublishedConfig::Want(const char* key, bool value) {
  if (Flag(key, value) == value) return;
  Refuse(key, value ? "true" : "false", value ? "false" : "true");
}

void PublishedConfig::Want(const char* key, const char* value) {
  const std::string given = Word(key, value);
  if (given != value) Refuse(key, Quoted(value), Quoted(given));
}

void PublishedConfig::WantNull(const char* key) {
  const nlohmann::json* given = Find(key);
  if (given != nullptr) Refuse(key, "null", JsonGiven(*given));
}

std::pair<double, double> PublishedConfig::Limits(const char* key) {
  const nlohmann::json* given = Find(key);
  if (given == nullptr) return {0.0, 0.0};
  const auto infinite = [](const nlohmann::json& value) {
    return value == nlohmann::json{{"__float__", "Infinity"}} ||
           value == "Infinity";
  };
  if (given->is_array() && given->size() == 2 && (*given)[0].is_number()) {
    const double least = (*given)[0].get<double>();
    const nlohmann::json& last = (*given)[1];
    if (least >= 0.0 && infinite(last)) return {least, 0.0};
    if (least >= 0.0 && last.is_number()) {
      const double most = last.get<double>();
      if (most > 0.0 && least <= most) return {least, most};
    }
  }
  Refuse(key, "[least, most] with 0 <= least <= most, above 0 or Infinity",
         JsonGiven(*given));
}

void PublishedConfig::Ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) read_.insert(key);
}

void PublishedConfig::RequireAllRead() const {
  for (const auto& [key, value] : object_.items()) {
    if (read_.contains(key) || value.is_null()) continue;
    throw FormatError(where_, "keys that tarn knows of this type of model",
                      StrCat(Quoted(key), ": ", JsonGiven(value)));
  }
}

}  // namespace tarn
