#include "cli/serve/serve_flags.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "cli/cli.h"
#include "core/file.h"

namespace tarn::cli {
namespace {

constexpr char kServeFooter[] =
    "Speaks OpenAI's interface (/v1/chat/completions, /v1/completions,\n"
    "/v1/responses, /v1/embeddings, /v1/models) and tarn's own for sessions\n"
    "(/sessions: create, append, fork, mark, rollback, park, restore), and\n"
    "Anthropic's messages (/v1/messages). What a model has read is not read\n"
    "again: prompts that begin alike share states, exactly.\n\n"
    "Keys are read from a file, a line each: KEY or NAME:KEY. Other addresses\n"
    "than loopback need keys. The server has no TLS: put it behind a proxy.\n\n"
    "Examples:\n"
    "  tarn serve models/demo\n"
    "  tarn serve chat=path/to/model code=model.gguf --slots 16\n"
    "  tarn serve models/demo --park-dir parked --api-key-file keys\n"
    "  curl localhost:8080/v1/completions -H 'Content-Type: application/json'\n"
    "       -d '{\"prompt\": \"Once\", \"max_tokens\": 16}'\n";

constexpr int64_t kBytesOfMiB = int64_t{1} << 20;

std::vector<serve::ApiKey> ReadKeys(const std::string& path) {
  std::istringstream lines(ReadFile(path, kBytesOfMiB).Take());
  std::vector<serve::ApiKey> keys;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    const size_t colon = line.find(':');
    serve::ApiKey key;
    key.name = colon == line.npos ? StrCat("key", keys.size() + 1)
                                  : line.substr(0, colon);
    key.key = colon == line.npos ? line : line.substr(colon + 1);
    keys.push_back(std::move(key));
  }
  if (keys.empty()) {
    throw ExitError(kExitUsage, StrCat(path, ": want a key, got none"));
  }
  return keys;
}

ServedPath PathOf(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals != word.npos && equals > 0) {
    return {word.substr(0, equals), word.substr(equals + 1)};
  }
  std::filesystem::path path(word);
  if (path.filename().empty()) path = path.parent_path();
  std::string name = path.filename().string();
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return {name.empty() ? "model" : name, word};
}

}  // namespace

void DeclareServe(ArgumentParser& parser, ServeFlags& flags) {
  parser
      .Add("MODEL", flags.models,
           "model directories or GGUF files, each as PATH or NAME=PATH")
      .Required();
  parser.Add("--host", flags.http.address, "IP address to listen on")
      .ShowDefault();
  parser.Add("--port", flags.port, "port to listen on; 0: any free one")
      .Whole(0, 65535)
      .ShowDefault();
  parser.Add("--unix-socket", flags.http.unix_socket,
             "path to listen on, instead of an address");
  parser.Add("--api-key-file", flags.api_key_file,
             "file of keys, one of which every request must have");
  parser.AddFlag("--insecure", flags.http.insecure,
                 "other addresses than loopback without keys");
  parser
      .Add("--allowed-host", flags.http.allowed_hosts,
           "another name of this server in Host; *: any")
      .OneEachTime();
  parser
      .Add("--cors-origin", flags.http.cors_origins,
           "an origin whose pages may ask, such as https://example.org")
      .OneEachTime();
  auto& scheduler = flags.service.scheduler;
  parser.Add("--slots", scheduler.slots, "texts that are written at once")
      .Whole(1, 256)
      .ShowDefault();
  parser.Add("--queue", scheduler.queue, "requests that may wait")
      .Whole(0, 65536)
      .ShowDefault();
  parser
      .Add("--prompt-slice", scheduler.prompt_slice_ms,
           "milliseconds that prompts take between two steps of texts")
      .Range(1, 10000)
      .ShowDefault();
  parser
      .Add("--speculate", flags.service.speculate,
           "draft tokens that are read along where one text is written alone: "
           "off, "
           "ngram, mtp (the model's extra prediction head), or a small model "
           "with the same tokenizer")
      .ShowDefault();
  parser
      .Add("--max-tokens", flags.service.max_tokens,
           "tokens of a text whose request names no number")
      .Whole(1, INT32_MAX)
      .ShowDefault();
  parser
      .Add("--max-prompt-tokens", flags.service.max_prompt_tokens,
           "longest prompt; 0: what the model has room for")
      .Whole(0, INT32_MAX)
      .ShowDefault();
  parser
      .Add("--cache-memory", flags.cache_memory,
           "MiB of states after prompts, kept for prompts that begin alike")
      .Whole(0, 1 << 30)
      .ShowDefault();
  parser
      .Add("--state-memory", flags.state_memory,
           "MiB of sessions; beyond it they are parked, or refused")
      .Whole(1, 1 << 30)
      .ShowDefault();
  auto& sessions = flags.service.sessions;
  parser.Add("--park-dir", sessions.folder,
             "folder of parked sessions, which outlive the server");
  parser.Add("--park-disk", flags.park_disk, "MiB of parked sessions")
      .Whole(1, 1 << 30)
      .ShowDefault();
  parser.Add("--max-sessions", sessions.most, "sessions, parked ones too")
      .Whole(1, 1 << 30)
      .ShowDefault();
  parser
      .Add("--session-ttl", sessions.seconds_to_live,
           "seconds after which an unused session is dropped")
      .Whole(1, INT32_MAX)
      .ShowDefault();
  parser.Add("--max-body", flags.max_body, "bytes of a request")
      .Whole(1, 64 * kBytesOfMiB)
      .ShowDefault();
  parser
      .Add("--max-connections", flags.http.max_connections,
           "connections at once")
      .Whole(1, 65536)
      .ShowDefault();
  parser
      .Add("--grace", flags.http.grace_seconds,
           "seconds that texts may take to end when the server does")
      .Range(0.001, 86400)
      .ShowDefault();
  parser.AddFlag("--metrics", flags.metrics, "GET /metrics for Prometheus");
  parser.AddFlag("--no-sessions", flags.no_sessions, "without /sessions");
  parser.AddFlag("--no-page", flags.no_page, "without the page at /");
  parser.AddFlag("--log-requests", flags.log_requests,
                 "a line on stderr for each request, without its contents");
  DeclareModelFlags(parser, flags.model);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kServeFooter);
}

void FinishServeFlags(ServeFlags& flags) {
  std::set<std::string> names;
  for (const std::string& word : flags.models) {
    flags.paths.push_back(PathOf(word));
    if (names.insert(flags.paths.back().name).second) continue;
    throw ExitError(kExitUsage,
                    StrCat("MODEL: want a name of its own for each, got two "
                           "of ",
                           flags.paths.back().name, " (NAME=PATH)"));
  }
  flags.http.port = static_cast<uint16_t>(flags.port);
  flags.http.max_body = static_cast<uint64_t>(flags.max_body);
  flags.service.scheduler.cache_bytes = flags.cache_memory * kBytesOfMiB;
  flags.service.sessions.memory = flags.state_memory * kBytesOfMiB;
  flags.service.sessions.disk = flags.park_disk * kBytesOfMiB;
  if (!flags.api_key_file.empty()) {
    flags.http.keys = ReadKeys(flags.api_key_file);
  }
}

}  // namespace tarn::cli
