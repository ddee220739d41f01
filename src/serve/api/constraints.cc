#include "serve/api/constraints.h"

#include <algorithm>

namespace tarn::serve {

std::shared_ptr<const Constraint> ConstraintCache::Get(
    GrammarKind kind, const std::string& source,
    std::span<const int32_t> stop_tokens, const std::string& where) {
  std::vector<int32_t> stops(stop_tokens.begin(), stop_tokens.end());
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  std::shared_ptr<const Constraint> relative;  // perhaps with the same tables
  {
    const std::lock_guard lock(turn_);
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (at->stop_tokens != stops) continue;
      const bool parts = at->constraint->kind() == GrammarKind::kParts;
      if (relative == nullptr || parts == (kind == GrammarKind::kParts)) {
        relative = at->constraint;
      }
      if (at->constraint->kind() != kind ||
          at->constraint->source() != source) {
        continue;
      }
      const std::shared_ptr<const Constraint> found = at->constraint;
      entries_.splice(entries_.begin(), entries_, at);
      return found;
    }
  }
  Result<std::shared_ptr<const Constraint>> made =
      Constraint::Make(kind, source, tokenizer_, stops,
                       relative == nullptr ? nullptr : &relative->masks());
  if (!made.ok()) {
    const std::string& at = made.error().where();
    const bool both = !at.empty() && !where.empty();
    throw FormatError(both ? StrCat(where, ": ", at) : where + at,
                      made.error().wanted(), made.error().given());
  }
  const std::lock_guard lock(turn_);
  entries_.push_front({std::move(stops), made.value()});
  if (entries_.size() > kMost) entries_.pop_back();
  return made.value();
}

}  // namespace tarn::serve
