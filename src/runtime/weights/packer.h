// The tensors of a source as a model holds them: matrices packed, the others as
// float32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "kernels/matmul/weight_arena.h"
#include "runtime/weights/model_tensors.h"
#include "runtime/weights/weight_plan.h"
#include "weights/weight_source.h"

namespace tarn {

/// A tensor in a matrix, and what holds it.
struct HeldTensor {
  std::string name;
  const WeightFormat* format = nullptr;
  const WeightFormat* equivalent = nullptr;  // EquivalentFormat
  int64_t numbers = 0;
};

/// Numbers pass through a block of a panel's rows, one for each worker: no
/// tensor is in memory twice. All matrices lie in one arena, in the order in
/// which they are asked for.
class Packer : public ModelTensors {
 public:
  /// The arguments must outlive it; matrices do not need it.
  Packer(const WeightSource& source, const WeightPlan& plan,
         Executor& executor);

  bool Has(const std::string& name) const override;
  std::vector<float> Vector(const std::string& name) override;
  WeightMatrix Matrix(const std::vector<NamedRows>& parts,
                      int64_t inputs) override;
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override;

  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return arena_->bytes() + vector_bytes_; }
  /// Those of all matrices so far.
  const std::vector<HeldTensor>& Held() const { return held_; }

 protected:
  /// The format of a tensor's rows in a matrix, or in matrix number `index` of
  /// several; by default the plan's.
  virtual const WeightFormat& FormatOf(const WeightTensor& tensor,
                                       int64_t index);

 private:
  const WeightTensor& Find(const std::string& name) const;
  std::vector<float> Read(const WeightTensor& tensor);
  // Rows [from, from + rows) of a tensor as rows of a matrix from `first` on.
  void SetRows(const WeightTensor& tensor, int64_t from, int64_t first,
               int64_t rows, int worker, WeightMatrix& matrix);
  void Note(const WeightTensor& tensor, const WeightFormat& format);

  const WeightSource& source_;
  const WeightPlan& plan_;
  Executor& executor_;
  const std::shared_ptr<WeightArena> arena_ = std::make_shared<WeightArena>();
  std::vector<std::vector<float>> blocks_;  // of each worker [kPanel, inputs]
  int64_t parameters_ = 0, vector_bytes_ = 0;
  std::vector<HeldTensor> held_;
};

}  // namespace tarn
