#include "config/own_key.h"

#include "config/fields.h"
#include "core/error.h"
#include "core/numbers/number_text.h"
#include "core/overloaded.h"
#include "core/text.h"

namespace tarn {
namespace {

const OwnField& Registered(std::string_view name) {
  const ConfigField* field = FindField(name);
  if (field == nullptr || !field->own()) {
    throw ArgumentError("config", "a key that a part of a model registered",
                        Quoted(name));
  }
  return std::get<OwnField>(field->kind);
}

template <typename Number>
std::optional<OwnValue> NumberFrom(std::string_view text) {
  Number number;
  const char* end = text.data() + text.size();
  const auto [stop, error] = FromChars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

std::string RealText(double value) {
  char buffer[32];  // the shortest form of a double takes at most 24
  const auto end = ToChars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  // Keeps a real number real for readers that distinguish 1 from 1.0.
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

OwnValue DefaultOf(const OwnKey& key) {
  return std::visit(
      Overloaded{[](const RealKey& k) -> OwnValue { return k.value; },
                 [](const auto& k) -> OwnValue {
                   return static_cast<int64_t>(k.value);
                 }},
      key.type);
}

std::string WantedBy(const OwnKey& key) {
  return std::visit(
      Overloaded{[](const IntegerKey& k) {
                   return StrCat("an integer from ", k.min, " to ", k.max);
                 },
                 [](const RealKey& k) {
                   if (k.max == kBelowOne)
                     return std::string("a number in [0, 1)");
                   return StrCat("a number from ", k.min, " to ", k.max);
                 },
                 [](const FlagKey&) { return std::string("true or false"); },
                 [](const WordKey& k) {
                   std::string text = "one of";
                   const char* separator = " ";
                   for (const std::string& word : k.words) {
                     text += separator + word;
                     separator = ", ";
                   }
                   return text;
                 }},
      key.type);
}

bool InRange(const OwnKey& key, const OwnValue& value) {
  const auto within = [&](int64_t min, int64_t max) {
    const auto* number = std::get_if<int64_t>(&value);
    return number != nullptr && min <= *number && *number <= max;
  };
  return std::visit(
      Overloaded{[&](const IntegerKey& k) { return within(k.min, k.max); },
                 // Written so that NaN is outside.
                 [&](const RealKey& k) {
                   const auto* number = std::get_if<double>(&value);
                   return number != nullptr && k.min <= *number &&
                          *number <= k.max;
                 },
                 [&](const FlagKey&) { return within(0, 1); },
                 [&](const WordKey& k) {
                   return within(0, static_cast<int64_t>(k.words.size()) - 1);
                 }},
      key.type);
}

std::string TextOf(const OwnKey& key, const OwnValue& value) {
  if (const auto* real = std::get_if<double>(&value)) return RealText(*real);
  const int64_t number = std::get<int64_t>(value);
  if (std::holds_alternative<FlagKey>(key.type)) {
    return number != 0 ? "true" : "false";
  }
  if (const auto* choice = std::get_if<WordKey>(&key.type)) {
    return StrCat('"', choice->words.at(static_cast<size_t>(number)), '"');
  }
  return StrCat(number);
}

std::optional<OwnValue> ValueFrom(const OwnKey& key, std::string_view text) {
  return std::visit(
      Overloaded{[&](const IntegerKey&) { return NumberFrom<int64_t>(text); },
                 [&](const RealKey&) { return NumberFrom<double>(text); },
                 [&](const FlagKey&) -> std::optional<OwnValue> {
                   if (text != "true" && text != "false") return std::nullopt;
                   return int64_t{text == "true"};
                 },
                 [&](const WordKey& k) -> std::optional<OwnValue> {
                   for (size_t i = 0; i < k.words.size(); ++i) {
                     if (text == k.words[i]) return static_cast<int64_t>(i);
                   }
                   return std::nullopt;
                 }},
      key.type);
}

OwnValue OwnValueOf(const ModelConfig& config, std::string_view name) {
  // Most keys that are asked for are given: no need for their rows.
  const auto found = config.own.find(name);
  if (found != config.own.end()) return found->second;
  return DefaultOf(*Registered(name).key);
}

void SetOwnValue(ModelConfig& config, std::string_view name, OwnValue value) {
  const OwnField& field = Registered(name);
  const auto* number = std::get_if<int64_t>(&value);
  if (number != nullptr && std::holds_alternative<RealKey>(field.key->type)) {
    value = static_cast<double>(*number);
  }
  field.Set(config, value);
}

}  // namespace tarn
