#include "fuzz/tiny_model.h"

#include <stdlib.h>

#include <filesystem>

#include "reference/random_model.h"
#include "runtime/session/session_file.h"
#include "runtime/session/state_file.h"

namespace tarn::fuzz {
namespace {

ModelConfig ConfigOf(Arch arch) {
  ModelConfig config = TinyConfig(arch);
  config.max_positions = 256;
  if (arch == Arch::kDecoder) config.layers = LayersFromText("linear,full");
  if (arch == Arch::kSeq2seq) config.cross_attention = MixerKind("full");
  FinishConfig(config);
  return config;
}

std::string SavedState(const Model& model, const State& state) {
  std::string file;
  StringSink sink(file);
  SaveState(model, state, sink);
  return file;
}

std::string SavedSession(const Session& session) {
  std::string file;
  StringSink sink(file);
  SaveSession(session, sink);
  return file;
}

constexpr int32_t kPrompt[] = {'T', 'h', 'e', ' ', 'e', 'n', 'd', '.'};

}  // namespace

const char kTinyTemplate[] =
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.content is string %}{{ m.content }}{% endif %}"
    "{% for call in m.tool_calls or [] %}{{ '<tool_call>\\n' }}"
    "{{ call.function | tojson }}{{ '\\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}";

TinyModel OpenTinyModel(Arch arch, CacheType cache) {
  std::string folder =
      std::filesystem::temp_directory_path() / "tarn_fuzz_XXXXXX";
  Require(mkdtemp(folder.data()) != nullptr, "no temporary folder");
  WriteRandomModel(folder, ConfigOf(arch), Tokenizer::Byte(), 1);
  WriteFileAtomically(folder + "/chat_template.jinja", kTinyTemplate);
  ModelOptions options;
  options.weights = WeightType::kF32;
  options.threads = 1;
  options.use_mmap = false;
  options.cache = cache;
  TinyModel model{LoadedModel::Open(ModelPath(folder), options).Take(),
                  ChatFormat::Open(folder).Take()};
  std::filesystem::remove_all(folder);
  return model;
}

bool Reseal(const Error& error, std::string& file) {
  for (const std::string key : {"contents", "model"}) {
    if (!error.where().ends_with(": " + key)) continue;
    const std::string& wanted = error.wanted();
    const std::string name = "\"" + key + "\":\"";
    // The file of the state within a session's comes after the session's head.
    const bool inner = error.where().find(": state: ") != std::string::npos;
    const size_t at = inner ? file.rfind(name) : file.find(name);
    if (at == std::string::npos || wanted.size() != 16) return false;
    const size_t begin = at + name.size();
    if (file.size() < begin + 17 || file[begin + 16] != '"') return false;
    if (file.compare(begin, 16, wanted) == 0) return false;
    file.replace(begin, 16, wanted);
    return true;
  }
  return false;
}

std::vector<std::pair<std::string, std::string>> StateFiles() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const CacheType cache : kCacheTypes) {
    const TinyModel model = OpenTinyModel(Arch::kDecoder, cache);
    State state(model.loaded.model);
    std::vector<float> logits(
        static_cast<size_t>(model.loaded.model.n_outputs()));
    model.loaded.model.Prefill(state, kPrompt, logits.data());
    files.emplace_back(StrCat("valid-", Name(cache)),
                       SavedState(model.loaded.model, state));
  }
  const TinyModel seq2seq = OpenTinyModel(Arch::kSeq2seq);
  files.emplace_back(
      "valid-seq2seq",
      SavedState(seq2seq.loaded.model, seq2seq.loaded.model.Encode(kPrompt)));
  return files;
}

std::vector<std::pair<std::string, std::string>> SessionFiles() {
  const TinyModel model = OpenTinyModel();
  Session session(model.loaded);
  std::vector<std::pair<std::string, std::string>> files;
  files.emplace_back("valid-empty", SavedSession(session));
  session.Append(kPrompt);
  session.Mark("early");
  SequenceOptions options;
  options.sampler.seed = 7;
  options.stop_tokens = {'\n'};
  options.stop_texts = {"\xff no text"};
  session.Begin(kPrompt, options, 40);
  files.emplace_back("valid-waiting", SavedSession(session));
  for (int i = 0; i < 6 && !session.text()->ended(); ++i) {
    session.Consume();
    session.Draw();
  }
  session.Mark("late");
  files.emplace_back("valid-text", SavedSession(session));
  options.constraint =
      Constraint::Make(GrammarKind::kRegex, "[a-f]{4,9}",
                       model.loaded.tokenizer, options.stop_tokens)
          .Take();
  options.sampler.mirostat = 2;
  session.Begin({}, options, 20);
  session.Consume();
  session.Draw();
  files.emplace_back("valid-grammar", SavedSession(session));
  return files;
}

}  // namespace tarn::fuzz
