// Small runs of every kind for tests of the objectives: plans by name, with new
// models. Included by tests alone.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/test_util.h"
#include "train/objectives/objective.h"

namespace tarn::train {

inline const std::string kPlans[] = {"linear", "full",   "hybrid",
                                     "favor",  "rotary", "lstm",
                                     "cnn",    "labels", "pairs"};

/// Options of the plan of that name; the value of "data" is the data
/// themselves.
inline Given GivenOf(const std::string& name) {
  const Given copy = {{"generator", "copy"}, {"seq_len", "32"}};
  const auto also = [&](Given more) {
    more.insert(more.begin(), copy.begin(), copy.end());
    return more;
  };
  std::string pairs, labels;
  for (int i = 0; i < 40; ++i) {
    const std::string word = std::to_string(7919 * i % 1000 + 1000);
    pairs += word + "\t" + word + word + "\n";
    labels += word.substr(3, 1) + "\t" + word + "\n";
  }
  if (name == "linear") return copy;
  if (name == "full") return also({{"attention", "full"}});
  if (name == "hybrid") {
    return also({{"layers", "aft-simple,local:local_context=8"},
                 {"norm_kind", "rms"},
                 {"feed_forward", "swiglu"}});
  }
  if (name == "favor") return also({{"feature_map", "favor"}});
  if (name == "rotary") return also({{"positions", "rotary"}});
  if (name == "lstm") return also({{"arch", "lstm"}});
  if (name == "cnn") return also({{"arch", "cnn"}});
  if (name == "labels") return {{"arch", "encoder"}, {"data", labels}};
  return {{"arch", "seq2seq"}, {"data", pairs}};
}

struct Planned {
  explicit Planned(Given more)
      : plan(PlanRun([&] {
          Given given = {{"out", dir / "out"}, {"d_model", "16"},
                         {"n_heads", "2"},     {"n_layers", "2"},
                         {"threads", "1"},     {"seed", "3"},
                         {"batch", "4"},       {"eval_windows", "8"}};
          for (auto& [name, value] : more) {
            if (name == "data") value = dir.Write("data", value);
          }
          given.insert(given.end(), more.begin(), more.end());
          return given;
        }())),
        objective(MakeObjective(plan)) {}
  TrainOptions& options() { return plan.state.options; }
  std::shared_ptr<nn::ModelImpl> NewModel() const {
    torch::manual_seed(1);
    return nn::MakeModel(plan.state.options.model);
  }
  TemporaryFolder dir;
  RunPlan plan;
  std::unique_ptr<Objective> objective;
};

}  // namespace tarn::train
