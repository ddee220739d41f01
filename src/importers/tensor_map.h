// Which tensors of a published model make the tensors of tarn's. An importer
// names them once; what it does not name is an error.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "importers/published_config.h"
#include "weights/weight_view.h"

namespace tarn {

/// Tensors of one source by their names, of which it remembers the asked-for.
/// Without a source: those of a model that is to be published, which exist as
/// names and shapes alone (WeightPart::Named).
class PublishedTensors {
 public:
  /// config: of the same directory. source: null without one.
  PublishedTensors(std::shared_ptr<const WeightSource> source,
                   PublishedConfig config)
      : source_(std::move(source)), config_(std::move(config)) {}

  /// What the configuration says about tensors alone: which there are, and how
  /// they are called. The importer's other half read all of it.
  PublishedConfig& config() { return config_; }
  bool Has(const std::string& name) const;
  /// Whether the name of any tensor begins so.
  bool HasUnder(std::string_view prefix) const;
  /// Whether there is no source.
  bool writes() const { return source_ == nullptr; }
  /// The tensor. Throws FormatError where the source lacks it.
  WeightPart operator()(const std::string& name);
  /// The same of a tensor with this shape; FormatError for another one. What is
  /// cut or turned must be asked for so in types that are published; of a
  /// tensor that becomes one of tarn's as it is, the shape is known.
  WeightPart operator()(const std::string& name,
                        const std::vector<int64_t>& shape);
  /// The tensor in whatever shape it has; shape: where it is to be written.
  WeightPart Named(const std::string& name, const std::vector<int64_t>& shape);
  /// The tensor's numbers in this shape; stored: that in which they are to be
  /// written. Throws FormatError where they are more or fewer.
  WeightPart Reshaped(const std::string& name,
                      const std::vector<int64_t>& shape,
                      const std::vector<int64_t>& stored);
  /// Whether two tensors hold the same numbers. O(tensor).
  bool Same(const std::string& one, const std::string& other) const;
  /// Where a tensor is stored, for messages.
  std::string Where(const std::string& name) const;
  /// Drops tensors by the beginning of their names: parts of the published
  /// model that have no counterpart, as the encoder of pictures.
  void Skip(const std::string& prefix);
  /// Throws FormatError naming a tensor that was not read.
  void RequireAllRead() const;

 private:
  const std::shared_ptr<const WeightSource> source_;
  PublishedConfig config_;
  std::vector<std::string> read_, skipped_;
};

/// A tensor whose rows come in equal groups, as one of queries, keys and values
/// of each head in turn.
class GroupedRows {
 public:
  /// heights: rows of the parts of a group. columns: of a tensor that is to be
  /// written, 0 of a vector. Throws FormatError where the tensor is absent or
  /// has other rows than groups times their sum.
  GroupedRows(PublishedTensors& from, const std::string& name, int64_t groups,
              const std::vector<int64_t>& heights, int64_t columns);
  /// part: groups times the sum of `heights` rows.
  GroupedRows(WeightPart part, int64_t groups, std::vector<int64_t> heights)
      : rows_(std::move(part)), groups_(groups), heights_(std::move(heights)) {}
  /// This part of all groups, one below the other. O(groups).
  WeightPart operator[](size_t part) const;

 private:
  const WeightPart rows_;
  const int64_t groups_;
  const std::vector<int64_t> heights_;
};

/// What an importer fills in: tensors of tarn's model under their names.
class ImportedTensors {
 public:
  explicit ImportedTensors(const ModelConfig& config) : config_(config) {}

  void Add(std::string name, WeightPart part);
  /// name.weight and, if `bias`, name.bias from those of another module.
  void AddLinear(PublishedTensors& from, const std::string& name,
                 const std::string& published, bool bias = false);
  /// The head, from `head` or, where the model is tied, from the embedding, of
  /// which `head` may be a copy.
  /// Throws FormatError where a tied model holds another head.
  void AddHead(PublishedTensors& from, const std::string& head,
               const std::string& embedding);

  std::vector<WeightView::Tensor> Take() { return std::move(tensors_); }

 private:
  const ModelConfig& config_;
  std::vector<WeightView::Tensor> tensors_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // once asked for
};

}  // namespace tarn
