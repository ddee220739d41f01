#include "runtime/sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/sampling/penalties.h"

namespace tarn {
namespace {

// The penalties stay below the largest float: e^88.72 (llama.cpp's bound).
constexpr double kMostLogPenalty = 88.7228391;
constexpr double kLeastGrowth = 1.000001;

// Of a text read backwards: for each place how many tokens from there on are
// those from the beginning on. The Z function (Gusfield 1997, section 1.3):
// [left, right) is the match found so far that ends last. O(n).
std::vector<int64_t> MatchesWithEnd(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  const auto back = [&](int64_t i) {
    return tokens[static_cast<size_t>(n - 1 - i)];
  };
  std::vector<int64_t> matches(tokens.size());
  int64_t left = 0, right = 0;
  for (int64_t i = 1; i < n; ++i) {
    int64_t match = 0;
    if (i < right) {
      match = std::min(right - i, matches[static_cast<size_t>(i - left)]);
    }
    while (i + match < n && back(match) == back(i + match)) ++match;
    if (i + match > right) {
      left = i;
      right = i + match;
    }
    matches[static_cast<size_t>(i)] = match;
  }
  return matches;
}

}  // namespace

DryBreakers::DryBreakers(std::span<const std::string> texts,
                         const Tokenizer& tokenizer) {
  // rests[t][i]: tokens of texts[t] without its first i bytes; none where the
  // tokenizer has none for them.
  std::vector<std::vector<std::vector<int32_t>>> rests;
  for (const std::string& text : texts) {
    rests.emplace_back(text.size());
    for (size_t i = 1; i < text.size(); ++i) {
      const auto rest = tokenizer.Encode(std::string_view(text).substr(i));
      if (!rest.ok()) continue;
      rests.back()[i] = rest.value();
      if (rest.value().size() > kMostRest) rests.back()[i].resize(kMostRest);
    }
  }
  std::string token_text;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    token_text.clear();
    tokenizer.Decode(token, token_text);
    for (size_t t = 0; t < texts.size(); ++t) {
      const std::string& text = texts[t];
      if (token_text.find(text) != std::string::npos) {
        breakers_.push_back({token, {}});
        continue;
      }
      for (size_t i = 1; i < text.size(); ++i) {
        if (!rests[t][i].empty() &&
            token_text.ends_with(std::string_view(text).substr(0, i))) {
          breakers_.push_back({token, rests[t][i]});
        }
      }
    }
  }
  std::sort(breakers_.begin(), breakers_.end());
  breakers_.erase(std::unique(breakers_.begin(), breakers_.end()),
                  breakers_.end());
}

std::span<const DryBreakers::Breaker> DryBreakers::Of(int32_t head) const {
  const auto before = [](const Breaker& b, int32_t id) { return b.head < id; };
  const auto begin =
      std::lower_bound(breakers_.begin(), breakers_.end(), head, before);
  auto end = begin;
  while (end != breakers_.end() && end->head == head) ++end;
  return std::span(breakers_).subspan(
      static_cast<size_t>(begin - breakers_.begin()),
      static_cast<size_t>(end - begin));
}

bool DryBreakers::IsBreaker(int32_t token) const {
  const std::span<const Breaker> of = Of(token);
  return !of.empty() && of.front().rest.empty();  // the shortest comes first
}

int64_t DryBreakers::TokensAfterLast(std::span<const int32_t> tokens) const {
  const auto n = static_cast<int64_t>(tokens.size());
  for (int64_t after = 0; !breakers_.empty() && after < n; ++after) {
    const auto head = tokens.end() - 1 - after;
    int64_t longest = -1;
    for (const Breaker& breaker : Of(*head)) {
      const auto size = static_cast<int64_t>(breaker.rest.size());
      if (size > longest && size <= after &&
          std::equal(breaker.rest.begin(), breaker.rest.end(), head + 1)) {
        longest = size;
      }
    }
    if (longest >= 0) return after - longest;
  }
  return n;
}

bool HasDry(const SamplerOptions& options) {
  return options.dry_multiplier != 0 && options.dry_base >= 1;
}

void ApplyDry(Candidates& candidates, const SamplerOptions& options,
              const DryBreakers& breakers, std::span<const int32_t> tokens) {
  if (!HasDry(options)) return;
  tokens = LastTokens(tokens, options.dry_penalty_last_n);
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t allowed = options.dry_allowed_length;
  if (n <= allowed) return;
  const int64_t limit = breakers.TokensAfterLast(tokens);
  if (limit < allowed) return;
  const std::vector<int64_t> matches = MatchesWithEnd(tokens);
  std::unordered_map<int32_t, int64_t> longest;
  for (int64_t i = 1; i < n; ++i) {
    const int64_t match = std::min(limit, matches[static_cast<size_t>(i)]);
    if (match < allowed) continue;
    const int32_t next = tokens[static_cast<size_t>(n - i)];
    int64_t& known = longest.emplace(next, match).first->second;
    known = std::max(known, match);
  }
  std::erase_if(longest, [&](const auto& entry) {
    return breakers.IsBreaker(entry.first);
  });
  if (longest.empty()) return;
  const double most =
      options.dry_base > kLeastGrowth
          ? std::floor(kMostLogPenalty / std::log(options.dry_base))
          : 0;
  const auto change = [&](double logit, int64_t match, double unit) {
    auto exponent = static_cast<double>(match - allowed);
    if (most > 0) exponent = std::min(exponent, most);
    return logit -
           unit * options.dry_multiplier * std::pow(options.dry_base, exponent);
  };
  candidates.ChangeLogits(longest, change);
}

}  // namespace tarn
