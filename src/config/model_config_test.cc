#include "config/model_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "config/test_util.h"
#include "core/feature_map.h"
#include "core/test_util.h"
#include "core/text.h"

namespace tarn {
namespace {

TEST(Config, FinishDerivesSizes) {
  const ModelConfig config = Finished();
  EXPECT_EQ(config.d_key, 32);
  EXPECT_EQ(config.d_value, 32);
  EXPECT_EQ(config.d_ff, 512);
  EXPECT_EQ(Finished(config), config);
  ModelConfig given;
  given.d_model = 100;
  given.n_heads = 3;
  given.d_key = 5;
  given.d_value = 7;
  given.d_ff = 11;
  given.task = Task::kLm;
  given.cross_attention = MixerKind("full");
  EXPECT_EQ(Finished(given), given);
}

TEST(Config, NamesAreTheWordsOfTheFile) {
  EXPECT_STREQ(Name(Arch::kSeq2seq), "seq2seq");
  EXPECT_STREQ(Name(Arch::kCnn), "cnn");
  EXPECT_STREQ(Name(Task::kClassify), "classify");
  EXPECT_STREQ(Name(Task::kImage), "image");
  EXPECT_STREQ(Name(Task::kCtc), "ctc");
  EXPECT_STREQ(Name(Task::kDerived), "derived");
  EXPECT_STREQ(Name(MixerKind("full")), "full");
  EXPECT_STREQ(Name(kDerivedMixer), "derived");
  EXPECT_STREQ(Name(MixerKind("full")), "full");
  EXPECT_STREQ(Name(MixerKind("exact-topk")), "exact-topk");
  EXPECT_STREQ(Name(MixerKind("causal-improved-clustered")),
               "causal-improved-clustered");
  EXPECT_STREQ(Name(MixerKind("aft-simple")), "aft-simple");
  EXPECT_STREQ(Name(FeatureMap::kIdentity), "identity");
  EXPECT_STREQ(Name(FeatureMap::kRelu2), "relu2");
  EXPECT_STREQ(Name(FeatureMap::kFavorPositive), "favor-positive");
  EXPECT_STREQ(Name(FeatureMap::kSmoothedRff), "smoothed-rff");
  EXPECT_STREQ(Name(FeatureMap::kGrf), "grf");
  EXPECT_STREQ(Name(Denominator::kSigned), "signed");
  EXPECT_STREQ(Name(Denominator::kCompat), "compat");
  EXPECT_STREQ(Name(Positions::kRotary), "rotary");
  EXPECT_STREQ(Name(PositionCombine::kConcat), "concat");
  EXPECT_STREQ(Name(RotaryPlace::kAfter), "after");
  EXPECT_STREQ(Name(Norm::kPre), "pre");
  EXPECT_STREQ(Name(Activation::kRelu), "relu");
  EXPECT_STREQ(Name(TokenizerKind::kChar), "char");
  EXPECT_STREQ(Name(TokenizerKind::kBpe), "bpe");
  EXPECT_STREQ(Name(TokenizerKind::kWorld), "world");
  EXPECT_STREQ(Name(TokenizerKind::kIds), "ids");
  EXPECT_STREQ(Name(TokenizerKind::kUnigram), "unigram");
}

TEST(Config, SetFieldNamesTheKeyAndTheAllowedValues) {
  struct Case {
    const char *key, *value, *wanted;
  };
  for (const Case& c : std::vector<Case>{
           {"d_model", "0", "an integer from 1 to 65536"},
           {"d_model", "65537", "an integer from 1 to 65536"},
           {"d_model", "12x", "an integer from 1 to 65536"},
           {"d_model", "", "an integer from 1 to 65536"},
           {"d_model", " 12", "an integer from 1 to 65536"},
           {"d_model", "99999999999999999999", "an integer from 1 to 65536"},
           {"d_key", "-1", "an integer from 0 to 65536"},
           {"n_layers", "4097", "an integer from 1 to 4096"},
           {"dropout", "1", "a number in [0, 1)"},
           {"dropout", "-0.1", "a number in [0, 1)"},
           {"dropout", "nan", "a number in [0, 1)"},
           {"rotary_base", "inf", "a number from 1 to 1e+12"},
           {"rotary_base", "1e999", "a number from 1 to 1e+12"},
           {"tied_head", "1", "true or false"},
           {"attention", "Linear",
            "one of linear, full, local, exact-topk, conditional-full, "
            "clustered, improved-clustered, causal-improved-clustered, "
            "reformer, aft-full, aft-simple, retnet, lightning, mamba2, gla, "
            "hgrn2, deltanet, gdn, kda, norm-linear, rwkv6, rwkv7, gated-full, "
            "mamba1, "
            "short-conv, rg-lru, mlstm, or up to 3 of them with '+' between"},
           {"task", "derived", "one of lm, classify, seq2seq, image, ctc"},
           {"bits", "64", "an integer from 1 to 63"},
           {"positions", "", "one of none, sinusoidal, learned, rotary"}}) {
    ModelConfig config;
    const Error error = ErrorOf([&] { Set(config, c.key, c.value); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << c.key << " " << c.value;
    EXPECT_EQ(error.where(), c.key);
    EXPECT_EQ(error.wanted(), c.wanted);
    EXPECT_EQ(error.given(), StrCat("'", c.value, "'"));
    EXPECT_EQ(config, ModelConfig{}) << "changed by a refused value";
  }
  ModelConfig config;
  const Error error = ErrorOf([&] { Set(config, "d_modle", "1"); });
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_EQ(error.given(), "'d_modle'");
}

TEST(Config, FinishRefusesCombinations) {
  using Change = std::function<void(ModelConfig&)>;
  const std::vector<std::pair<const char*, Change>> cases = {
      {"n_heads", [](ModelConfig& c) { c.n_heads = 3; }},
      {"position_combine",
       [](ModelConfig& c) { c.position_combine = PositionCombine::kConcat; }},
      {"d_model",
       [](ModelConfig& c) {
         c.positions = Positions::kSinusoidal;
         c.position_combine = PositionCombine::kConcat;
         c.d_model = 129;
         c.n_heads = 1;
       }},
      {"d_key",
       [](ModelConfig& c) {
         c.positions = Positions::kRotary;
         c.d_key = 7;
       }},
      {"tied_head",
       [](ModelConfig& c) {
         c.positions = Positions::kSinusoidal;
         c.position_combine = PositionCombine::kConcat;
         c.tied_head = true;
       }},
      {"attention_dropout",
       [](ModelConfig& c) { SetKey(c, "attention_dropout", 0.5); }},
      {"eps",
       [](ModelConfig& c) {
         SetKey(c, "eps", std::numeric_limits<double>::quiet_NaN());
       }},
      {"d_ff", [](ModelConfig& c) { c.d_ff = -1; }},
      {"vocab_size", [](ModelConfig& c) { c.vocab_size = INT64_MAX; }},
      {"attention",
       [](ModelConfig& c) { c.attention = static_cast<AttentionKind>(1000); }},
      {"positions",
       [](ModelConfig& c) {
         SetConfigField(c, "attention", "gdn");  // rotates no rows
         c.positions = Positions::kRotary;
       }},
      {"key_heads",
       [](ModelConfig& c) {
         SetConfigField(c, "attention", "mamba2");
         SetKey(c, "key_heads", 3);
       }},
      {"rotary_width",
       [](ModelConfig& c) {
         c.layers = LayersFromText("gated-full,full");
         c.positions = Positions::kRotary;
         SetKey(c, "rotary_width", 16);
       }},
      {"rotary_width",
       [](ModelConfig& c) {
         SetConfigField(c, "attention", "gated-full");
         SetKey(c, "rotary_width", 3);
       }},
      {"conv_width",
       [](ModelConfig& c) {
         SetConfigField(c, "attention", "kda");
         SetKey(c, "conv_width", 1);
       }},
      {"task", [](ModelConfig& c) { c.task = static_cast<Task>(-2); }},
  };
  for (const auto& [key, change] : cases) {
    ModelConfig config;
    change(config);
    const ModelConfig before = config;
    const Error error = ErrorOf([&] { FinishConfig(config); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << key;
    EXPECT_EQ(error.where(), key) << error.what();
    if (before == before) {  // NaN differs from itself
      EXPECT_EQ(config, before) << key;
    }
  }
}

// Architectures: words as on the command line, the key to blame first.
TEST(Config, FinishRefusesCombinationsOfArchitectures) {
  const std::vector<std::pair<const char*, Words>> cases = {
      {"task", {{"arch", "decoder"}, {"task", "classify"}}},
      {"task", {{"arch", "encoder"}, {"task", "lm"}}},
      {"task", {{"arch", "seq2seq"}, {"task", "lm"}}},
      {"task", {{"arch", "cnn"}, {"task", "seq2seq"}}},
      {"n_classes", {{"arch", "encoder"}}},
      {"n_classes", {{"arch", "encoder"}, {"n_classes", "1"}}},
      {"n_classes", {{"n_classes", "2"}}},
      {"n_decoder_layers", {{"n_decoder_layers", "2"}}},
      {"tied_head",
       {{"arch", "encoder"}, {"n_classes", "2"}, {"tied_head", "true"}}},
      {"bidirectional", {{"arch", "lstm"}, {"bidirectional", "true"}}},
      {"bidirectional",
       {{"arch", "rnn"},
        {"task", "classify"},
        {"n_classes", "2"},
        {"bidirectional", "true"}}},
      {"d_model",
       {{"arch", "lstm"},
        {"task", "classify"},
        {"n_classes", "2"},
        {"d_model", "7"},
        {"bidirectional", "true"}}},
      {"attention", {{"attention", "clustered"}}},
      {"attention", {{"arch", "seq2seq"}, {"attention", "improved-clustered"}}},
      {"attention",
       {{"arch", "encoder"},
        {"n_classes", "2"},
        {"attention", "causal-improved-clustered"}}},
      {"local_context", {{"attention", "local"}}},
      {"feed_forward",
       {{"arch", "encoder"},
        {"n_classes", "2"},
        {"feed_forward", "channel-mix"}}},
      {"feed_forward", {{"arch", "seq2seq"}, {"feed_forward", "channel-mix"}}},
      {"d_value", {{"attention", "aft-full"}, {"d_value", "3"}}},
      {"positions", {{"attention", "aft-simple"}, {"positions", "rotary"}}},
      {"attention_dropout",
       {{"attention", "aft-simple"}, {"attention_dropout", "0.1"}}},
      {"attention_dropout", {{"arch", "rnn"}, {"attention_dropout", "0.1"}}},
      {"stabilise", {{"stabilise", "true"}}},
      {"n_dims", {{"feature_map", "smoothed-rff"}, {"n_dims", "2"}}},
      {"n_dims", {{"feature_map", "favor"}, {"n_dims", "1"}}},
      {"rotary_place",
       {{"feature_map", "poly2"},
        {"positions", "rotary"},
        {"rotary_place", "after"}}},
      // 1 + E + E(E+1)/2 features, about 2^31, for 4 heads of 2^16 values.
      {"d_key",
       {{"feature_map", "poly2"}, {"d_key", "65536"}, {"d_value", "65536"}}},
  };
  for (const auto& [key, words] : cases) {
    ModelConfig config;
    std::string text;
    for (const auto& [name, value] : words) {
      Set(config, name, value);
      text += StrCat(" ", name, "=", value);
    }
    const Error error = ErrorOf([&] { FinishConfig(config); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << text;
    EXPECT_EQ(error.where(), key) << text << ": " << error.what();
  }
}

// Cases of images and frames: the task's keys, a change, the key to blame.
TEST(Config, FinishRefusesCombinationsOfImagesAndFrames) {
  struct Case {
    const char* key;
    Words words, changes;
  };
  for (const Case& c : std::vector<Case>{
           {"task", kImageWords, {{"arch", "encoder"}}},
           {"task", kImageWords, {{"arch", "lstm"}}},
           {"image_height", kImageWords, {{"image_height", "0"}}},
           {"image_width", kImageWords, {{"image_width", "0"}}},
           {"image_channels", kImageWords, {{"image_channels", "0"}}},
           {"image_channels", kImageWords, {{"image_channels", "2"}}},
           {"image_width",  // 2^24 bytes and one row more
            kImageWords,
            {{"image_height", "4096"},
             {"image_width", "4096"},
             {"image_channels", "3"}}},
           {"vocab_size", kImageWords, {{"vocab_size", "255"}}},
           {"tokenizer", kImageWords, {{"tokenizer", "char"}}},
           {"tied_head", kImageWords, {{"tied_head", "true"}}},
           {"n_classes", kImageWords, {{"n_classes", "10"}}},
           {"input_dim", kImageWords, {{"input_dim", "1"}}},
           {"n_mixtures", {}, {{"n_mixtures", "10"}}},
           {"image_height", {}, {{"image_height", "28"}}},
           {"image_width", {}, {{"image_width", "28"}}},
           {"image_channels", {}, {{"image_channels", "1"}}},
           {"input_dim", {}, {{"input_dim", "40"}}},
           {"task", kCtcWords, {{"arch", "decoder"}}},
           {"task", kCtcWords, {{"arch", "rnn"}}},
           {"task", kCtcWords, {{"arch", "cnn"}}},
           {"task", kCtcWords, {{"arch", "seq2seq"}}},
           {"n_classes", kCtcWords, {{"n_classes", "1"}}},
           {"input_dim", kCtcWords, {{"input_dim", "0"}}},
           {"n_mixtures", kCtcWords, {{"n_mixtures", "10"}}},
           {"tied_head", kCtcWords, {{"tied_head", "true"}}},
           {"attention",
            kCtcWords,
            {{"attention", "causal-improved-clustered"}}},
       }) {
    ModelConfig config = With(c.words, c.changes);
    const Error error = ErrorOf([&] { FinishConfig(config); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << c.key;
    EXPECT_EQ(error.where(), c.key) << error.what();
  }
}

TEST(Config, ImagesAndFrames) {
  const ModelConfig image =
      Finished(With(kImageWords, {{"image_channels", "3"}}));
  EXPECT_EQ(image.n_mixtures, 10);
  EXPECT_EQ(image.Outputs(), 30);
  EXPECT_EQ(image.ImageBytes(), 28 * 28 * 3);
  EXPECT_FALSE(image.ReadsFrames());
  EXPECT_EQ(Finished(With(kImageWords, {{"n_mixtures", "1"}})).Outputs(), 3);
  const ModelConfig ctc = Finished(With(kCtcWords));
  EXPECT_EQ(ctc.Outputs(), 11);
  EXPECT_EQ(ctc.ImageBytes(), 0);
  EXPECT_TRUE(ctc.ReadsFrames());
  const ModelConfig lstm =
      Finished(With(kCtcWords, {{"arch", "lstm"}, {"bidirectional", "true"}}));
  EXPECT_TRUE(lstm.bidirectional);
  for (const ModelConfig& config : {image, ctc, lstm}) {
    EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config);
  }
}

TEST(Config, FinishDerivesTaskCrossAttentionAndFeatures) {
  ModelConfig config;
  config.arch = Arch::kSeq2seq;
  config.attention = MixerKind("exact-topk");
  config = Finished(config);
  EXPECT_EQ(config.task, Task::kSeq2seq);
  EXPECT_EQ(config.cross_attention, MixerKind("full"));
  EXPECT_EQ(config.n_decoder_layers, 4);
  EXPECT_EQ(KeyOf<int64_t>(config, "n_dims"), 0);

  ModelConfig lstm;
  lstm.arch = Arch::kLstm;
  lstm.d_model = 5;  // four heads do not divide it: it has none
  EXPECT_EQ(Finished(lstm).task, Task::kLm);

  ModelConfig encoder;
  encoder.arch = Arch::kEncoder;
  encoder.n_classes = 3;
  SetKey(encoder, "feature_map", FeatureMap::kRff);
  encoder = Finished(encoder);
  EXPECT_EQ(encoder.task, Task::kClassify);
  EXPECT_EQ(encoder.Outputs(), 3);
  EXPECT_EQ(KeyOf<int64_t>(encoder, "n_dims"), 32);
  EXPECT_EQ(KeyOf<Denominator>(encoder, "denominator"), Denominator::kSigned);
  EXPECT_EQ(Finished(encoder), encoder);
}

// The widths of docs/feature-maps.md, odd sizes included.
TEST(Config, FeatureWidths) {
  struct Case {
    FeatureMap map;
    int64_t n_dims, columns, width;
  };
  for (const Case& c : std::vector<Case>{{FeatureMap::kElu1, 0, 0, 5},
                                         {FeatureMap::kPoly2, 0, 0, 21},
                                         {FeatureMap::kFavor, 7, 3, 6},
                                         {FeatureMap::kFavorPositive, 7, 7, 7},
                                         {FeatureMap::kRff, 8, 4, 8},
                                         {FeatureMap::kSmoothedRff, 8, 3, 7},
                                         {FeatureMap::kSmoothedRff, 7, 3, 7},
                                         {FeatureMap::kGrf, 6, 6, 6}}) {
    EXPECT_EQ(OmegaColumns(c.map, c.n_dims), c.columns) << Name(c.map);
    EXPECT_EQ(FeatureWidth(c.map, 5, c.n_dims), c.width) << Name(c.map);
  }
}

TEST(Config, TotalsAreBoundedWithoutOverflow) {
  ModelConfig config;
  config.vocab_size = 1 << 24;
  config.d_model = 1 << 16;
  config.n_layers = 1 << 12;
  config.n_heads = 1 << 12;
  config.d_key = config.d_value = 1 << 16;
  config.d_ff = 1 << 20;
  const Error parameters = ErrorOf([&] { FinishConfig(config); });
  EXPECT_EQ(parameters.code(), ErrorCode::kArgument);
  EXPECT_TRUE(Contains(parameters.wanted(), "parameters"));
  // The four projections alone: 4 * 2^12 layers * 2^28 * 2^16.
  EXPECT_GT(std::stoll(parameters.given()), int64_t{1} << 58);
  EXPECT_LT(std::stoll(parameters.given()), int64_t{1} << 59);

  // Few weights, a state of 16 GiB a layer.
  ModelConfig wide;
  wide.d_model = wide.n_heads = wide.n_layers = 1;
  wide.d_key = wide.d_value = 1 << 16;
  EXPECT_EQ(ErrorOf([&] { FinishConfig(wide); }).where(), "d_key");
  wide.attention = MixerKind("full");  // has no such state
  FinishConfig(wide);
}

}  // namespace
}  // namespace tarn
