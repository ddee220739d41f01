// Losses and figures of labels and targets against sums by definition.
#include "train/objective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/edit_distance.h"
#include "train/example_rows.h"
#include "train/test_files.h"

namespace tarn::train {
namespace {

constexpr char kPairs[] = "a\txyz\nbb\tx\nccc\tyy\ndddd\tzzzz\neeeee\txy\n";
constexpr char kLabels[] = "u\ta\nv\tbb\nv\tccc\nw\tdddd\nu\teeeee\n";

// A plan over `data`, of which `held` is held out.
struct Planned {
  Planned(const std::string& arch, const std::string& data,
          const std::string& held, Given more = {})
      : plan(PlanRun([&] {
          Given given = {{"arch", arch},
                         {"data", dir.Write("data", data)},
                         {"held_out", dir.Write("held", held)},
                         {"out", dir.Name("out")},
                         {"tokenizer", "char"},
                         {"d_model", "8"},
                         {"n_heads", "2"},
                         {"n_layers", "1"},
                         {"seq_len", "9"},
                         {"batch", "3"},
                         {"threads", "1"}};
          given.insert(given.end(), more.begin(), more.end());
          return given;
        }())),
        objective(MakeObjective(plan)) {}
  const ModelConfig& config() const { return plan.state.options.model; }
  TempFolder dir;
  RunPlan plan;
  std::unique_ptr<Objective> objective;
};

// Logits that depend on nothing but a table: [1, outputs] of a class, or of the
// target token before.
class TableModel final : public nn::ModelImpl {
 public:
  TableModel(const ModelConfig& config, torch::Tensor table)
      : ModelImpl(config), table_(register_parameter("table", table)) {}
  torch::Tensor Logits(const nn::Batch& batch) override {
    if (config().task == Task::kClassify) {
      return table_.expand({batch.tokens.size(0), table_.size(1)});
    }
    return table_.index_select(0, batch.target_in.flatten())
        .unflatten(0, batch.target_in.sizes());
  }

 private:
  torch::Tensor table_;
};

TEST(ExampleRowsTest, FillsUpBehindLengths) {
  Planned p("seq2seq", kPairs, "q\tx\n");
  const int32_t newline = NewlineToken(DataOf<PairData>(*p.plan.data).tokenizer);
  const Examples& examples = *DataOf<PairData>(*p.plan.data).training;
  const ExampleRows rows = MakeExampleRows(examples, {1, 2}, newline);
  // Ids follow code points: "\n" a b c d e q x y z.
  EXPECT_TRUE(rows.batch.tokens.equal(torch::tensor({{2, 2, 0}, {3, 3, 3}})));
  EXPECT_TRUE(rows.batch.lengths.equal(torch::tensor({2, 3})));
  EXPECT_TRUE(
      rows.batch.target_in.equal(torch::tensor({{0, 7, 0}, {0, 8, 8}})));
  EXPECT_TRUE(rows.targets.equal(torch::tensor({{7, 0, -100}, {8, 8, 0}})));
  EXPECT_EQ(rows.predicted, 5);
  EXPECT_EQ(rows.tokens, 8);
  const auto batches = ByLength(examples, 2);
  EXPECT_EQ(batches, (std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}, {4}}));
}

TEST(LabelObjectiveTest, AccuracyAndLossByHand) {
  Planned p("encoder", kLabels, "u\tab\nv\tabc\nv\te\nw\tda\n");
  ASSERT_EQ(p.config().n_classes, 3);
  // Probabilities 1/8, 5/8, 2/8: two of four are v.
  TableModel model(p.config(), torch::tensor({{1.0, 5.0, 2.0}}).log());
  StepFigures figures;
  p.objective->LookAtHeldOut(model, figures);
  EXPECT_DOUBLE_EQ(*figures.val_accuracy, 0.5);
  const double want =
      -(std::log(1 / 8.0) + 2 * std::log(5 / 8.0) + std::log(2 / 8.0)) / 4;
  EXPECT_NEAR(*figures.val_loss, want, 1e-6);
  EXPECT_FALSE(figures.val_bits_per_byte.has_value());
  EXPECT_TRUE(model.is_training());
  EXPECT_NE(p.objective->Sample(model).find(" -> v (u)"), std::string::npos);
}

TEST(LabelObjectiveTest, GradientIsThatOfTheMeanOverAllParts) {
  // Three parts of one example against one part of three.
  for (const char* batch : {"3", "1"}) {
    Planned p("encoder", "u\ta\nv\tb\nv\tc\n", "u\tab\n",
              {{"batch", batch}, {"accumulate", batch[0] == '3' ? "1" : "3"}});
    TableModel model(p.config(), torch::tensor({{0.5, -0.25}}));
    StepFigures figures;
    p.objective->Learn(model, 1, figures);
    const double u = std::exp(0.5) / (std::exp(0.5) + std::exp(-0.25));
    // d mean / d logit = probability - share.
    const torch::Tensor gradient = model.parameters()[0].grad();
    EXPECT_NEAR(gradient[0][0].item<double>(), u - 1 / 3.0, 1e-6);
    EXPECT_NEAR(gradient[0][1].item<double>(), 1 - u - 2 / 3.0, 1e-6);
    EXPECT_NEAR(figures.loss, -(std::log(u) + 2 * std::log(1 - u)) / 3, 1e-6);
    EXPECT_NEAR(*figures.accuracy, 1 / 3.0, 1e-12);
    EXPECT_EQ(figures.tokens, 3);
  }
}

// Ids "\n" a b x y: after "\n" comes x, after x comes y, after y the end.
torch::Tensor Cycle() {
  torch::Tensor table = torch::zeros({5, 5});
  table[0][3] = table[3][4] = table[4][0] = std::log(6.0);  // 6/10, others 1/10
  return table;
}

TEST(TargetObjectiveTest, TokenErrorAndLossByHand) {
  // Every decode is "xy": 0, 1, 2 and 3 edits.
  Planned p("seq2seq", "ab\tyx\n", "a\txy\nb\tx\nba\txyxy\nbb\tyxxyx\n");
  ASSERT_EQ(p.config().vocab_size, 5);
  TableModel model(p.config(), Cycle());
  StepFigures figures;
  p.objective->LookAtHeldOut(model, figures);
  EXPECT_DOUBLE_EQ(*figures.val_token_error_rate, (0 + 1 + 2 + 3) / 12.0);
  // Transitions that the table expects, of all (ends included): xy 3 of 3; x 1
  // of 2; xyxy 4 of 5, all but y to x; yxxyx 1 of 6, x to y alone.
  const double right = 3 + 1 + 4 + 1, all = 3 + 2 + 5 + 6;
  const double want =
      -(right * std::log(0.6) + (all - right) * std::log(0.1)) / all;
  EXPECT_NEAR(*figures.val_loss, want, 1e-6);
  EXPECT_EQ(p.objective->Sample(model), "a -> xy (xy)");
}

TEST(TargetObjectiveTest, LossAloneSkipsDecoding) {
  Planned p("seq2seq", kPairs, "a\tz\nq\tx\n", {{"eval_metric", "loss"}});
  const auto model = nn::MakeModel(p.config());
  StepFigures figures;
  p.objective->LookAtHeldOut(*model, figures);
  EXPECT_TRUE(figures.val_loss.has_value());
  EXPECT_FALSE(figures.val_token_error_rate.has_value());
}

// One example at a time, all of it read anew for every token.
double SlowErrorRate(nn::ModelImpl& model, const PairData& data,
                     int64_t max_tokens) {
  torch::NoGradGuard no_grad;
  model.eval();
  double edits = 0, tokens = 0;
  for (int64_t i = 0; i < data.held_out->size(); ++i) {
    const auto input = data.held_out->input(i);
    std::vector<int64_t> source(input.begin(), input.end()), target = {0};
    while (std::ssize(target) <= max_tokens) {
      nn::Batch batch;
      batch.tokens = torch::tensor(source).unsqueeze(0);
      batch.target_in = torch::tensor(target).unsqueeze(0);
      const auto next = model.Logits(batch)[0][std::ssize(target) - 1].argmax();
      if (next.item<int64_t>() == 0) break;
      target.push_back(next.item<int64_t>());
    }
    target.erase(target.begin());
    edits +=
        static_cast<double>(EditDistance(target, data.held_out->target(i)));
    tokens += static_cast<double>(data.held_out->target(i).size());
  }
  return edits / tokens;
}

TEST(TargetObjectiveTest, BatchedDecodesAreThoseOfSingleExamples) {
  for (const char* attention : {"linear", "full", "aft-simple"}) {
    std::string held;
    for (int i = 0; i < 70; ++i) {
      held += std::string(1 + i % 5, 'a') + std::string(1 + i % 3, 'b') + "\t" +
              (i % 2 == 0 ? "xy" : "yyx") + "\n";
    }
    Planned p("seq2seq", kPairs, held, {{"attention", attention}});
    torch::manual_seed(5);
    const auto model = nn::MakeModel(p.config());
    {
      // Far from uniform, so that no two tokens are near each other.
      torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.mul_(2);
    }
    StepFigures figures;
    p.objective->LookAtHeldOut(*model, figures);
    EXPECT_DOUBLE_EQ(*figures.val_token_error_rate,
                     SlowErrorRate(*model, DataOf<PairData>(*p.plan.data), 9))
        << attention;
  }
}

}  // namespace
}  // namespace tarn::train
