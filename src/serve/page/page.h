// The page of the server: one file, compiled in.
#pragma once

#include <string_view>
#include <vector>

#include "serve/http/request.h"

namespace tarn::serve {

/// page.html, with {{nonce}} where a nonce of its policy belongs.
std::string_view PageSource();

/// GET /: the page under a policy that lets it run what it brings with it and
/// talk to this server, and nothing else. Public: the page asks for a key.
std::vector<Route> PageRoutes();

}  // namespace tarn::serve
