// The processes that train one model together: who this one is, and how they
// exchange numbers. A run of one process has ranks too, which exchange nothing.
//
// Everything that decides what a run does next (losses, held-out figures, a
// stop that was asked for) is exchanged, so that all ranks take the same way.
// Every call below is made by all ranks in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "torch_nn/torch.h"

namespace tarn::train {

/// Rows [begin, begin + count) of `rows` that a rank takes; the first ranks
/// take one more where they do not divide. count may be 0.
struct RowShare {
  int64_t begin = 0, count = 0;
};
RowShare ShareOfRows(int64_t rows, int64_t rank, int64_t size);

/// Adds the gradients of all ranks up while the last backward pass of an update
/// still runs.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  /// The factor of the loss of every pass of an update, because gradients are
  /// exchanged as means over the ranks.
  virtual double scale() const = 0;
  /// The last backward pass of an update: afterwards the gradients of all ranks
  /// hold the mean over them, those of earlier passes of the update included.
  /// loss: a scalar with its graph; a rank without rows gives one that is 0 and
  /// reaches a parameter. Returns the seconds in which this rank only waited.
  virtual double LastBackward(const torch::Tensor& loss) = 0;
};

/// One thread at a time. What fails because another rank is gone, or silent for
/// longer than the group's timeout, throws IoError naming this rank.
class Ranks {
 public:
  virtual ~Ranks() = default;
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  /// The one that writes files and reports.
  bool is_first() const { return rank_ == 0; }
  /// Seconds spent in the calls below, and in waiting for gradients, so far.
  double seconds() const { return seconds_; }
  void AddSeconds(double seconds) { seconds_ += seconds; }
  /// Bytes that this rank gave to the others in Gather and SumOwn so far.
  int64_t bytes() const { return bytes_; }

  /// Adds `values` up in place over all ranks, with the same bits on each.
  virtual void Sum(std::span<double> values) = 0;
  /// Replaces the numbers by those of rank 0.
  virtual void Broadcast(std::span<double> values) = 0;
  virtual void Broadcast(const std::vector<torch::Tensor>& tensors) = 0;
  /// Waits until all ranks are here.
  virtual void Wait() = 0;
  /// all: [size() * n]; returns this rank's n elements of the sum over ranks.
  virtual torch::Tensor SumOwn(const torch::Tensor& all) = 0;
  /// own: [n]; returns [size() * n], those of rank 0 first.
  virtual torch::Tensor Gather(const torch::Tensor& own) = 0;
  /// Makes the exchange of the gradients of these parameters, which outlive it;
  /// null where there is one rank.
  virtual std::unique_ptr<GradientExchange> Exchange(
      const std::vector<torch::Tensor>& parameters) = 0;

 protected:
  Ranks(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  double seconds_ = 0;
  int64_t bytes_ = 0;

 private:
  int64_t rank_, size_;
};

/// A run by itself.
std::unique_ptr<Ranks> OneRank();

}  // namespace tarn::train
