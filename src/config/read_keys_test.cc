// Which keys `tarn info` prints: those that a model of this shape reads.
#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/fields.h"
#include "config/model_config.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::initializer_list<std::pair<const char*, const char*>>;

ModelConfig Config(Keys keys) {
  ModelConfig config;
  for (const auto& [key, value] : keys) SetConfigField(config, key, value);
  FinishConfig(config);
  return config;
}

// Expects each key of the first list to be printed and none of the second.
void Expect(const ModelConfig& config, std::initializer_list<const char*> read,
            std::initializer_list<const char*> unread) {
  const Json printed = Json::parse(ReadKeysToJson(config));
  for (const char* key : read) EXPECT_TRUE(printed.contains(key)) << key;
  for (const char* key : unread) EXPECT_FALSE(printed.contains(key)) << key;
}

TEST(ReadKeys, ALinearDecoder) {
  const ModelConfig config = Config({});
  Expect(config,
         {"arch", "task", "vocab_size", "d_model", "n_heads", "attention",
          "feature_map", "denominator", "max_positions", "activation",
          "tokenizer", "dropout", "tied_head"},
         {"clusters",
          "hash_bias",
          "kernel_size",
          "topk",
          "local_context",
          "eps",
          "n_dims",
          "redraw",
          "stabilise",
          "rotary_base",
          "n_classes",
          "n_decoder_layers",
          "cross_attention",
          "attention_dropout",
          "image_height",
          "n_mixtures",
          "input_dim",
          "bidirectional",
          "position_combine",
          "conv_width",
          "key_heads",
          "max_sequence_length",
          "layers"});
  const Json printed = Json::parse(ReadKeysToJson(config));
  EXPECT_LE(printed.size(), 25u);
  EXPECT_EQ(printed.begin().key(), "arch");
}

TEST(ReadKeys, OptionsOfAMixerFollowItsOtherOptions) {
  Expect(Config({{"denominator", "compat"}}), {"eps"}, {"n_dims"});
  Expect(Config({{"feature_map", "favor"}}),
         {"n_dims", "redraw", "feature_seed", "stabilise"}, {"eps"});
  Expect(Config({{"feature_map", "rff"}}), {"n_dims"}, {"stabilise"});
  Expect(Config({{"positions", "rotary"}}), {"rotary_base", "rotary_place"},
         {"max_positions", "rotary_width"});
  Expect(Config({{"positions", "rotary"}, {"attention", "full"}}),
         {"rotary_base", "attention_dropout"}, {"rotary_place", "feature_map"});
  Expect(Config({{"positions", "sinusoidal"}, {"feed_forward", "swiglu"}}),
         {"position_combine"}, {"activation", "max_positions"});
  Expect(Config({{"attention", "local"}, {"local_context", "8"}}),
         {"local_context", "attention_dropout"}, {"topk", "length_limit"});
  Expect(Config({{"attention", "reformer"}}), {"bits", "hash_chunk", "rounds"},
         {"clusters", "iterations", "hash_bias", "topk"});
  Expect(Config({{"attention", "gla"}, {"positions", "none"}}), {"gate_rank"},
         {"feature_map", "attention_dropout"});
}

TEST(ReadKeys, PatternsNameTheMixersAndHideWhatTheyReplace) {
  Expect(Config({{"layers", "linear,local:local_context=8"}}),
         {"layers", "feature_map", "attention_dropout"},
         {"attention", "local_context", "topk"});
  Expect(Config({{"layers", "linear,full,exact-topk"}}), {"topk", "layers"},
         {"attention", "clusters"});
}

TEST(ReadKeys, OtherTasksAndEarlierModels) {
  Expect(Config({{"arch", "seq2seq"}, {"attention", "full"}}),
         {"n_decoder_layers", "cross_attention"}, {"n_classes", "feature_map"});
  Expect(Config({{"arch", "encoder"}, {"n_classes", "3"}}), {"n_classes"},
         {"n_decoder_layers", "tied_head", "input_dim"});
  Expect(Config({{"arch", "encoder"},
                 {"task", "ctc"},
                 {"n_classes", "3"},
                 {"input_dim", "40"}}),
         {"input_dim", "n_classes"}, {"vocab_size", "tokenizer"});
  Expect(Config({{"arch", "cnn"}}), {"kernel_size", "d_model"},
         {"n_heads", "d_key", "attention", "positions", "norm", "d_ff"});
  Expect(Config({{"arch", "lstm"}}), {"d_model"},
         {"bidirectional", "kernel_size", "feature_map"});
}

// What is not printed is not needed: the printed keys alone make the model.
TEST(ReadKeys, PrintedKeysAreEnough) {
  const Keys cases[] = {
      {},
      {{"attention", "exact-topk"}, {"topk", "5"}, {"positions", "rotary"}},
      {{"feature_map", "favor"}, {"n_dims", "24"}, {"feature_seed", "7"}},
      {{"denominator", "compat"}, {"eps", "0.001"}},
      {{"layers", "linear,full"}, {"feed_forward", "swiglu"}},
      {{"arch", "seq2seq"}, {"n_decoder_layers", "2"}, {"tokenizer", "char"}},
      {{"arch", "lstm"},
       {"task", "classify"},
       {"n_classes", "4"},
       {"bidirectional", "true"}},
      {{"attention", "mamba2"}, {"positions", "none"}, {"norm_kind", "rms"}}};
  for (const Keys& keys : cases) {
    const ModelConfig config = Config(keys);
    const Result<ModelConfig> read =
        ConfigFromPartialJson(ReadKeysToJson(config));
    ASSERT_TRUE(read.ok()) << read.error().what();
    EXPECT_EQ(read.value(), config) << ReadKeysToJson(config);
  }
}

}  // namespace
}  // namespace tarn
