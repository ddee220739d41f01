#include "text/grammar/token_masks.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/node_mask.h"
#include "text/grammar/stacks.h"

namespace tarn {

using grammar::NodeMask;
using grammar::StackSet;
using grammar::Stepper;
using grammar::TokenTrie;

namespace {

bool IsWhiteSpaceOnly(std::string_view text) {
  return text.find_first_not_of(" \t\n\r\f\v") == text.npos;
}

void SetBit(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
}

}  // namespace

struct TokenMasks::Vocabulary {
  int64_t size = 0;
  TokenTrie trie;
  std::vector<int32_t> stop_tokens;
};

// Masks by node, and by state, the least recently used dropped first. A mutex
// guards the tables alone: masks are computed outside, perhaps twice.
class TokenMasks::Cache {
 public:
  explicit Cache(const TokenMaskOptions& options) : options_(options) {}

  std::shared_ptr<const NodeMask> Node(int32_t node) {
    const std::scoped_lock lock(mutex_);
    const auto at = nodes_.find(node);
    if (at == nodes_.end()) return nullptr;
    order_.splice(order_.begin(), order_, at->second.place);
    return at->second.mask;
  }
  void AddNode(int32_t node, std::shared_ptr<const NodeMask> mask) {
    const std::scoped_lock lock(mutex_);
    if (nodes_.contains(node)) return;
    bytes_ += mask->bytes();
    order_.push_front(node);
    nodes_[node] = {std::move(mask), order_.begin()};
    while (bytes_ > options_.cache_bytes && !order_.empty()) {
      const auto last = nodes_.find(order_.back());
      bytes_ -= last->second.mask->bytes();
      nodes_.erase(last);
      order_.pop_back();
    }
  }

  bool State(const StackSet& stacks, std::span<uint32_t> mask) {
    const std::scoped_lock lock(mutex_);
    for (auto at = states_.begin(); at != states_.end(); ++at) {
      if (at->first != stacks) continue;
      std::copy(at->second.begin(), at->second.end(), mask.begin());
      states_.splice(states_.begin(), states_, at);
      return true;
    }
    return false;
  }
  void AddState(const StackSet& stacks, std::span<const uint32_t> mask) {
    if (options_.states == 0) return;
    const std::scoped_lock lock(mutex_);
    states_.emplace_front(stacks,
                          std::vector<uint32_t>(mask.begin(), mask.end()));
    if (states_.size() > options_.states) states_.pop_back();
  }

  size_t bytes() {
    const std::scoped_lock lock(mutex_);
    size_t bytes = bytes_;
    for (const auto& [stacks, mask] : states_) bytes += mask.size() * 4;
    return bytes;
  }

  std::atomic<uint64_t> steps = 0;

 private:
  struct Entry {
    std::shared_ptr<const NodeMask> mask;
    std::list<int32_t>::iterator place;
  };
  const TokenMaskOptions options_;
  std::mutex mutex_;
  size_t bytes_ = 0;
  std::list<int32_t> order_;  // most recently used first
  std::unordered_map<int32_t, Entry> nodes_;
  std::list<std::pair<StackSet, std::vector<uint32_t>>> states_;
};

TokenMasks::TokenMasks(Grammar grammar,
                       std::shared_ptr<const Vocabulary> vocabulary,
                       const TokenMaskOptions& options)
    : grammar_(std::move(grammar)),
      options_(options),
      vocabulary_(std::move(vocabulary)),
      cache_(std::make_shared<Cache>(options)) {}

TokenMasks::TokenMasks(Grammar grammar, const Tokenizer& tokenizer,
                       std::span<const int32_t> stop_tokens,
                       const TokenMaskOptions& options)
    : TokenMasks(std::move(grammar), nullptr, options) {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->size = tokenizer.vocab_size();
  for (const int32_t id : stop_tokens) {
    if (id < 0 || id >= vocabulary->size) {
      throw ArgumentError("stop_tokens",
                          StrCat("ids from 0 to ", vocabulary->size - 1),
                          StrCat(id));
    }
  }
  vocabulary->stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
  std::string texts;
  struct Token {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Token> tokens;
  for (int32_t id = 0; id < vocabulary->size; ++id) {
    const size_t begin = texts.size();
    tokenizer.Decode(id, texts);
    const std::string_view text = std::string_view(texts).substr(begin);
    const bool added = tokenizer.AddedId(text) == id &&
                       std::find(options.marks.begin(), options.marks.end(),
                                 text) == options.marks.end();
    if (text.empty() || (added && !IsWhiteSpaceOnly(text)) ||
        std::find(stop_tokens.begin(), stop_tokens.end(), id) !=
            stop_tokens.end()) {
      texts.resize(begin);
      continue;
    }
    tokens.push_back({begin, texts.size(), id});
  }
  std::vector<std::pair<std::string_view, int32_t>> strings;
  strings.reserve(tokens.size());
  for (const Token& token : tokens) {
    strings.emplace_back(
        std::string_view(texts).substr(token.begin, token.end - token.begin),
        token.id);
  }
  vocabulary->trie = TokenTrie(std::move(strings));
  vocabulary_ = std::move(vocabulary);
}

TokenMasks TokenMasks::With(Grammar grammar) const {
  return TokenMasks(std::move(grammar), vocabulary_, options_);
}

int64_t TokenMasks::vocab_size() const { return vocabulary_->size; }
uint64_t TokenMasks::steps() const { return cache_->steps; }
size_t TokenMasks::cached_bytes() const { return cache_->bytes(); }

namespace {

// One call of Fill without the caches of states.
class MaskFill {
 public:
  MaskFill(const grammar::Automaton& automaton, const StackSet& stacks,
           std::span<uint32_t> mask)
      : stepper_(automaton), automaton_(automaton), mask_(mask) {
    stepper_.Load(stacks);
    tops_ = stepper_.Add(stacks.tops);
  }

  // Adds what the masks of nodes give; false where the limits could matter,
  // which masks of single nodes do not know.
  template <typename MaskOf>
  bool FromNodes(const MaskOf& mask_of) {
    std::vector<Stepper::Top> open;
    if (!FollowReturns(open)) return false;
    size_t items = open.size(), frames = stepper_.peak_frames();
    int32_t depth = 0;
    const int32_t depth_below = stepper_.peak_depth();
    for (const Stepper::Top& top : open) {
      const std::shared_ptr<const NodeMask> mask = mask_of(top.node);
      items += mask->peak_items;
      frames += mask->peak_frames;
      depth = std::max(depth, mask->peak_depth);
      if (mask->limited) return false;
      mask->accepted.AddTo(mask_);
      if (top.frame != 0 && mask->leaving.size() > 0) {
        FollowLeaving(top.frame, mask->leaving);
      }
      items += stepper_.peak_items();
      frames += stepper_.peak_frames();
    }
    depth = std::max(depth + depth_below, stepper_.peak_depth());
    return !stepper_.limited() && items <= grammar::kMaxItems &&
           frames <= grammar::kMaxFrames && depth <= grammar::kMaxDepth;
  }

  // All tokens by themselves.
  void FromState(const TokenTrie& tokens) { Follow(tops_, tokens); }

  bool complete() const { return stepper_.Complete(tops_); }
  uint64_t steps() const { return stepper_.steps(); }

 private:
  // The tops, and what they return to without a byte. False: too many.
  bool FollowReturns(std::vector<Stepper::Top>& open) const {
    const auto add = [&](Stepper::Top top) {
      if (std::find(open.begin(), open.end(), top) == open.end()) {
        open.push_back(top);
      }
    };
    for (size_t i = tops_.begin; i < tops_.end; ++i) add(stepper_.top(i));
    for (size_t i = 0; i < open.size(); ++i) {
      if (open.size() > 64) return false;
      const auto [node, frame] = open[i];
      if (!automaton_.node(node).final) continue;
      for (int32_t link = stepper_.FirstLink(frame); link >= 0;
           link = stepper_.NextLink(link)) {
        add({stepper_.frame_node(frame), stepper_.LinkedFrame(link)});
      }
    }
    return true;
  }

  void FollowLeaving(int32_t frame, const TokenTrie& leaving) {
    std::vector<Stepper::Top> returns;
    for (int32_t link = stepper_.FirstLink(frame); link >= 0;
         link = stepper_.NextLink(link)) {
      returns.push_back(
          {stepper_.frame_node(frame), stepper_.LinkedFrame(link)});
    }
    Follow(stepper_.Add(returns), leaving);
  }

  void Follow(Stepper::Range tops, const TokenTrie& trie) {
    grammar::FollowTrie(stepper_, tops, trie, [&](int32_t node) {
      for (const int32_t id : trie.ids(node)) SetBit(mask_, id);
    });
  }

  Stepper stepper_;
  const grammar::Automaton& automaton_;
  std::span<uint32_t> mask_;
  Stepper::Range tops_;
};

}  // namespace

void TokenMasks::Fill(const GrammarState& state,
                      std::span<uint32_t> mask) const {
  if (state.grammar().fingerprint() != grammar_.fingerprint()) {
    throw ArgumentError("state", "a state of the masks' grammar",
                        "another grammar's");
  }
  if (static_cast<int64_t>(mask.size()) != mask_words()) {
    throw ArgumentError("mask", StrCat(mask_words(), " words"),
                        StrCat(mask.size()));
  }
  const StackSet& stacks = state.stacks();
  if (cache_->State(stacks, mask)) return;
  std::fill(mask.begin(), mask.end(), 0);
  const grammar::Automaton& automaton = grammar_.automaton();
  uint64_t steps = 0;
  const auto mask_of = [&](int32_t node) {
    std::shared_ptr<const NodeMask> held = cache_->Node(node);
    if (held != nullptr) return held;
    held = std::make_shared<const NodeMask>(grammar::MakeNodeMask(
        automaton, vocabulary_->trie, vocabulary_->size, node, steps));
    cache_->AddNode(node, held);
    return held;
  };
  MaskFill fill(automaton, stacks, mask);
  if (!fill.FromNodes(mask_of)) {
    std::fill(mask.begin(), mask.end(), 0);
    fill.FromState(vocabulary_->trie);
  }
  if (fill.complete()) {
    for (const int32_t id : vocabulary_->stop_tokens) SetBit(mask, id);
  }
  cache_->steps += steps + fill.steps();
  cache_->AddState(stacks, mask);
}

}  // namespace tarn
