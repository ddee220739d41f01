// Grammars in GBNF against a recogniser that follows the definition of their
// notation: sets of ends of a match, over code points. Random grammars, random
// sentences and damaged ones.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace tarn {
namespace {

using Text = std::vector<uint32_t>;  // code points

void PutUtf8(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 63));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

std::string Bytes(const Text& text) {
  std::string out;
  for (const uint32_t c : text) PutUtf8(c, out);
  return out;
}

// A grammar as a tree, which writes itself as GBNF.
struct Node {
  enum Kind { kChars, kLiteral, kSequence, kChoice, kRepeat, kRule } kind;
  std::vector<std::pair<uint32_t, uint32_t>> ranges = {};
  bool negated = false;
  Text literal = {};
  std::vector<std::shared_ptr<Node>> children = {};
  int low = 0, high = 0;  // high -1: any number
  int rule = 0;
};
using NodePointer = std::shared_ptr<Node>;
using Rules = std::vector<NodePointer>;

std::string Escaped(uint32_t c) {
  char text[16];
  std::snprintf(text, sizeof(text), "\\U%08X", c);
  if (c < 0x100 && c % 3 == 0) std::snprintf(text, sizeof(text), "\\x%02x", c);
  if (c < 0x10000 && c % 3 == 1) {
    std::snprintf(text, sizeof(text), "\\u%04x", c);
  }
  std::string raw;
  const bool plain = (c >= 'a' && c <= 'z') || c >= 0xA0;
  if (plain && c % 2 == 0) {
    PutUtf8(c, raw);
    return raw;
  }
  return text;
}

std::string Gbnf(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Node::kChars:
      out = node.negated ? "[^" : "[";
      for (const auto& [low, high] : node.ranges) {
        out += Escaped(low) + (low == high ? "" : "-" + Escaped(high));
      }
      return out + "]";
    case Node::kLiteral:
      for (const uint32_t c : node.literal) out += Escaped(c);
      return "\"" + out + "\"";
    case Node::kSequence:
    case Node::kChoice:
      for (const NodePointer& child : node.children) {
        if (!out.empty()) out += node.kind == Node::kChoice ? " | " : " ";
        out += Gbnf(*child);
      }
      return "(" + out + ")";
    case Node::kRepeat: {
      std::string count = "{" + std::to_string(node.low) + "," +
                          (node.high < 0 ? "" : std::to_string(node.high)) +
                          "}";
      if (node.low == node.high) count = "{" + std::to_string(node.low) + "}";
      if (node.low == 0 && node.high < 0) count = "*";
      if (node.low == 1 && node.high < 0) count = "+";
      if (node.low == 0 && node.high == 1) count = "?";
      return Gbnf(*node.children[0]) + count;
    }
    case Node::kRule:
      return "r" + std::to_string(node.rule);
  }
  return out;
}

std::string Gbnf(const Rules& rules) {
  std::string out = "root ::= r0\n";
  for (size_t i = 0; i < rules.size(); ++i) {
    out += "r" + std::to_string(i) + " ::= " + Gbnf(*rules[i]) + "\n";
  }
  return out;
}

bool Contains(const Node& node, uint32_t c) {
  bool in = false;
  for (const auto& [low, high] : node.ranges) in |= low <= c && c <= high;
  return in != node.negated;
}

// Ends of the matches that begin at a place. `open`: a character was wanted at
// the end of the text, so that some longer text may match (all rules have
// sentences).
class Recogniser {
 public:
  Recogniser(const Rules& rules, const Text& text)
      : rules_(rules), text_(text) {}
  bool Complete() { return Ends(*rules_[0], 0).contains(text_.size()); }
  bool Open() {
    const bool complete = Complete();
    return open_ || complete;
  }

 private:
  using Set = std::set<size_t>;
  Set Ends(const Node& node, size_t at) {
    Set ends;
    switch (node.kind) {
      case Node::kChars:
        open_ |= at == text_.size();
        if (at < text_.size() && Contains(node, text_[at])) ends.insert(at + 1);
        return ends;
      case Node::kLiteral:
        for (const uint32_t c : node.literal) {
          open_ |= at == text_.size();
          if (at == text_.size() || text_[at] != c) return ends;
          ++at;
        }
        ends.insert(at);
        return ends;
      case Node::kSequence: {
        ends.insert(at);
        for (const NodePointer& child : node.children) ends = All(*child, ends);
        return ends;
      }
      case Node::kChoice:
        for (const NodePointer& child : node.children) {
          ends.merge(Ends(*child, at));
        }
        return ends;
      case Node::kRepeat: {
        Set now{at}, seen;
        for (int i = 0; i < node.low; ++i) now = All(*node.children[0], now);
        ends = now;
        for (int i = node.low; node.high < 0 || i < node.high; ++i) {
          now = All(*node.children[0], now);
          const size_t before = ends.size();
          ends.insert(now.begin(), now.end());
          if (ends.size() == before && (now.empty() || node.high < 0)) break;
        }
        return ends;
      }
      case Node::kRule: {
        const auto key = std::pair(node.rule, at);
        if (const auto known = memo_.find(key); known != memo_.end()) {
          return known->second;
        }
        ends = Ends(*rules_[static_cast<size_t>(node.rule)], at);
        memo_[key] = ends;
        return ends;
      }
    }
    return ends;
  }
  Set All(const Node& node, const Set& from) {
    Set ends;
    for (const size_t at : from) ends.merge(Ends(node, at));
    return ends;
  }

  const Rules& rules_;
  const Text& text_;
  bool open_ = false;
  std::map<std::pair<int, size_t>, Set> memo_;
};

// Few characters, so that random texts meet the grammars; of all UTF-8 lengths.
const std::vector<uint32_t> kAlphabet = {
    'a',   'b',    'c',    '0',    0x7F,    0x80,    0xE9,    0x7FF,
    0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}
  int Draw(int count) {
    return static_cast<int>(random_() % static_cast<uint32_t>(count));
  }
  uint32_t Letter() {
    return kAlphabet[static_cast<size_t>(
        Draw(Draw(3) == 0 ? static_cast<int>(kAlphabet.size()) : 4))];
  }

  // Calls only rules after `rule`, but for behind a character, so that no rule
  // begins with itself; the last rules are finite, so that all have sentences.
  NodePointer Expression(int rule, int rules, int depth, bool behind) {
    auto node = std::make_shared<Node>();
    const int kind = depth == 0 ? Draw(2) : Draw(7);
    if (kind <= 1) return Terminal(kind);
    if (kind == 2 && rules > 1) {
      node->kind = Node::kRule;
      node->rule =
          behind && Draw(2) == 0 ? Draw(rules) : rule + 1 + Draw(rules);
      if (node->rule >= rules) return Terminal(Draw(2));
      return node;
    }
    if (kind == 3 || kind == 2) {
      node->kind = Node::kSequence;
      const int count = 1 + Draw(3);
      for (int i = 0; i < count; ++i) {
        if (i == 0 && Draw(2) == 0) {
          node->children.push_back(Terminal(Draw(2)));
          behind = true;
          continue;
        }
        node->children.push_back(Expression(rule, rules, depth - 1, behind));
      }
      return node;
    }
    if (kind == 4 || kind == 5) {
      node->kind = Node::kChoice;
      // One way out of a recursion.
      node->children.push_back(Terminal(Draw(2)));
      const int count = 1 + Draw(3);
      for (int i = 0; i < count; ++i) {
        node->children.push_back(Expression(rule, rules, depth - 1, behind));
      }
      return node;
    }
    node->kind = Node::kRepeat;
    node->low = Draw(3);
    node->high = Draw(2) == 0 ? -1 : node->low + Draw(3);
    node->children.push_back(Expression(rule, rules, depth - 1, behind));
    return node;
  }

  Rules Grammar(int rules) {
    Rules made;
    for (int i = 0; i < rules; ++i) {
      auto choice = std::make_shared<Node>();
      choice->kind = Node::kChoice;
      choice->children = {Expression(i, rules, 3, false), Terminal(1)};
      made.push_back(choice);
    }
    return made;
  }

  // A sentence, or nothing where it gets too long.
  bool Sentence(const Rules& rules, const Node& node, int depth, Text& out) {
    if (depth > 30 || out.size() > 25) return false;
    switch (node.kind) {
      case Node::kChars: {
        const uint32_t c = Letter();
        for (int i = 0; i < 50; ++i) {
          const uint32_t other = i == 0 ? c : Letter();
          if (!Contains(node, other)) continue;
          out.push_back(other);
          return true;
        }
        return false;
      }
      case Node::kLiteral:
        out.insert(out.end(), node.literal.begin(), node.literal.end());
        return true;
      case Node::kSequence:
        for (const NodePointer& child : node.children) {
          if (!Sentence(rules, *child, depth + 1, out)) return false;
        }
        return true;
      case Node::kChoice: {
        const auto i =
            static_cast<size_t>(Draw(static_cast<int>(node.children.size())));
        return Sentence(rules, *node.children[i], depth + 1, out);
      }
      case Node::kRepeat: {
        const int count =
            node.low + Draw(node.high < 0 ? 3 : node.high - node.low + 1);
        for (int i = 0; i < count; ++i) {
          if (!Sentence(rules, *node.children[0], depth + 1, out)) return false;
        }
        return true;
      }
      case Node::kRule:
        return Sentence(rules, *rules[static_cast<size_t>(node.rule)],
                        depth + 1, out);
    }
    return false;
  }

  Text Mutated(Text text) {
    const auto place = [&] {
      return static_cast<std::ptrdiff_t>(
          Draw(static_cast<int>(text.size()) + 1));
    };
    const std::ptrdiff_t at = place();
    switch (Draw(4)) {
      case 0:
        text.insert(text.begin() + at, Letter());
        break;
      case 1:
        if (at < static_cast<std::ptrdiff_t>(text.size())) {
          text.erase(text.begin() + at);
        }
        break;
      case 2:
        if (at < static_cast<std::ptrdiff_t>(text.size())) {
          text[static_cast<size_t>(at)] = Letter();
        }
        break;
      default:
        text.resize(static_cast<size_t>(at));
    }
    return text;
  }

 private:
  NodePointer Terminal(int kind) {
    auto node = std::make_shared<Node>();
    if (kind == 0) {
      node->kind = Node::kChars;
      node->negated = Draw(4) == 0;
      const int count = 1 + Draw(3);
      for (int i = 0; i < count; ++i) {
        uint32_t low = Letter(), high = Draw(2) == 0 ? Letter() : low;
        if (low > high) std::swap(low, high);
        node->ranges.push_back({low, high});
      }
    } else {
      node->kind = Node::kLiteral;
      const int count = 1 + Draw(3);
      for (int i = 0; i < count; ++i) node->literal.push_back(Letter());
    }
    return node;
  }

  std::mt19937 random_;
};

TEST(GbnfRandom, AgreesWithTheDefinition) {
  int complete = 0, open = 0, closed = 0, refused = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Maker maker(seed);
    const Rules rules = maker.Grammar(1 + maker.Draw(5));
    const std::string source = Gbnf(rules);
    const Result<Grammar> grammar = Grammar::FromGbnf(source);
    if (!grammar.ok()) {
      // Only for a rule that begins with itself behind optional parts.
      ASSERT_EQ(grammar.error().wanted(),
                "rules that do not begin with themselves")
          << grammar.error().what() << "\n"
          << source;
      ++refused;
      continue;
    }
    for (int i = 0; i < 20; ++i) {
      Text text;
      if (!maker.Sentence(rules, *rules[0], 0, text)) continue;
      const int changes = i % 3;
      for (int change = 0; change < changes; ++change) {
        text = maker.Mutated(std::move(text));
      }
      // Every beginning: whether it may continue, and whether it may end.
      GrammarState state(grammar.value());
      bool alive = true;
      for (size_t length = 0; length <= text.size(); ++length) {
        const Text head(text.begin(),
                        text.begin() + static_cast<std::ptrdiff_t>(length));
        if (length > 0) {
          const std::string bytes = Bytes({head.back()});
          const GrammarState before = state;
          alive = state.Push(bytes);
          if (alive) {
            GrammarState by_byte = before;
            for (const char byte : bytes) {
              ASSERT_TRUE(by_byte.Push(std::string_view(&byte, 1)));
            }
            ASSERT_TRUE(by_byte == state);
          } else {
            ASSERT_TRUE(before == state);
          }
        }
        Recogniser recogniser(rules, head);
        ASSERT_EQ(alive, recogniser.Open()) << source << "\n"
                                            << Bytes(text) << " " << length;
        if (!alive) {
          ++closed;
          break;
        }
        const bool ends = recogniser.Complete();
        ASSERT_EQ(state.complete(), ends) << source << "\n"
                                          << Bytes(text) << " " << length;
        ++(ends ? complete : open);
      }
      if (alive) {
        // The whole at once is the same state, and survives saving.
        GrammarState once(grammar.value());
        ASSERT_TRUE(once.Push(Bytes(text)));
        ASSERT_TRUE(once == state);
        const auto loaded = GrammarState::Load(grammar.value(), state.Save());
        ASSERT_TRUE(loaded.ok() && loaded.value() == state);
      }
    }
  }
  EXPECT_GT(complete, 2000);
  EXPECT_GT(open, 2000);
  EXPECT_GT(closed, 1000);
  EXPECT_LT(refused, 200);
}

}  // namespace
}  // namespace tarn
