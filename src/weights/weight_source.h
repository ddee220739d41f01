// Where a model's tensors come from: their names, shapes and encodings, and
// their rows a few at a time. A source is a file, the shards of one, or a view
// of another source (weight_view.h); what reads it does not know which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "weights/encoding.h"

namespace tarn {

/// A tensor is read as a matrix: its first axis counts rows, the others
/// together are a row. A single number is one row of one.
struct WeightTensor {
  std::string name;
  std::vector<int64_t> shape;
  const Encoding* encoding = &kF32Encoding;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t columns() const;
  int64_t elements() const { return rows() * columns(); }
  /// Bytes as stored.
  int64_t bytes() const { return rows() * encoding->Bytes(columns()); }
};

/// [begin, end) of a tensor's rows or columns.
struct WeightRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Immutable: any number of threads may read. Tensors handed to the functions
/// below must be those of tensors() or Find() of the same source.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  const std::vector<WeightTensor>& tensors() const { return tensors_; }
  const WeightTensor* Find(std::string_view name) const;  // null: absent

  /// The file to name in messages about the whole source.
  virtual std::string path() const = 0;
  /// Where the number `element` of a tensor is stored, for messages:
  /// "model.safetensors: tensor 'x' at byte 80". Without a position: the file
  /// and the tensor's first byte.
  virtual std::string Where(const WeightTensor& tensor,
                            int64_t element = 0) const = 0;

  /// Rows [rows.begin, rows.end) as float32: out [rows, columns()]. Throws
  /// ShapeError for rows that the tensor does not have.
  void ReadRows(const WeightTensor& tensor, WeightRange rows, float* out) const;
  /// The same rows in the tensor's encoding: out [rows.size() bytes of a row].
  void ReadStoredRows(const WeightTensor& tensor, WeightRange rows,
                      uint8_t* out) const;
  /// Columns `columns` of these rows, as float32 and as stored; in whole blocks
  /// of the encoding, of which a row's last may be short. What views are made
  /// of.
  void Read(const WeightTensor& tensor, WeightRange rows, WeightRange columns,
            float* out) const;
  void ReadStored(const WeightTensor& tensor, WeightRange rows,
                  WeightRange columns, uint8_t* out) const;
  /// `count` bytes from byte `begin` of the stored tensor on, row after row.
  void ReadBytes(const WeightTensor& tensor, int64_t begin, int64_t count,
                 uint8_t* out) const;
  /// The tensor will not be read again soon: memory that only caches its file
  /// may go. Costs nothing but time.
  virtual void Release(const WeightTensor&) const {}

 protected:
  /// Called once, by the constructor of a source. Names are distinct.
  void SetTensors(std::vector<WeightTensor> tensors);
  /// The position of a tensor in tensors(); throws ArgumentError for one of
  /// another source.
  size_t IndexOf(const WeightTensor& tensor) const;
  /// Ranges are checked, not empty, and whole blocks.
  virtual void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                        float* out) const = 0;
  virtual void ReadStoredPart(size_t index, WeightRange rows,
                              WeightRange columns, uint8_t* out) const = 0;

 private:
  bool CheckPart(const WeightTensor& tensor, WeightRange rows,
                 WeightRange columns) const;

  std::vector<WeightTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

/// Opens the weights of a model directory: DIR/model.safetensors, or if there
/// is none the shards that DIR/model.safetensors.index.json lists. Headers are
/// checked whole, numbers are not read. Tensors that are stored in groups
/// (quantised/quantised_source.h) are joined. IoError or FormatError in one
/// line. use_mmap false: contents are copied.
Result<std::shared_ptr<const WeightSource>> OpenWeightSource(
    const std::string& dir, bool use_mmap = true);

/// Opens one safetensors file.
Result<std::shared_ptr<const WeightSource>> OpenWeightFile(
    const std::string& path, bool use_mmap = true);

}  // namespace tarn
