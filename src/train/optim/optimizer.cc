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

}  // namespace

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
  std::vector<torch::Tensor> parameters, gradients, m, v;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i].second;
    if (!parameter.grad().defined()) continue;
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad());
    m.push_back(m_[i]);
    v.push_back(v_[i]);
  }
  const torch::Tensor held = ops::GradientNorms(gradients).to(torch::kCPU);
  const std::vector<double> norms(held.data_ptr<double>(),
                                  held.data_ptr<double>() + held.numel());
  double squares = 0;
  for (const double norm : norms) squares += norm * norm;
  const double total = std::sqrt(squares);
  if (!std::isfinite(total)) return total;
  const bool radam = kind_ == OptimizerKind::kRAdam;
  std::vector<double> factors;
  if (clip_ > 0) factors = ClipFactors(norms, total, radam, clip_);
  AdamStepOptions options;
  options.kind = radam ? AdamKind::kRAdam : AdamKind::kAdamW;
  options.lr = lr;
  options.weight_decay = weight_decay_;
  options.update = ++updates_;
  ops::AdamStep(parameters, gradients, m, v, factors, options);
  for (torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  return total;
}

void Optimizer::Save(const std::string& path) const {
  std::vector<torch::Tensor>
      dense;  // keeps copies alive while they are written
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* kind, size_t i, const torch::Tensor& value) {
    dense.push_back(value.to(torch::kCPU).contiguous());
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
  const auto read = [&](const TensorEntry& entry, torch::Tensor& into) {
    const torch::Tensor values = torch::empty(entry.shape, torch::kFloat32);
    file.ReadF32(entry, values.data_ptr<float>());
    into.copy_(values);
  };
  std::vector<const TensorEntry*> m, v;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    m.push_back(find("m." + parameters_[i].first, m_[i]));
    v.push_back(find("v." + parameters_[i].first, v_[i]));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    read(*m[i], m_[i]);
    read(*v[i], v_[i]);
  }
  updates_ = std::stoll(updates->second);
}

}  // namespace tarn::train
