#include "train/distributed/group.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>

#include "core/error.h"

namespace tarn::train {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Clock = std::chrono::steady_clock;

// Gradients travel in buckets of at most so many bytes, so that the first of
// them are on their way while the rest is computed. A megabyte takes a few
// hundred microseconds on one machine and a millisecond on a network of 10
// Gbit/s.
constexpr int64_t kBucketBytes = int64_t{1} << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// When a peer is gone or silent, torch's exceptions mention sockets: they
// become an IoError that says what has happened.
template <typename Call>
void Guarded(const std::string& who, const Call& call) {
  try {
    call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw IoError(StrCat(who, ": another rank is gone or does not answer: ",
                         FirstLine(error.what())));
  }
}

// torch's reducer took on arguments over its versions; they are all switches of
// what is not used here.
template <typename... Args>
std::unique_ptr<c10d::Reducer> MakeReducer(Args... args) {
  if constexpr (std::is_constructible_v<c10d::Reducer, Args...>) {
    return std::make_unique<c10d::Reducer>(std::move(args)...);
  } else if constexpr (std::is_constructible_v<c10d::Reducer, Args..., bool>) {
    return std::make_unique<c10d::Reducer>(std::move(args)..., false);
  } else if constexpr (std::is_constructible_v<c10d::Reducer, Args..., bool,
                                               bool>) {
    return std::make_unique<c10d::Reducer>(std::move(args)..., false, false);
  } else {
    return std::make_unique<c10d::Reducer>(std::move(args)..., false, false,
                                           std::vector<int64_t>());
  }
}

// Newer torch has other names for the two, and warns about those of older ones.
template <typename AnyGroup>
auto GatherAll(AnyGroup& group, torch::Tensor& all, torch::Tensor& own) {
  if constexpr (requires { group.all_gather_single(all, own); }) {
    return group.all_gather_single(all, own);
  } else {
    return group._allgather_base(all, own);
  }
}
template <typename AnyGroup>
auto ScatterSums(AnyGroup& group, torch::Tensor& own, torch::Tensor& all) {
  if constexpr (requires { group.reduce_scatter_single(own, all); }) {
    return group.reduce_scatter_single(own, all);
  } else {
    return group._reduce_scatter_base(own, all);
  }
}

// Parameters in the order in which a backward pass reaches them, roughly: from
// the last to the first.
std::vector<std::vector<size_t>> Buckets(
    const std::vector<torch::Tensor>& parameters) {
  std::vector<std::vector<size_t>> buckets;
  int64_t bytes = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    const auto own = static_cast<int64_t>(parameters[i].nbytes());
    if (buckets.empty() || bytes + own > kBucketBytes) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(i);
    bytes += own;
  }
  return buckets;
}

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// c10d's reducer, the heart of DistributedDataParallel. Its buckets stay as
// they are made: what they hold decides the order of sums, which a resumed run
// must find again.
class ReducedGradients final : public GradientExchange {
 public:
  ReducedGradients(const std::vector<torch::Tensor>& parameters,
                   const Group& group)
      : size_(group->getSize()),
        who_(StrCat("rank ", group->getRank(), " of ", group->getSize())),
        reducer_(MakeReducer(
            parameters, Buckets(parameters), group,
            std::vector<bool>(parameters.size(), false), kBucketBytes,
            /*find_unused_parameters=*/true,
            /*gradient_as_bucket_view=*/false,
            std::unordered_map<size_t, std::string>(), kBucketBytes)) {}

  double scale() const override { return static_cast<double>(size_); }

  double LastBackward(const torch::Tensor& loss) override {
    // The reducer warns where every parameter has a gradient, which is no fault
    // here.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward({loss});
    const Clock::time_point began = Clock::now();
    Guarded(who_, [&] { loss.backward(); });
    const double whole = SecondsSince(began);
    int64_t last = 0;
    for (const int64_t ready : reducer_->get_backward_stats()) {
      last = std::max(last, ready);
    }
    return std::max(0.0, whole - 1e-9 * static_cast<double>(last));
  }

 private:
  int64_t size_;
  std::string who_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

class GroupRanks final : public Ranks {
 public:
  explicit GroupRanks(Group group)
      : Ranks(group->getRank(), group->getSize()), group_(std::move(group)) {}

  void Sum(std::span<double> values) override {
    torch::Tensor sums = Wrap(values);
    Do([&] {
      std::vector<torch::Tensor> tensors = {sums};
      group_->allreduce(tensors)->wait();
    });
    Unwrap(sums, values);
  }

  void Broadcast(std::span<double> values) override {
    torch::Tensor all = Wrap(values);
    Broadcast({all});
    Unwrap(all, values);
  }

  void Broadcast(const std::vector<torch::Tensor>& tensors) override {
    Do([&] {
      for (const torch::Tensor& tensor : tensors) {
        std::vector<torch::Tensor> one = {tensor};
        group_->broadcast(one)->wait();
      }
    });
  }

  void Wait() override {
    Do([&] { group_->barrier()->wait(); });
  }

  torch::Tensor SumOwn(const torch::Tensor& all) override {
    torch::Tensor own = torch::empty({all.numel() / size()}, all.options());
    Do([&] {
      torch::Tensor input = all;
      ScatterSums(*group_, own, input)->wait();
    });
    bytes_ += static_cast<int64_t>(all.nbytes() - own.nbytes());
    return own;
  }

  torch::Tensor Gather(const torch::Tensor& own) override {
    torch::Tensor all = torch::empty({size() * own.numel()}, own.options());
    Do([&] {
      torch::Tensor input = own;
      GatherAll(*group_, all, input)->wait();
    });
    bytes_ += static_cast<int64_t>(all.nbytes() - own.nbytes());
    return all;
  }

  std::unique_ptr<GradientExchange> Exchange(
      const std::vector<torch::Tensor>& parameters) override {
    return std::make_unique<ReducedGradients>(parameters, group_);
  }

 private:
  static torch::Tensor Wrap(std::span<const double> values) {
    const torch::Tensor tensor =
        torch::empty({std::ssize(values)}, torch::kFloat64);
    std::copy(values.begin(), values.end(), tensor.data_ptr<double>());
    return tensor;
  }
  static void Unwrap(const torch::Tensor& tensor, std::span<double> values) {
    const double* begin = tensor.data_ptr<double>();
    std::copy(begin, begin + values.size(), values.begin());
  }

  template <typename Call>
  void Do(const Call& call) {
    const Clock::time_point start = Clock::now();
    const torch::NoGradGuard no_grad;
    Guarded(StrCat("rank ", rank(), " of ", size()), call);
    seconds_ += SecondsSince(start);
  }

  Group group_;
};

}  // namespace

std::unique_ptr<Ranks> RanksOfGroup(const std::string& name) {
  Group group;
  try {
    group = c10d::resolve_process_group(name);
  } catch (const std::exception& error) {
    throw ArgumentError(
        "process group", "one that this process has made",
        StrCat("\"", name, "\" (", FirstLine(error.what()), ")"));
  }
  return std::make_unique<GroupRanks>(std::move(group));
}

}  // namespace tarn::train
