#include "train/optimizer.h"

#include <cmath>

#include "core/error.h"
#include "core/safetensors.h"

namespace tarn::train {
namespace {

// The part both optimisers share: decay and the two running means.
void UpdateMeans(torch::Tensor& parameter, const torch::Tensor& gradient,
                 torch::Tensor& m, torch::Tensor& v,
                 const AdamOptions& options) {
  parameter.mul_(1 - options.lr * options.weight_decay);
  m.lerp_(gradient, 1 - options.beta1);
  v.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
}

constexpr char kUpdatesKey[] = "updates";

}  // namespace

void AdamWUpdate(torch::Tensor parameter, const torch::Tensor& gradient,
                 torch::Tensor m, torch::Tensor v, int64_t k,
                 const AdamOptions& options) {
  UpdateMeans(parameter, gradient, m, v, options);
  const double correction1 = 1 - std::pow(options.beta1, k);
  const double correction2 = std::sqrt(1 - std::pow(options.beta2, k));
  const torch::Tensor denominator =
      v.sqrt().div_(correction2).add_(options.eps);
  parameter.addcdiv_(m, denominator, -options.lr / correction1);
}

void RAdamUpdate(torch::Tensor parameter, const torch::Tensor& gradient,
                 torch::Tensor m, torch::Tensor v, int64_t k,
                 const AdamOptions& options) {
  UpdateMeans(parameter, gradient, m, v, options);
  const double power2 = std::pow(options.beta2, k);
  const double rho_inf = 2 / (1 - options.beta2) - 1;
  const double rho =
      rho_inf - 2 * static_cast<double>(k) * power2 / (1 - power2);
  const double rate = options.lr / (1 - std::pow(options.beta1, k));
  // Below 5 the variance of the adaptive rate is not yet tractable.
  if (rho >= 5) {
    const double rectifier =
        std::sqrt((1 - power2) * (rho - 4) * (rho - 2) * rho_inf /
                  ((rho_inf - 4) * (rho_inf - 2) * rho));
    parameter.addcdiv_(m, v.sqrt().add_(options.eps), -rate * rectifier);
  } else {
    parameter.add_(m, -rate);
  }
}

double GradientNorm(const NamedTensors& parameters) {
  double sum = 0;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    const double norm = parameter.grad().norm().item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

void ClipTogether(const NamedTensors& parameters, double norm, double largest) {
  if (norm <= largest) return;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) {
      parameter.grad().mul_(largest / norm);
    }
  }
}

void ClipEach(const NamedTensors& parameters, double largest) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    const double norm = parameter.grad().norm().item<double>();
    if (norm > largest) parameter.grad().mul_(largest / norm);
  }
}

Optimizer::Optimizer(NamedTensors parameters, OptimizerKind kind,
                     double weight_decay, double clip)
    : parameters_(std::move(parameters)),
      kind_(kind),
      weight_decay_(weight_decay),
      clip_(clip) {
  for (const auto& [name, parameter] : parameters_) {
    m_.push_back(torch::zeros_like(parameter).detach());
    v_.push_back(torch::zeros_like(parameter).detach());
  }
}

double Optimizer::Step(double lr) {
  const torch::NoGradGuard no_grad;
  const double norm = GradientNorm(parameters_);
  if (!std::isfinite(norm)) return norm;
  const bool radam = kind_ == OptimizerKind::kRAdam;
  if (clip_ > 0 && radam) ClipEach(parameters_, clip_);
  if (clip_ > 0 && !radam) ClipTogether(parameters_, norm, clip_);
  AdamOptions options;
  options.lr = lr;
  options.weight_decay = weight_decay_;
  ++updates_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& parameter = parameters_[i].second;
    if (!parameter.grad().defined()) continue;
    const auto update = radam ? RAdamUpdate : AdamWUpdate;
    update(parameter, parameter.grad(), m_[i], v_[i], updates_, options);
    parameter.mutable_grad().reset();
  }
  return norm;
}

void Optimizer::Save(const std::string& path) const {
  std::vector<torch::Tensor>
      dense;  // keeps copies alive while they are written
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* kind, size_t i, const torch::Tensor& value) {
    dense.push_back(value.contiguous());
    tensors.push_back({kind + parameters_[i].first, DType::kF32,
                       value.sizes().vec(), dense.back().data_ptr<float>()});
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    add("m.", i, m_[i]);
    add("v.", i, v_[i]);
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
  std::vector<const TensorEntry*> m, v;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    m.push_back(find("m." + parameters_[i].first, m_[i]));
    v.push_back(find("v." + parameters_[i].first, v_[i]));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    file.ReadF32(*m[i], m_[i].data_ptr<float>());
    file.ReadF32(*v[i], v_[i].data_ptr<float>());
  }
  updates_ = std::stoll(updates->second);
}

}  // namespace tarn::train
