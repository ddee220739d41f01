// Image models in the runtime: bits/dim against the definition in double, draws
// against stepping by hand and against the probabilities that are scored, the
// same bits for every batch and thread count.
#include "runtime/generate/pixels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/logistic_mixture/logistic_mixture.h"
#include "reference/test_model.h"
#include "runtime/generate/beam.h"

namespace tarn::testing {
namespace {

struct ImageKind {
  const char* name;
  AttentionKind attention;
  Positions positions;
  PositionCombine combine;
  int64_t height, width, channels, mixtures;
};

void PrintTo(const ImageKind& kind, std::ostream* out) { *out << kind.name; }

const ImageKind kImageKinds[] = {
    {"LinearConcat", MixerKind("linear"), Positions::kSinusoidal,
     PositionCombine::kConcat, 5, 7, 1, 10},
    {"SoftmaxConcat", MixerKind("full"), Positions::kSinusoidal,
     PositionCombine::kConcat, 5, 7, 1, 10},
    {"LinearColour", MixerKind("linear"), Positions::kLearned,
     PositionCombine::kAdd, 3, 4, 3, 3},
    {"SoftmaxOnePixelWide", MixerKind("full"), Positions::kRotary,
     PositionCombine::kAdd, 9, 1, 1, 1},
};

ModelConfig ConfigOf(const ImageKind& kind) {
  ModelConfig config = SmallConfig();
  config.vocab_size = 256;
  config.task = Task::kImage;
  config.n_mixtures = kind.mixtures;
  config.image_height = kind.height;
  config.image_width = kind.width;
  config.image_channels = kind.channels;
  config.attention = kind.attention;
  config.positions = kind.positions;
  config.position_combine = kind.combine;
  FinishConfig(config);
  return config;
}

// Sharp enough that bytes differ in probability, wide enough to reach all.
Tensors ImageTensors(const ModelConfig& config, uint64_t seed) {
  Tensors tensors = RandomTensors(config, seed);
  for (int64_t k = 0; k < config.n_mixtures; ++k) {
    tensors["predictor.bias"][static_cast<size_t>(2 * config.n_mixtures + k)] =
        -2;
  }
  return tensors;
}

// -ln of the probability of a byte: Salimans et al. 2017 with 7.4's constants.
double NatsOf(const std::vector<double>& params, uint8_t byte) {
  const size_t mixtures = params.size() / 3;
  const double y = 2.0 * byte / 255 - 1;
  const auto sigma = [](double x) { return 1 / (1 + std::exp(-x)); };
  double total = 0, weights = 0;
  for (size_t k = 0; k < mixtures; ++k) {
    const double mean = params[mixtures + k];
    const double scale = std::exp(std::max(params[2 * mixtures + k], -7.0));
    const double upper = sigma((y - mean + 1.0 / 255) / scale);
    const double lower = sigma((y - mean - 1.0 / 255) / scale);
    double p = byte == 0 ? upper : byte == 255 ? 1 - lower : upper - lower;
    if (p <= 1e-5) {
      const double z = (y - mean) / scale;
      p = std::exp(-z) / scale / std::pow(1 + std::exp(-z), 2) / 127.5;
    }
    const double weight = std::exp(params[k]);
    weights += weight;
    total += weight * p;
  }
  return -std::log(total / weights);
}

std::vector<uint8_t> RandomImages(int64_t bytes, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint8_t> images;
  for (int64_t i = 0; i < bytes; ++i) {
    images.push_back(static_cast<uint8_t>(rng.Below(256)));
  }
  return images;
}

class ImagesTest : public ::testing::TestWithParam<ImageKind> {
 protected:
  ImagesTest() : config_(ConfigOf(GetParam())) {
    tensors_ = ImageTensors(config_, 1);
    WriteModel(folder_.path(), config_, tensors_);
  }
  Model Open(int threads = 1) {
    return Model::Open(folder_.path(), {.threads = threads}).Take();
  }
  int64_t Bytes() const { return ImageShape(config_).bytes(); }

  std::vector<uint8_t> Draw(const Model& model, std::vector<uint8_t> given,
                            int64_t starts, const ImageOptions& options) {
    std::vector<uint8_t> images(
        static_cast<size_t>(starts * options.samples * Bytes()), 77);
    EXPECT_EQ(starts * options.samples,
              DrawImages(model, given, starts, options, images.data()));
    return images;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  Tensors tensors_;
};

TEST_P(ImagesTest, BitsFollowTheDefinition) {
  const Model model = Open();
  EXPECT_EQ(3 * config_.n_mixtures, model.n_outputs());
  const int64_t bytes = Bytes(), count = 4;
  const std::vector<uint8_t> images = RandomImages(count * bytes, 2);
  for (const int64_t from : {int64_t{1}, bytes / 2, bytes - 1}) {
    std::vector<double> got(static_cast<size_t>(count), NAN);
    ASSERT_EQ(count, ScoreImages(model, images, from, got.data()));
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* image = images.data() + i * bytes;
      const auto rows =
          ReferenceModel(config_, tensors_).Logits({image, image + bytes - 1});
      double want = 0;
      for (int64_t t = from; t < bytes; ++t) {
        want += NatsOf(rows[static_cast<size_t>(t - 1)], image[t]);
      }
      // float32 through two layers, and differences of close sigmoids.
      EXPECT_NEAR(want, got[static_cast<size_t>(i)], 5e-4 * want);
    }
  }
}

TEST_P(ImagesTest, AnImageHasTheSameScoreInAnyCompanyAndOnAnyThreads) {
  const Model one = Open(1), three = Open(3);
  const int64_t bytes = Bytes();
  const std::vector<uint8_t> images = RandomImages(3 * bytes, 3);
  double all[3], threads[3], alone;
  ScoreImages(one, images, 2, all);
  ScoreImages(three, images, 2, threads);
  ScoreImages(one, std::span(images).last(static_cast<size_t>(bytes)), 2,
              &alone);
  EXPECT_EQ(0, std::memcmp(all, threads, sizeof(all)));
  EXPECT_EQ(all[2], alone);
  EXPECT_EQ(0, ScoreImages(one, {}, 2, nullptr));
}

// What a batch of copied states draws is what one state gives, stepped from the
// first byte on.
TEST_P(ImagesTest, DrawsAreThoseOfSteppingByHand) {
  const Model model = Open();
  const int64_t bytes = Bytes(), given_len = bytes / 2;
  const std::vector<uint8_t> given = RandomImages(2 * given_len, 4);
  const auto images = Draw(model, given, 2, {.samples = 3, .seed = 9});
  std::vector<float> params(static_cast<size_t>(model.n_outputs()));
  for (int64_t i = 0; i < 6; ++i) {
    const uint8_t* image = images.data() + i * bytes;
    ASSERT_EQ(0, std::memcmp(image, given.data() + i / 3 * given_len,
                             static_cast<size_t>(given_len)));
    State state(model);
    for (int64_t t = 0; t < bytes; ++t) {
      if (t >= given_len) {
        Rng rng(9, static_cast<uint64_t>(i), static_cast<uint64_t>(t) * 16);
        ASSERT_EQ(image[t], LogisticMixtureSample(params.data(),
                                                  config_.n_mixtures, rng, 1))
            << "image " << i << " byte " << t;
      }
      model.Step(state, image[t], params.data());
    }
  }
}

TEST_P(ImagesTest, AnyBatchAndThreadCountDrawTheSame) {
  const std::vector<uint8_t> given = RandomImages(3 * 2, 5);
  const auto want = Draw(Open(1), given, 3, {.samples = 5, .seed = 1});
  for (const int64_t batch : {1, 2, 7, 15, 40}) {
    EXPECT_EQ(want, Draw(Open(2), given, 3,
                         {.samples = 5, .seed = 1, .batch = batch}));
  }
  EXPECT_EQ(want, Draw(Open(3), given, 3, {.samples = 5, .seed = 1}));
  // Fewer images are the first of more.
  const std::vector<uint8_t> first(given.begin(), given.begin() + 2);
  auto few = want;
  few.resize(static_cast<size_t>(5 * Bytes()));
  EXPECT_EQ(few, Draw(Open(1), first, 1, {.samples = 5, .seed = 1}));
  EXPECT_NE(want, Draw(Open(1), given, 3, {.samples = 5, .seed = 2}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, ImagesTest, ::testing::ValuesIn(kImageKinds),
                         [](const auto& info) { return info.param.name; });

class OneImageModel : public ::testing::Test {
 protected:
  OneImageModel() : config_(ConfigOf(kImageKinds[0])) {}
  Model Open() {
    WriteModel(folder_.path(), config_, ImageTensors(config_, 1));
    return Model::Open(folder_.path(), {.threads = 1}).Take();
  }
  TemporaryFolder folder_;
  ModelConfig config_;
};

// One byte drawn very often: its frequencies are the scored probabilities.
TEST_F(OneImageModel, DrawsFollowTheProbabilitiesThatAreScored) {
  config_.image_height = 1;
  config_.image_width = 2;
  const Model model = Open();
  double expected[8] = {};  // of 32 bytes each
  double sum = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t image[] = {50, static_cast<uint8_t>(byte)};
    double nats = 0;
    ScoreImages(model, image, 1, &nats);
    expected[byte / 32] += std::exp(-nats);
    sum += std::exp(-nats);
  }
  EXPECT_NEAR(1, sum, 1e-3);  // but for what the 1e-5 rule adds
  const int64_t count = 20000;
  const uint8_t given[] = {50};
  std::vector<uint8_t> images(2 * count);
  DrawImages(model, given, 1, {.samples = count, .seed = 3}, images.data());
  double drawn[8] = {};
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(50, images[2 * i]);
    drawn[images[2 * i + 1] / 32] += 1;
  }
  double chi_squared = 0;
  for (int bin = 0; bin < 8; ++bin) {
    const double want = expected[bin] * count;
    ASSERT_GT(want, 5);
    chi_squared += (drawn[bin] - want) * (drawn[bin] - want) / want;
  }
  EXPECT_LT(chi_squared, 30);  // 7 degrees of freedom: p < 1e-4
}

TEST_F(OneImageModel, ProgressCountsBytesAndCanStop) {
  const Model model = Open();
  const int64_t bytes = ImageShape(config_).bytes();
  const uint8_t given[] = {0};
  std::vector<uint8_t> images(static_cast<size_t>(5 * bytes));
  int64_t calls = 0, last = 0;
  const ImageOptions options = {.samples = 5, .batch = 2};
  EXPECT_EQ(5, DrawImages(model, given, 1, options, images.data(),
                          [&](int64_t done, int64_t total) {
                            EXPECT_EQ(5 * (bytes - 1), total);
                            EXPECT_GT(done, last);
                            last = done;
                            ++calls;
                            return true;
                          }));
  EXPECT_EQ(5 * (bytes - 1), last);
  EXPECT_EQ(3 * (bytes - 1), calls);
  // Stopped inside the second group: the first one's images are whole.
  EXPECT_EQ(2, DrawImages(model, given, 1, options, images.data(),
                          [&](int64_t done, int64_t) {
                            return done <= 2 * (bytes - 1);
                          }));
  double nats[5];
  // Asked within an image too, with those before it done.
  EXPECT_EQ(1, ScoreImages(model, images, 1, nats,
                           [](int64_t done, int64_t) { return done == 0; }));
  EXPECT_EQ(0, ScoreImages(model, images, 1, nats,
                           [](int64_t, int64_t) { return false; }));
}

TEST_F(OneImageModel, AWholeImageGivenComesBack) {
  const Model model = Open();
  const int64_t bytes = ImageShape(config_).bytes();
  const auto given = RandomImages(2 * bytes, 6);
  std::vector<uint8_t> images(static_cast<size_t>(2 * bytes));
  EXPECT_EQ(2, DrawImages(model, given, 2, {}, images.data()));
  EXPECT_EQ(given, images);
  EXPECT_EQ(0, DrawImages(model, {}, 0, {}, nullptr));
}

TEST_F(OneImageModel, WrongArgumentsAreNamed) {
  const Model model = Open();
  const int64_t bytes = ImageShape(config_).bytes();
  const auto images = RandomImages(2 * bytes, 7);
  uint8_t out[64];
  double nats[2];
  const auto draw = [&](size_t size, int64_t starts, ImageOptions options) {
    return ErrorOf([&] {
      DrawImages(model, std::span(images).first(size), starts, options, out);
    });
  };
  const std::pair<const char*, Error> wrong[] = {
      {"given", draw(0, 1, {})},
      {"given", draw(static_cast<size_t>(bytes + 1), 1, {})},
      {"given", draw(3, 2, {})},
      {"given", draw(1, 0, {})},
      {"starts", draw(1, -1, {})},
      {"samples", draw(1, 1, {.samples = 0})},
      {"samples", draw(1, 1, {.samples = INT64_MAX})},
      {"batch", draw(1, 1, {.batch = -1})},
      {"temperature", draw(1, 1, {.temperature = -1})},
      {"temperature", draw(1, 1, {.temperature = NAN})},
      {"temperature", draw(1, 1, {.temperature = 101})},
      {"from", ErrorOf([&] { ScoreImages(model, images, 0, nats); })},
      {"from", ErrorOf([&] { ScoreImages(model, images, bytes, nats); })},
      {"images", ErrorOf([&] {
         ScoreImages(model, std::span(images).first(9), 1, nats);
       })},
      {"model", ErrorOf([&] {
         std::vector<State> starts;
         starts.emplace_back(model);
         BeamSearch(model, starts, {});
       })}};
  for (const auto& [name, error] : wrong) {
    EXPECT_EQ(ErrorCode::kArgument, error.code()) << name;
    EXPECT_TRUE(Contains(error.what(), name)) << error.what();
  }
}

TEST_F(OneImageModel, OtherModelsAndNaNWeightsAreRefused) {
  ModelConfig text = SmallConfig();
  WriteModel(folder_.path(), text, RandomTensors(text, 1));
  const Model language = Model::Open(folder_.path(), {.threads = 1}).Take();
  uint8_t given[] = {1}, image[64];
  const Error error =
      ErrorOf([&] { DrawImages(language, given, 1, {}, image); });
  EXPECT_EQ(ErrorCode::kArgument, error.code());
  EXPECT_TRUE(Contains(error.what(), "an image model")) << error.what();

  Tensors tensors = ImageTensors(config_, 1);
  tensors["predictor.bias"][3] = NAN;
  WriteModel(folder_.path(), config_, tensors);
  const Model broken = Model::Open(folder_.path(), {.threads = 1}).Take();
  EXPECT_EQ(ErrorCode::kNumeric,
            ErrorOf([&] { DrawImages(broken, given, 1, {}, image); }).code());
  double nats;
  EXPECT_EQ(ErrorCode::kNumeric, ErrorOf([&] {
                                   ScoreImages(broken, std::span(image, 35), 1,
                                               &nats);
                                 }).code());
}

}  // namespace
}  // namespace tarn::testing
