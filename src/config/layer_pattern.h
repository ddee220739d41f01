// The entries of a pattern of layers (model_config.h), which copies share until
// one of them changes: the view of a layer is a copy of the configuration, and
// there are as many views as layers.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tarn {

enum class AttentionKind : int;

/// One entry of the pattern of layers: a mixer and the keys in which it differs
/// from the model's own, in the order of the table of keys, as text; its
/// feed-forward part and the place of its norms may be among them. A parallel
/// mixer has its mixers' keys in `branches`, which are empty where no mixer has
/// any; the layer's own keys, as its feed-forward part, are in `options`.
struct LayerConfig {
  AttentionKind attention{};
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<LayerConfig> branches = {};
  bool operator==(const LayerConfig&) const = default;
};

/// A std::vector of entries whose copy is O(1). What changes a list that a copy
/// shares first copies it: of a list that is being changed through references,
/// make no copy. Thread-safe as a std::vector is.
class LayerPattern {
 public:
  using Entries = std::vector<LayerConfig>;
  using value_type = LayerConfig;

  LayerPattern() = default;
  LayerPattern(Entries entries) {  // NOLINT: implicit
    if (!entries.empty()) {
      entries_ = std::make_shared<Entries>(std::move(entries));
    }
  }
  LayerPattern(std::initializer_list<LayerConfig> entries)
      : LayerPattern(Entries(entries)) {}

  bool empty() const { return size() == 0; }
  size_t size() const { return entries_ == nullptr ? 0 : entries_->size(); }
  Entries::const_iterator begin() const { return Read().begin(); }
  Entries::const_iterator end() const { return Read().end(); }
  const LayerConfig& operator[](size_t i) const { return Read()[i]; }
  const LayerConfig& front() const { return Read().front(); }
  const LayerConfig& back() const { return Read().back(); }
  bool operator==(const LayerPattern& other) const {
    return entries_ == other.entries_ || Read() == other.Read();
  }

  Entries::iterator begin() { return Own().begin(); }
  Entries::iterator end() { return Own().end(); }
  LayerConfig& operator[](size_t i) { return Own()[i]; }
  LayerConfig& front() { return Own().front(); }
  LayerConfig& back() { return Own().back(); }
  void clear() { entries_.reset(); }
  void resize(size_t count) { Own().resize(count); }
  void pop_back() { Own().pop_back(); }
  void push_back(LayerConfig entry) { Own().push_back(std::move(entry)); }
  LayerConfig& emplace_back() { return Own().emplace_back(); }

 private:
  const Entries& Read() const {
    static const Entries none;
    return entries_ == nullptr ? none : *entries_;
  }
  Entries& Own() {
    if (entries_ == nullptr) {
      entries_ = std::make_shared<Entries>();
    } else if (entries_.use_count() > 1) {
      entries_ = std::make_shared<Entries>(*entries_);
    }
    return *entries_;
  }

  std::shared_ptr<Entries> entries_;  // null: none
};

}  // namespace tarn
