// Losses and figures of labels and targets against sums by definition.
#include "train/objectives/objective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/test_util.h"
#include "data/pairs/edit_distance.h"
#include "train/objectives/example_rows.h"
#include "train/tasks/generated_data.h"

namespace tarn::train {
namespace objective_test {

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
                         {"out", dir / "out"},
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
  TemporaryFolder dir;
  RunPlan plan;
  std::unique_ptr<Objective> objective;
};

// Logits that depend on nothing but a table: [1, outputs] of a class, or of the
// token before.
class TableModel final : public nn::ModelImpl {
 public:
  TableModel(const ModelConfig& config, torch::Tensor table)
      : ModelImpl(config), table_(register_parameter("table", table)) {}
  torch::Tensor Logits(const nn::Batch& batch) override {
    if (config().task == Task::kClassify) {
      return table_.expand({batch.tokens.size(0), table_.size(1)});
    }
    if (config().task == Task::kLm) {
      return table_.index_select(0, batch.tokens.flatten())
          .unflatten(0, batch.tokens.sizes());
    }
    return table_.index_select(0, batch.target_in.flatten())
        .unflatten(0, batch.target_in.sizes());
  }

 private:
  torch::Tensor table_;
};

TEST(ExampleRowsTest, FillsUpAfterLengths) {
  Planned p("seq2seq", kPairs, "q\tx\n");
  const int32_t newline =
      NewlineToken(DataOf<PairData>(*p.plan.data).tokenizer);
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
  p.objective->EvaluateHeldOut(model, nullptr, figures);
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
    AddGradient(*p.objective, model, p.plan.state.options, 1, figures);
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
  p.objective->EvaluateHeldOut(model, nullptr, figures);
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
  p.objective->EvaluateHeldOut(*model, nullptr, figures);
  EXPECT_TRUE(figures.val_loss.has_value());
  EXPECT_FALSE(figures.val_token_error_rate.has_value());
}

// One example at a time, all of it read again for every token.
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
    p.objective->EvaluateHeldOut(*model, nullptr, figures);
    EXPECT_DOUBLE_EQ(*figures.val_token_error_rate,
                     SlowErrorRate(*model, DataOf<PairData>(*p.plan.data), 9))
        << attention;
  }
}

// A plan whose rows are generated.
struct Generated {
  explicit Generated(Given more)
      : plan(PlanRun([&] {
          Given given = {{"out", dir / "out"},  {"d_model", "8"},
                         {"n_heads", "2"},      {"n_layers", "1"},
                         {"threads", "1"},      {"seed", "3"},
                         {"eval_windows", "37"}};
          given.insert(given.end(), more.begin(), more.end());
          return given;
        }())),
        objective(MakeObjective(plan)),
        generator(DataOf<GeneratedData>(*plan.data).generator) {}
  TemporaryFolder dir;
  RunPlan plan;
  std::unique_ptr<Objective> objective;
  const Generator& generator;
};

// Sums over the labelled places of rows, one by one, in double.
struct Sums {
  double nats = 0;
  int64_t right = 0, count = 0;
  void Add(const GeneratedRow& row, const torch::Tensor& table) {
    const torch::Tensor log_p = table.to(torch::kDouble).log_softmax(1);
    for (size_t t = 0; t < row.inputs.size(); ++t) {
      if (row.targets[t] == kUnlabelled) continue;
      const torch::Tensor said = log_p[row.inputs[t]];
      nats -= said[row.targets[t]].item<double>();
      right += said.argmax().item<int64_t>() == row.targets[t];
      ++count;
    }
  }
};

TEST(GeneratedObjectiveTest, FiguresAreSumsOverLabelledPlaces) {
  const Given copy = {{"generator", "copy"}, {"seq_len", "32"}};
  const Given mqar = {{"generator", "mqar"},
                      {"seq_len", "32"},
                      {"symbols", "40"},
                      {"pairs", "4"}};
  for (Given given : {copy, mqar}) {
    // Two parts of three rows are the same six rows as one part.
    for (const char* parts : {"1", "2"}) {
      Given both = given;
      both.push_back({"accumulate", parts});
      both.push_back({"batch", parts[0] == '1' ? "6" : "3"});
      Generated g(both);
      const int64_t vocab = g.generator.vocab_size();
      EXPECT_EQ(g.plan.state.options.model.vocab_size, vocab);
      EXPECT_EQ(g.plan.data->TokenizerJson(), Tokenizer::Ids(vocab).ToJson());
      torch::manual_seed(1);
      const torch::Tensor table = torch::randn({vocab, vocab});
      TableModel model(g.plan.state.options.model, table.clone());
      StepFigures figures;
      AddGradient(*g.objective, model, g.plan.state.options, 5, figures);
      Sums want;
      for (int64_t row = 0; row < 6; ++row) {
        want.Add(g.generator.TrainingRow(3, 5, row), table);
      }
      const auto count = static_cast<double>(want.count);
      EXPECT_NEAR(figures.loss, want.nats / count, 1e-5);
      EXPECT_DOUBLE_EQ(*figures.accuracy,
                       static_cast<double>(want.right) / count);
      EXPECT_EQ(figures.tokens, want.count);
      EXPECT_FALSE(figures.bits_per_byte.has_value());
      // With a softmax, gradients of a row of logits sum to 0; those of tokens
      // that no labelled place holds are 0.
      const torch::Tensor gradient = model.parameters()[0].grad();
      EXPECT_LT(gradient.sum(1).abs().max().item<double>(), 1e-6);
      EXPECT_GT(gradient.abs().max().item<double>(), 1e-3);

      Sums held_out;
      for (int64_t row = 0; row < 37; ++row) {
        held_out.Add(g.generator.HeldOutRow(3, row), table);
      }
      g.objective->EvaluateHeldOut(model, nullptr, figures);
      const auto held_count = static_cast<double>(held_out.count);
      EXPECT_NEAR(*figures.val_loss, held_out.nats / held_count, 1e-5);
      EXPECT_DOUBLE_EQ(*figures.val_accuracy,
                       static_cast<double>(held_out.right) / held_count);
      EXPECT_TRUE(model.is_training());
      EXPECT_EQ(g.objective->Sample(model).find("wanted "), 0u);
    }
  }
}

TEST(GeneratedObjectiveTest, OptionsThatDoNotFitAreRefused) {
  const auto refused = [](Given more) {
    try {
      Generated g(more);
    } catch (const ArgumentError& error) {
      return error.where();
    }
    return std::string("accepted");
  };
  const Given copy = {{"generator", "copy"}, {"seq_len", "32"}};
  const auto with = [&](const char* name, const char* value) {
    Given given = copy;
    given.push_back({name, value});
    return refused(given);
  };
  EXPECT_EQ(refused(copy), "accepted");
  EXPECT_EQ(with("data", "x"), "--data");
  EXPECT_EQ(with("held_out", "x"), "--held-out");
  EXPECT_EQ(with("arch", "encoder"), "task");
  EXPECT_EQ(with("tokenizer", "byte"), "--tokenizer");
  EXPECT_EQ(with("records", "block"), "--records");
  EXPECT_EQ(with("long_every", "2"), "--long-every");
  EXPECT_EQ(with("eval_metric", "error"), "--eval-metric");
  EXPECT_EQ(with("eval_metric", "accuracy"), "accepted");
  EXPECT_EQ(with("seq_len", "4"), "--seq-len");
  // One symbol: every row of a length is the same.
  EXPECT_EQ(with("symbols", "1"), "--symbols, --pairs, --seq-len");
  EXPECT_EQ(refused({{"tokenizer", "ids"}, {"data", "x"}}), "--generator");
  EXPECT_EQ(refused({}), "--data");
}

}  // namespace objective_test
}  // namespace tarn::train
