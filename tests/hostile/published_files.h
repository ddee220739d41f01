// Published model directories in memory: the configurations and shapes that
// tests/golden/make_published_models.py wrote, with random weights, tokenizers
// of each form, chat templates and settings of generation. For tests alone.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "core/text.h"

namespace tarn {

/// The contents of a directory by names.
using PublishedFiles = std::map<std::string, std::string>;

namespace published_files {

using Json = nlohmann::ordered_json;

inline const std::vector<std::string>& Specials() {
  static const std::vector<std::string> all = {"<unk>", "<s>", "</s>",
                                               "<|im_start|>", "<|im_end|>"};
  return all;
}

inline Json SharedKeys(Json model) {
  Json added = Json::array();
  for (size_t i = 0; i < Specials().size(); ++i) {
    added.push_back({{"id", i},
                     {"content", Specials()[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json first = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {first, text}},
            {"pair", {first, text}},
            {"special_tokens",
             {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder", nullptr},
          {"model", std::move(model)}};
}

// Ids of the special tokens, some letters and two pairs of them.
inline Json Vocabulary(const std::string& space, const std::string& line) {
  Json vocab;
  int64_t next = 0;
  for (const std::string& text : Specials()) vocab[text] = next++;
  vocab[space] = next++;
  vocab[line] = next++;
  for (const char letter :
       std::string("abcdefghijklmnopqrstuvwxyzAHTU01<|_>.!?")) {
    vocab[std::string(1, letter)] = next++;
  }
  vocab["he"] = next++;
  vocab["hel"] = next++;
  return vocab;
}

inline std::string ByteLevelTokenizer() {
  Json root = SharedKeys({{"type", "BPE"},
                          {"vocab", Vocabulary("\xC4\xA0", "\xC4\x8A")},
                          {"merges", {"h e", "he l"}}});
  root["normalizer"] = {{"type", "NFC"}};
  root["pre_tokenizer"] = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  root["decoder"] = {{"type", "ByteLevel"}};
  return root.dump();
}

inline std::string CharacterTokenizer() {
  Json root = SharedKeys({{"type", "BPE"},
                          {"unk_token", "<unk>"},
                          {"fuse_unk", true},
                          {"byte_fallback", false},
                          {"vocab", Vocabulary("\xE2\x96\x81", "\n")},
                          {"merges", {"h e", "he l"}}});
  root["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}},
                          {{"type", "Replace"},
                           {"pattern", {{"String", " "}}},
                           {"content", "\xE2\x96\x81"}}}}};
  root["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Replace"},
         {"pattern", {{"String", "\xE2\x96\x81"}}},
         {"content", " "}},
        {{"type", "Fuse"}},
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return root.dump();
}

inline std::string UnigramTokenizer() {
  const Json texts = Vocabulary("\xE2\x96\x81", "\n");
  Json vocab = Json::array();
  for (const auto& [text, id] : texts.items()) {
    vocab.push_back({text, -0.1 * static_cast<double>(vocab.size())});
  }
  Json root = SharedKeys({{"type", "Unigram"},
                          {"unk_id", 0},
                          {"vocab", vocab},
                          {"byte_fallback", false}});
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", "\xE2\x96\x81"},
                          {"prepend_scheme", "always"},
                          {"split", true}};
  root["pre_tokenizer"] = metaspace;
  root["decoder"] = metaspace;
  return root.dump();
}

inline constexpr const char* kTemplate =
    "{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}"
    "{%- set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif "
    "%}"
    "{%- for m in rest %}{{ '<|im_start|>' + m.role + '\n' + m.content"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// The bytes of a safetensors file of tensors of these shapes.
inline std::string Weights(const Json& shapes, Rng& rng,
                           const std::string& scratch) {
  std::vector<std::vector<float>> data;
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, sizes] : shapes.items()) {
    const auto shape = sizes.get<std::vector<int64_t>>();
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    std::vector<float> values(elements);
    for (float& x : values) x = static_cast<float>(rng.Uniform() - 0.5);
    data.push_back(std::move(values));
    tensors.push_back({name, DType::kF32, shape, data.back().data()});
  }
  WriteSafetensors(scratch, tensors, {{"format", "pt"}});
  return ReadFile(scratch, 1 << 20).Take();
}

// In two shards with their index, or in one file.
inline void AddWeights(const Json& shapes, bool sharded, Rng& rng,
                       const std::string& scratch, PublishedFiles& files) {
  if (!sharded) {
    files["model.safetensors"] = Weights(shapes, rng, scratch);
    return;
  }
  Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", {}}};
  Json halves[2];
  size_t next = 0;
  for (const auto& [name, shape] : shapes.items()) {
    const size_t half = next++ < shapes.size() / 2 ? 0 : 1;
    halves[half][name] = shape;
    index["weight_map"][name] =
        StrCat("model-0000", half + 1, "-of-00002.safetensors");
  }
  for (size_t half = 0; half < 2; ++half) {
    files[StrCat("model-0000", half + 1, "-of-00002.safetensors")] =
        Weights(halves[half], rng, scratch);
  }
  files["model.safetensors.index.json"] = index.dump();
}

}  // namespace published_files

/// The directories of all types in `golden`, every second one in shards.
/// scratch: a path for a file that is written and read back.
inline std::vector<PublishedFiles> MakePublishedFiles(
    const std::filesystem::path& golden, const std::string& scratch) {
  using namespace published_files;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<PublishedFiles> all;
  Rng rng(4);
  for (const std::filesystem::path& path : paths) {
    const size_t i = all.size();
    const Json model = Json::parse(ReadFile(path.string(), 1 << 20).Take());
    PublishedFiles files;
    files["config.json"] = model["config"].dump();
    AddWeights(model["tensors"], i % 2 == 1, rng, scratch, files);
    files["tokenizer.json"] = i % 3 == 0   ? ByteLevelTokenizer()
                              : i % 3 == 1 ? CharacterTokenizer()
                                           : UnigramTokenizer();
    Json tokenizer = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    if (i % 2 == 0) {
      tokenizer["chat_template"] = kTemplate;
    } else {
      files["chat_template.jinja"] = kTemplate;
    }
    files["tokenizer_config.json"] = tokenizer.dump();
    files["generation_config.json"] =
        R"({"eos_token_id": [2, 4], "do_sample": true, "temperature": 0.7,)"
        R"( "top_k": 5, "top_p": 0.9})";
    all.push_back(std::move(files));
  }
  return all;
}

}  // namespace tarn
