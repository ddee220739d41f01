#include "train/optim/optimizer.h"

#include <cmath>

#include "core/error.h"
#include "core/safetensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::train {
namespace {

constexpr char kUpdatesKey[] = "updates";

// Factors that scale gradients to norm `largest`: one each, or one for all.
std::vector<double> ClipFactors(const std::vector<double>& norms, double total,
                                bool each, double largest) {
  std::vector<double> factors;
  for (const double own : norms) {
    const double norm = each ? own : total;
    factors.push_back(norm > largest ? largest / norm : 1.0);
  }
  return factors;
}

std::vector<double> NormsOf(const std::vector<torch::Tensor>& gradients) {
  const torch::Tensor held = ops::GradientNorms(gradients).to(torch::kCPU);
  return {held.data_ptr<double>(), held.data_ptr<double>() + held.numel()};
}

// Keeps the moments of all parameters whole, as a run by itself does.
class WholeOptimizer final : public Optimizer {
 public:
  WholeOptimizer(NamedTensors parameters, UpdateRule rule, Ranks& ranks)
      : Optimizer(std::move(parameters), rule, ranks) {
    for (const auto& [name, parameter] : parameters_) {
      m_.push_back(torch::zeros_like(parameter).detach());
      v_.push_back(torch::zeros_like(parameter).detach());
    }
  }

  int64_t state_bytes() const override {
    int64_t bytes = 0;
    for (const torch::Tensor& m : m_) {
      bytes += 2 * static_cast<int64_t>(m.nbytes());
    }
    return bytes;
  }

  double Step(double lr) override {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parameters, gradients, m, v;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      m.push_back(m_[i]);
      v.push_back(v_[i]);
    }
    const std::vector<double> norms = NormsOf(gradients);
    double squares = 0;
    for (const double norm : norms) squares += norm * norm;
    const double total = std::sqrt(squares);
    if (Apply(lr, total, norms, parameters, gradients, m, v)) {
      for (torch::Tensor& parameter : parameters) {
        parameter.mutable_grad().reset();
      }
    }
    return total;
  }

 protected:
  std::vector<std::vector<torch::Tensor>> Moments() override {
    return {m_, v_};
  }
  void SetMoments(
      const std::vector<std::vector<torch::Tensor>>& moments) override {
    for (size_t i = 0; i < m_.size(); ++i) {
      m_[i].copy_(moments[0][i]);
      v_[i].copy_(moments[1][i]);
    }
  }

 private:
  std::vector<torch::Tensor> m_, v_;  // parallel to parameters_
};

// Takes all parameters as one row of numbers, cut into as many equal parts as
// there are ranks. Each rank keeps the state of its part.
class ShardedOptimizer final : public Optimizer {
 public:
  ShardedOptimizer(NamedTensors parameters, UpdateRule rule, Ranks& ranks)
      : Optimizer(std::move(parameters), rule, ranks) {
    int64_t all = 0;
    for (const auto& [name, parameter] : parameters_) {
      begins_.push_back(all);
      all += parameter.numel();
    }
    own_ = (all + ranks.size() - 1) / ranks.size();
    const int64_t first = ranks.rank() * own_, end = first + own_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const int64_t from = std::max(begins_[i], first);
      const int64_t to =
          std::min(begins_[i] + parameters_[i].second.numel(), end);
      if (from < to)
        pieces_.push_back(
            {i, from - begins_[i], to - begins_[i], from - first});
    }
    const auto options =
        parameters_.front().second.options().requires_grad(false);
    m_ = torch::zeros({own_}, options);
    v_ = torch::zeros({own_}, options);
  }

  int64_t state_bytes() const override {
    return 2 * static_cast<int64_t>(m_.nbytes());
  }

  double Step(double lr) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor summed = ranks_.SumOwn(AllGradients());
    // A parameter that no rank has a gradient for stays as it is.
    std::vector<double> used(parameters_.size()), squares(parameters_.size());
    for (size_t i = 0; i < used.size(); ++i) {
      used[i] = parameters_[i].second.grad().defined() ? 1 : 0;
    }
    std::vector<torch::Tensor> gradients;
    for (const Piece& piece : pieces_) gradients.push_back(Of(summed, piece));
    const std::vector<double> own = NormsOf(gradients);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      squares[pieces_[i].parameter] += own[i] * own[i];
    }
    ranks_.Sum(used);
    ranks_.Sum(squares);
    double total = 0;
    for (const double square : squares) total += square;
    total = std::sqrt(total);
    std::vector<torch::Tensor> parameters, some, m, v;
    std::vector<double> norms;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (used[piece.parameter] == 0) continue;
      parameters.push_back(
          Flat(piece.parameter).slice(0, piece.from, piece.to));
      some.push_back(gradients[i]);
      m.push_back(Of(m_, piece));
      v.push_back(Of(v_, piece));
      norms.push_back(std::sqrt(squares[piece.parameter]));
    }
    if (!Apply(lr, total, norms, parameters, some, m, v)) return total;
    Distribute();
    for (auto& [name, parameter] : parameters_)
      parameter.mutable_grad().reset();
    return total;
  }

 protected:
  std::vector<std::vector<torch::Tensor>> Moments() override {
    return {Whole(ranks_.Gather(m_)), Whole(ranks_.Gather(v_))};
  }
  void SetMoments(
      const std::vector<std::vector<torch::Tensor>>& moments) override {
    for (const Piece& piece : pieces_) {
      const auto take = [&](const torch::Tensor& from) {
        return from.flatten().slice(0, piece.from, piece.to);
      };
      Of(m_, piece).copy_(take(moments[0][piece.parameter]));
      Of(v_, piece).copy_(take(moments[1][piece.parameter]));
    }
  }

 private:
  // [from, to) of a parameter, which is at `at` in this rank's part.
  struct Piece {
    size_t parameter;
    int64_t from, to, at;
  };

  static torch::Tensor Of(const torch::Tensor& own, const Piece& piece) {
    return own.slice(0, piece.at, piece.at + piece.to - piece.from);
  }
  torch::Tensor Flat(size_t i) const {
    return parameters_[i].second.detach().view({-1});
  }

  // [size * own_], 0 where this rank has no gradient.
  torch::Tensor AllGradients() const {
    const torch::Tensor all =
        torch::zeros({ranks_.size() * own_}, m_.options());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& gradient = parameters_[i].second.grad();
      if (!gradient.defined()) continue;
      all.slice(0, begins_[i], begins_[i] + gradient.numel())
          .copy_(gradient.flatten());
    }
    return all;
  }

  // The new values of this rank's part to all, theirs to this one.
  void Distribute() {
    const torch::Tensor own = torch::zeros({own_}, m_.options());
    for (const Piece& piece : pieces_) {
      Of(own, piece)
          .copy_(Flat(piece.parameter).slice(0, piece.from, piece.to));
    }
    const std::vector<torch::Tensor> all = Whole(ranks_.Gather(own));
    for (size_t i = 0; i < all.size(); ++i) {
      parameters_[i].second.detach().copy_(all[i]);
    }
  }

  // Cuts the row of all numbers into one tensor a parameter, in its shape.
  std::vector<torch::Tensor> Whole(const torch::Tensor& all) const {
    std::vector<torch::Tensor> tensors;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& like = parameters_[i].second;
      tensors.push_back(all.slice(0, begins_[i], begins_[i] + like.numel())
                            .view(like.sizes()));
    }
    return tensors;
  }

  std::vector<int64_t> begins_;  // of each parameter in the row of all
  std::vector<Piece> pieces_;
  int64_t own_ = 0;      // numbers of a part
  torch::Tensor m_, v_;  // [own_]
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(NamedTensors parameters,
                                         UpdateRule rule, Ranks& ranks,
                                         bool shard) {
  if (shard && ranks.size() > 1) {
    return std::make_unique<ShardedOptimizer>(std::move(parameters), rule,
                                              ranks);
  }
  return std::make_unique<WholeOptimizer>(std::move(parameters), rule, ranks);
}

bool Optimizer::Apply(double lr, double total, const std::vector<double>& norms,
                      const std::vector<torch::Tensor>& parameters,
                      const std::vector<torch::Tensor>& gradients,
                      const std::vector<torch::Tensor>& m,
                      const std::vector<torch::Tensor>& v) {
  if (!std::isfinite(total)) return false;
  const bool radam = rule_.kind == OptimizerKind::kRAdam;
  std::vector<double> factors;
  if (rule_.clip > 0) factors = ClipFactors(norms, total, radam, rule_.clip);
  AdamStepOptions options;
  options.kind = radam ? AdamKind::kRAdam : AdamKind::kAdamW;
  options.lr = lr;
  options.weight_decay = rule_.weight_decay;
  options.update = ++updates_;
  ops::AdamStep(parameters, gradients, m, v, factors, options);
  return true;
}

void Optimizer::Save(const std::string& path) {
  const auto moments = Moments();
  if (!ranks_.is_first()) return;
  std::vector<torch::Tensor>
      dense;  // keeps copies alive while they are written
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* kind, size_t i, const torch::Tensor& value) {
    dense.push_back(value.to(torch::kCPU).contiguous());
    tensors.push_back({kind + parameters_[i].first, DType::kF32,
                       value.sizes().vec(), dense.back().data_ptr<float>()});
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    add("m.", i, moments[0][i]);
    add("v.", i, moments[1][i]);
  }
  WriteSafetensors(path, tensors, {{kUpdatesKey, std::to_string(updates_)}});
}

void Optimizer::Load(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::Open(path).Take();
  if (file.tensors().size() != 2 * parameters_.size()) {
    throw FormatError(path, StrCat(2 * parameters_.size(), " tensors"),
                      StrCat(file.tensors().size()));
  }
  const auto find = [&](const std::string& name, const torch::Tensor& like) {
    const TensorEntry* entry = file.Find(name);
    if (entry == nullptr) throw FormatError(path, "tensor " + name, "none");
    if (entry->shape != like.sizes().vec()) {
      throw FormatError(path + ": " + name, ShapeText(like.sizes().vec()),
                        ShapeText(entry->shape));
    }
    return entry;
  };
  const auto updates = file.metadata().find(kUpdatesKey);
  if (updates == file.metadata().end() || updates->second.empty() ||
      updates->second.size() > 18 ||
      updates->second.find_first_not_of("0123456789") != std::string::npos) {
    throw FormatError(path, "the number of updates", "none");
  }
  // All tensors are found before one is read: a file with something missing
  // changes nothing.
  std::vector<std::vector<const TensorEntry*>> entries(2);
  for (const auto& [name, parameter] : parameters_) {
    entries[0].push_back(find("m." + name, parameter));
    entries[1].push_back(find("v." + name, parameter));
  }
  std::vector<std::vector<torch::Tensor>> moments(2);
  for (size_t kind = 0; kind < 2; ++kind) {
    for (const TensorEntry* entry : entries[kind]) {
      moments[kind].push_back(torch::empty(entry->shape, torch::kFloat32));
      file.ReadF32(*entry, moments[kind].back().data_ptr<float>());
    }
  }
  SetMoments(moments);
  updates_ = std::stoll(updates->second);
}

}  // namespace tarn::train
