// The flags of `tarn serve`.
#pragma once

#include <string>
#include <vector>

#include "cli/console/parse.h"
#include "serve/api/service.h"
#include "serve/http/http_server.h"

namespace tarn::cli {

struct ServedPath {
  std::string name, path;
};

struct ServeFlags {
  std::vector<std::string> models;  // PATH or NAME=PATH
  std::vector<ServedPath> paths;    // of `models`
  ModelFlags model;
  serve::HttpOptions http;
  serve::ServiceOptions service;
  std::string api_key_file;
  int64_t port = 8080, max_body = 1 << 20;
  int64_t state_memory = 1024, cache_memory = 256, park_disk = 8192;  // MiB
  bool metrics = false, no_sessions = false, no_page = false;
  bool log_requests = false;
};

void DeclareServe(ArgumentParser& parser, ServeFlags& flags);
/// After Parse: names of models, keys from their file, and units. Throws
/// ExitError for two models of one name, and for a faulty key file.
void FinishServeFlags(ServeFlags& flags);

}  // namespace tarn::cli
