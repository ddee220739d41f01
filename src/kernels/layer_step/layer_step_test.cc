#include "kernels/layer_step/layer_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/layer_step/layer_step_ref.h"
#include "kernels/layer_step/linear_step.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

using Floats = std::vector<float>;

struct Shape {
  int64_t rows, width, heads, d_key, d_value, hidden, layers;
};
const Shape kShapes[] = {{1, 32, 4, 8, 8, 64, 3},   {1, 7, 3, 5, 2, 9, 2},
                         {2, 16, 2, 4, 12, 33, 1},  {9, 32, 4, 8, 8, 70, 2},
                         {33, 24, 1, 20, 6, 48, 2}, {1, 64, 4, 16, 16, 5, 0}};

struct Kind {
  bool pre_norm, rms, gelu, gated, biased, last_norm;
  int64_t attentions;
  int64_t outputs = 0;  // of a head
};
const Kind kKinds[] = {{false, false, false, false, true, true, 1},
                       {true, false, true, false, true, true, 1},
                       {true, true, false, true, false, false, 1},
                       {false, false, false, false, true, false, 2},
                       {true, true, true, false, false, true, 2},
                       {true, false, true, false, true, true, 1, 50},
                       {false, false, false, false, false, true, 1, 3},
                       {true, true, false, true, true, false, 1, 37},
                       {false, false, false, false, true, false, 1, 131}};

// Layers, states and the same model in double.
class Problem {
 public:
  Problem(const Shape& shape, const Kind& kind) : shape_(shape) {
    model_.heads = static_cast<size_t>(shape.heads);
    model_.pre_norm = call_.pre_norm = kind.pre_norm;
    model_.rms = kind.rms;
    model_.gelu = kind.gelu;
    call_.norm_kind = kind.rms ? NormKind::kRms : NormKind::kLayer;
    call_.activation = kind.gelu ? Nonlinearity::kGelu : Nonlinearity::kRelu;
    call_.attentions = kind.attentions;
    call_.rows = shape.rows;
    call_.width = shape.width;
    call_.heads = shape.heads;
    call_.d_key = shape.d_key;
    call_.d_value = shape.d_value;
    call_.hidden = shape.hidden;
    const int64_t keys = shape.heads * shape.d_key;
    const int64_t values = shape.heads * shape.d_value, width = shape.width;
    for (int64_t i = 0; i < shape.layers; ++i) {
      LayerStepLayer& layer = layers_.emplace_back();
      LayerStepLayerRef& ref = model_.layers.emplace_back();
      for (int64_t k = 0; k < kind.attentions; ++k) {
        LayerStepAttentionWeights& a = layer.attention[k];
        LayerStepAttentionRef& b = ref.attentions.emplace_back();
        a.query = Map(keys, width, kind.biased, b.query);
        a.key = Map(keys, width, kind.biased, b.key);
        a.value = Map(values, width, kind.biased, b.value);
        a.out = Map(width, values, kind.biased, b.out);
        a.norm = Norm(kind.rms, b.norm);
      }
      layer.linear1 = Map(shape.hidden, width, !kind.gated, ref.linear1);
      layer.linear2 = Map(width, shape.hidden, kind.biased, ref.linear2);
      if (kind.gated) {
        layer.linear3 = Map(shape.hidden, width, false, ref.linear3).weight;
      }
      layer.norm = Norm(kind.rms, ref.norm);
    }
    if (kind.last_norm) call_.last_norm = Norm(kind.rms, model_.last_norm);
    if (kind.outputs > 0) {
      call_.head = Map(kind.outputs, width, kind.biased, model_.head);
      call_.outputs = kind.outputs;
    }
    call_.layers = layers_.data();
    call_.count = shape.layers;
    const int64_t states = shape.layers * kind.attentions;
    x_ = testing::Normals(shape.rows * width, 99);
    const int64_t z = shape.rows * keys;
    S_ = testing::Normals(states * z * shape.d_value, 98);
    z_ = testing::Normals(states * z, 97);
    for (float& v : z_) v = std::fabs(v) + 1;
  }

  // One token on `executor`, from NaN everywhere.
  void Run(Executor& executor) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    out.assign(static_cast<size_t>(shape_.rows * OutputsOf()), nan);
    next_S.assign(S_.size(), nan);
    next_z.assign(z_.size(), nan);
    call_.x = x_.data();
    call_.out = out.data();
    const int64_t floats = LayerStepWorkspaceFloats(call_, executor.width());
    AlignedBuffer<float> workspace(std::max<int64_t>(0, floats));
    std::fill(workspace.data(), workspace.data() + workspace.size(), nan);
    Team team(executor);
    LayerSteps(call_, States(*this), workspace.data(), team);
  }

  // The same for one row alone, in double: its output and its states.
  Doubles Reference(int64_t row, Doubles& S, Doubles& z) {
    LayerStepModelRef model = model_;
    int64_t state = 0;
    const auto of_row = [&](const Floats& all, int64_t size) {
      const float* from = all.data() + (state * shape_.rows + row) * size;
      return Doubles(from, from + size);
    };
    for (LayerStepLayerRef& layer : model.layers) {
      for (LayerStepAttentionRef& a : layer.attentions) {
        a.S = of_row(S_, SizeOfS());
        a.z = of_row(z_, SizeOfZ());
        ++state;
      }
    }
    const float* x = x_.data() + row * shape_.width;
    const Doubles y = LayerStepRef(model, Doubles(x, x + shape_.width));
    for (const LayerStepLayerRef& layer : model.layers) {
      for (const LayerStepAttentionRef& a : layer.attentions) {
        S.insert(S.end(), a.S.begin(), a.S.end());
        z.insert(z.end(), a.z.begin(), a.z.end());
      }
    }
    return y;
  }

  int64_t OutputsOf() const {
    return call_.outputs > 0 ? call_.outputs : shape_.width;
  }
  int64_t SizeOfZ() const { return shape_.heads * shape_.d_key; }
  int64_t SizeOfS() const { return SizeOfZ() * shape_.d_value; }

  Floats out, next_S, next_z;

 private:
  // Every attention of a layer as a self attention with its own state.
  class States final : public StepAttention {
   public:
    explicit States(Problem& problem) : problem_(problem) {
      const Shape& shape = problem.shape_;
      const int64_t S = shape.rows * problem.SizeOfS();
      const int64_t z = shape.rows * problem.SizeOfZ();
      const int64_t states = shape.layers * problem.call_.attentions;
      for (int64_t i = 0; i < states; ++i) {
        states_.push_back({problem.S_.data() + i * S, problem.z_.data() + i * z,
                           problem.next_S.data() + i * S,
                           problem.next_z.data() + i * z});
      }
    }
    void Attend(const LayerStepPart& part,
                const LayerStepRows& rows) const override {
      LayerStepPart place = part;
      place.layer = part.layer * problem_.call_.attentions + part.attention;
      LinearStepAttention({}, problem_.call_, states_.data())
          .Attend(place, rows);
    }

   private:
    Problem& problem_;
    std::vector<LinearAttentionState> states_;
  };

  const float* Draw(int64_t size, double scale, Doubles& same) {
    Floats values = testing::Normals(size, seed_++);
    for (float& v : values) v = static_cast<float>(v * scale);
    same = testing::Widen(values);
    return held_.emplace_back(std::make_unique<Floats>(values))->data();
  }
  LayerStepMap Map(int64_t outputs, int64_t inputs, bool biased,
                   LayerStepMapRef& ref) {
    const double scale = 1 / std::sqrt(static_cast<double>(inputs));
    LayerStepMap map = {Draw(outputs * inputs, scale, ref.weight), nullptr};
    if (biased) map.bias = Draw(outputs, 0.3, ref.bias);
    return map;
  }
  LayerStepNorm Norm(bool rms, LayerStepNormRef& ref) {
    LayerStepNorm norm = {Draw(shape_.width, 1, ref.gamma), nullptr};
    if (!rms) norm.beta = Draw(shape_.width, 0.3, ref.beta);
    return norm;
  }

  Shape shape_;
  uint64_t seed_ = 1;
  std::vector<std::unique_ptr<Floats>> held_;
  std::vector<LayerStepLayer> layers_;
  Floats x_, S_, z_;
  LayerStepModelRef model_;

 public:
  LayerStepCall call_;
};

TEST(LayerStepTest, IsTheDefinitionForEveryKindAndShape) {
  ThreadPool pool(3);
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const Shape& shape : kShapes) {
      for (const Kind& kind : kKinds) {
        Problem problem(shape, kind);
        problem.Run(pool);
        for (int64_t row = 0; row < shape.rows; ++row) {
          Doubles S, z;
          const Doubles want = problem.Reference(row, S, z);
          ASSERT_EQ(want.size(), static_cast<size_t>(problem.OutputsOf()));
          for (size_t i = 0; i < want.size(); ++i) {
            const float got =
                problem.out[static_cast<size_t>(row) * want.size() + i];
            ASSERT_NEAR(want[i], got, 1e-4 * (1 + std::fabs(want[i])))
                << target << " shape " << &shape - kShapes << " kind "
                << &kind - kKinds << " row " << row;
          }
          const auto near = [&](const Doubles& state, const Floats& got,
                                int64_t size) {
            for (size_t i = 0; i < state.size(); ++i) {
              const int64_t layer = static_cast<int64_t>(i) / size;
              const int64_t at = (layer * shape.rows + row) * size +
                                 static_cast<int64_t>(i) % size;
              ASSERT_NEAR(state[i], got[static_cast<size_t>(at)],
                          1e-4 * (1 + std::fabs(state[i])));
            }
          };
          near(S, problem.next_S, problem.SizeOfS());
          near(z, problem.next_z, problem.SizeOfZ());
        }
      }
    }
  }
  ResetSimdTarget();
}

TEST(LayerStepTest, TheBitsAreTheSameForAnyExecutor) {
  SerialExecutor serial;
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    for (const Shape& shape : kShapes) {
      for (const Kind& kind : kKinds) {
        Problem one(shape, kind), two(shape, kind);
        one.Run(serial);
        two.Run(pool);
        const auto same = [](const Floats& a, const Floats& b) {
          return a.empty() ||
                 std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        };
        EXPECT_TRUE(same(one.out, two.out)) << threads;
        EXPECT_TRUE(same(one.next_S, two.next_S)) << threads;
        EXPECT_TRUE(same(one.next_z, two.next_z)) << threads;
      }
    }
  }
}

TEST(LayerStepTest, BadArgumentsAreRefusedBeforeAnyWork) {
  SerialExecutor serial;
  const auto refused = [&](auto change) {
    Problem problem(kShapes[0], kKinds[0]);
    change(problem.call_);
    problem.Run(serial);
  };
  EXPECT_THROW(refused([](auto& c) { c.rows = -1; }), ShapeError);
  EXPECT_THROW(refused([](auto& c) { c.heads = 0; }), ShapeError);
  EXPECT_THROW(refused([](auto& c) { c.width = 0; }), ShapeError);
  EXPECT_THROW(refused([](auto& c) { c.attentions = 3; }), ShapeError);
  EXPECT_THROW(refused([](auto& c) { c.head = c.layers[0].linear1; }),
               ShapeError);
  EXPECT_THROW(refused([](auto& c) { c.norm_kind = NormKind::kRms; }),
               ArgumentError);
  EXPECT_THROW(refused([](auto& c) {
                 const_cast<LayerStepLayer*>(c.layers)[1].linear2 = {};
               }),
               ArgumentError);
}

}  // namespace
}  // namespace tarn
