// Ranks that are threads of one process: what several ranks compute, tested
// without a network. Included by tests alone.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "train/distributed/ranks.h"
#include "train/optim/optimizer.h"

namespace tarn::train {

/// Runs `work` once for each of `size` ranks, all at the same time.
class ThreadGroup {
 public:
  static void Run(int64_t size, const std::function<void(Ranks&)>& work) {
    ThreadGroup group(size);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        Member member(group, rank);
        work(member);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  explicit ThreadGroup(int64_t size)
      : size_(size), given_(size), barrier_(size) {}

  // Every rank puts tensors in; all see all until all have seen them.
  template <typename Read>
  void Meet(int64_t rank, std::vector<torch::Tensor> tensors,
            const Read& read) {
    given_[rank] = std::move(tensors);
    barrier_.arrive_and_wait();
    read(given_);
    barrier_.arrive_and_wait();
  }

  class Member final : public Ranks {
   public:
    Member(ThreadGroup& group, int64_t rank)
        : Ranks(rank, group.size_), group_(group) {}

    void Sum(std::span<double> values) override {
      const torch::Tensor own = torch::tensor(
          std::vector<double>(values.begin(), values.end()), torch::kFloat64);
      torch::Tensor sum = torch::zeros_like(own);
      group_.Meet(rank(), {own}, [&](const auto& all) {
        for (const auto& one : all) sum += one[0];
      });
      const double* from = sum.data_ptr<double>();
      std::copy(from, from + values.size(), values.begin());
    }

    void Broadcast(std::span<double> values) override {
      if (!is_first()) std::fill(values.begin(), values.end(), 0.0);
      Sum(values);
    }

    void Broadcast(const std::vector<torch::Tensor>& tensors) override {
      group_.Meet(rank(), tensors, [&](const auto& all) {
        if (is_first()) return;
        for (size_t i = 0; i < tensors.size(); ++i) {
          torch::Tensor(tensors[i]).copy_(all[0][i]);
        }
      });
    }

    void Wait() override {
      group_.Meet(rank(), {}, [](const auto&) {});
    }

    torch::Tensor SumOwn(const torch::Tensor& all) override {
      const int64_t n = all.numel() / size();
      torch::Tensor own = torch::zeros({n}, all.options());
      group_.Meet(rank(), {all}, [&](const auto& given) {
        for (const auto& one : given) {
          own += one[0].slice(0, rank() * n, (rank() + 1) * n);
        }
      });
      return own;
    }

    torch::Tensor Gather(const torch::Tensor& own) override {
      std::vector<torch::Tensor> parts;
      group_.Meet(rank(), {own}, [&](const auto& given) {
        for (const auto& one : given) parts.push_back(one[0].clone());
      });
      return torch::cat(parts);
    }

    std::unique_ptr<GradientExchange> Exchange(
        const std::vector<torch::Tensor>& parameters) override {
      return std::make_unique<Sums>(*this, parameters);
    }

   private:
    friend class Sums;
    class Sums final : public GradientExchange {
     public:
      Sums(Member& member, std::vector<torch::Tensor> parameters)
          : member_(member), parameters_(std::move(parameters)) {}
      double scale() const override {
        return static_cast<double>(member_.size());
      }
      double LastBackward(const torch::Tensor& loss) override {
        loss.backward();
        std::vector<torch::Tensor> own, sums;
        for (const torch::Tensor& parameter : parameters_) {
          own.push_back(parameter.grad());
          sums.emplace_back();
        }
        member_.group_.Meet(member_.rank(), own, [&](const auto& all) {
          for (const auto& one : all) {
            for (size_t i = 0; i < sums.size(); ++i) {
              if (!one[i].defined()) continue;
              sums[i] = sums[i].defined() ? sums[i] + one[i] : one[i].clone();
            }
          }
        });
        for (size_t i = 0; i < sums.size(); ++i) {
          parameters_[i].mutable_grad() =
              sums[i].defined() ? sums[i] / scale() : sums[i];
        }
        return 0;
      }

     private:
      Member& member_;
      std::vector<torch::Tensor> parameters_;
    };

    ThreadGroup& group_;
  };

  int64_t size_;
  std::vector<std::vector<torch::Tensor>> given_;
  std::barrier<> barrier_;
};

/// An optimiser of a run by itself.
struct AloneOptimizer {
  AloneOptimizer(NamedTensors parameters, OptimizerKind kind,
                 double weight_decay, double clip)
      : it(MakeOptimizer(std::move(parameters), {kind, weight_decay, clip},
                         *ranks)) {}
  Optimizer* operator->() { return it.get(); }
  std::unique_ptr<Ranks> ranks = OneRank();
  std::unique_ptr<Optimizer> it;
};

}  // namespace tarn::train
