#include "text/grammar/draft.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "text/grammar/limits.h"

namespace tarn::grammar {
namespace {

[[noreturn]] void RefuseSize(const std::string& where, int64_t most,
                             const char* what) {
  throw FormatError(
      where.empty() ? "grammar" : "grammar: " + where,
      StrCat("at most ", most, " ", what, " with repetitions written out"),
      "more");
}

// Adds one expression between two nodes.
class DraftWriter {
 public:
  DraftWriter(const Source& source, Draft& draft)
      : source_(source), draft_(draft) {}

  void Write(ExpressionId id, int32_t from, int32_t to) {
    const Expression& e = source_.expressions[id];
    switch (e.kind) {
      case Expression::kNothing:
        return;
      case Expression::kEmpty:
        return draft_.AddJump(from, to);
      case Expression::kText:
        return WriteText(e.text, from, to);
      case Expression::kSet:
        return WriteSet(e.set, from, to);
      case Expression::kSequence:
        return WriteSequence(e, from, to);
      case Expression::kChoice:
        for (const ExpressionId child : e.children) Write(child, from, to);
        return;
      case Expression::kRepeat:
        return WriteRepeat(e, from, to);
      case Expression::kRule:
        return draft_.AddCall(from, e.rule, to);
      case Expression::kMembers:
        return WriteMembers(e, from, to);
      case Expression::kItems:
        return WriteItems(e, from, to);
      case Expression::kUntil:
        return WriteUntil(e.text, from, to);
    }
  }

 private:
  void WriteText(const std::string& text, int32_t from, int32_t to) {
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t next = i + 1 == text.size() ? to : draft_.AddNode();
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      draft_.AddEdge(from, byte, byte, next);
      from = next;
    }
    if (text.empty()) draft_.AddJump(from, to);
  }

  void WriteSet(const CodePointSet& set, int32_t from, int32_t to) {
    // trailing[i]: i continuation bytes of any value lead to `to`.
    std::array<int32_t, 4> trailing{to, -1, -1, -1};
    for (const CodePointRange& range : set.ranges()) {
      for (const ByteRanges& bytes : Utf8Ranges(range)) {
        int32_t at = from;
        for (int i = 0; i < bytes.count; ++i) {
          const int left = bytes.count - 1 - i;
          // Utf8Ranges: after a byte that varies all are free; after a single
          // one the rest may be.
          int32_t next = to;
          if (left > 0) {
            next = AllFree(bytes, i + 1) ? Trailing(trailing, left)
                                         : draft_.AddNode();
          }
          draft_.AddEdge(at, bytes.low[i], bytes.high[i], next);
          if (left > 0 && AllFree(bytes, i + 1)) break;
          at = next;
        }
      }
    }
  }
  static bool AllFree(const ByteRanges& bytes, int from) {
    for (int i = from; i < bytes.count; ++i) {
      if (bytes.low[i] != 0x80 || bytes.high[i] != 0xBF) return false;
    }
    return true;
  }
  int32_t Trailing(std::array<int32_t, 4>& trailing, int count) {
    for (int i = 1; i <= count; ++i) {
      if (trailing[i] >= 0) continue;
      trailing[i] = draft_.AddNode();
      draft_.AddEdge(trailing[i], 0x80, 0xBF, trailing[i - 1]);
    }
    return trailing[count];
  }

  void WriteSequence(const Expression& e, int32_t from, int32_t to) {
    for (size_t i = 0; i < e.children.size(); ++i) {
      const int32_t next = i + 1 == e.children.size() ? to : draft_.AddNode();
      Write(e.children[i], from, next);
      from = next;
    }
    if (e.children.empty()) draft_.AddJump(from, to);
  }

  // Each repetition has a node, so that the limit on nodes bounds the time.
  void WriteRepeat(const Expression& e, int32_t from, int32_t to) {
    for (int64_t i = 0; i < e.low; ++i) {
      const int32_t next = draft_.AddNode();
      Write(e.children[0], from, next);
      from = next;
    }
    if (e.high == kUnbounded) {
      const int32_t loop = draft_.AddNode();
      draft_.AddJump(from, loop);
      Write(e.children[0], loop, loop);
      draft_.AddJump(loop, to);
      return;
    }
    for (int64_t i = e.low; i < e.high; ++i) {
      draft_.AddJump(from, to);
      const int32_t next = draft_.AddNode();
      Write(e.children[0], from, next);
      from = next;
    }
    draft_.AddJump(from, to);
  }

  void WriteMembers(const Expression& e, int32_t from, int32_t to) {
    const size_t count = e.children.size() - 1 - (e.tail ? 1 : 0);
    // first: nothing has been written; rest: something has.
    int32_t first = draft_.AddNode(), rest = draft_.AddNode();
    draft_.AddJump(from, first);
    for (size_t i = 0; i < count; ++i) {
      const int32_t next_first = draft_.AddNode(), next = draft_.AddNode();
      const int32_t separated = draft_.AddNode();
      Write(e.children[0], rest, separated);
      draft_.AddJump(first, separated);
      Write(e.children[i + 1], separated, next);
      if (!e.required[i]) {
        draft_.AddJump(first, next_first);
        draft_.AddJump(rest, next);
      }
      first = next_first;
      rest = next;
    }
    if (e.tail) {
      const int32_t separated = draft_.AddNode();
      Write(e.children[0], rest, separated);
      draft_.AddJump(first, separated);
      Write(e.children.back(), separated, rest);
    }
    draft_.AddJump(first, to);
    draft_.AddJump(rest, to);
  }

  void WriteItems(const Expression& e, int32_t from, int32_t to) {
    for (size_t i = 1; i < e.children.size(); ++i) {
      if (static_cast<int64_t>(i) > e.low) draft_.AddJump(from, to);
      if (i > 1) {
        const int32_t separated = draft_.AddNode();
        Write(e.children[0], from, separated);
        from = separated;
      }
      const int32_t next = draft_.AddNode();
      Write(e.children[i], from, next);
      from = next;
    }
    draft_.AddJump(from, to);
  }

  // Knuth, Morris and Pratt 1977: node i is where the text ends with the first
  // i bytes that it ends at.
  void WriteUntil(const std::string& end, int32_t from, int32_t to) {
    std::vector<int32_t> nodes;
    for (size_t i = 0; i < end.size(); ++i) nodes.push_back(draft_.AddNode());
    nodes.push_back(to);
    draft_.AddJump(from, nodes[0]);
    std::vector<CodePointRange> used;
    for (const char c : end) {
      const auto code_point = static_cast<uint8_t>(c);
      used.push_back({code_point, code_point});
    }
    const CodePointSet known(std::move(used));
    for (size_t i = 0; i < end.size(); ++i) {
      for (const CodePointRange& range : known.ranges()) {
        for (uint32_t c = range.first; c <= range.last; ++c) {
          const std::string text =
              end.substr(0, i) + static_cast<char>(static_cast<uint8_t>(c));
          size_t next = std::min(text.size(), end.size());
          while (!text.ends_with(std::string_view(end).substr(0, next))) --next;
          draft_.AddEdge(nodes[i], static_cast<uint8_t>(c),
                         static_cast<uint8_t>(c), nodes[next]);
        }
      }
      WriteSet(known.Complement(), nodes[i], nodes[0]);
    }
  }

  const Source& source_;
  Draft& draft_;
};

}  // namespace

int32_t Draft::AddNode() {
  if (static_cast<int64_t>(nodes.size()) >= kMaxDraftNodes) {
    RefuseSize(where, kMaxGrammarNodes, "nodes");
  }
  nodes.emplace_back();
  return static_cast<int32_t>(nodes.size()) - 1;
}

void Draft::AddEdge(int32_t from, uint8_t low, uint8_t high, int32_t to) {
  if (++edge_count > kMaxEdges) RefuseSize(where, kMaxEdges, "edges");
  nodes[from].edges.push_back({low, high, to});
}

void Draft::AddJump(int32_t from, int32_t to) {
  if (++edge_count > kMaxEdges) RefuseSize(where, kMaxEdges, "edges");
  nodes[from].jumps.push_back(to);
}

void Draft::AddCall(int32_t from, RuleId rule, int32_t to) {
  if (++edge_count > kMaxEdges) RefuseSize(where, kMaxEdges, "edges");
  nodes[from].calls.push_back({rule, to});
}

Draft MakeDraft(const Source& source) {
  Draft draft;
  DraftWriter writer(source, draft);
  for (const Rule& rule : source.rules) {
    draft.where = rule.where;
    const int32_t entry = draft.AddNode(), exit = draft.AddNode();
    draft.rules.push_back({rule.name, entry, exit, rule.keep, rule.where});
    writer.Write(rule.body, entry, exit);
  }
  draft.where.clear();
  return draft;
}

}  // namespace tarn::grammar
