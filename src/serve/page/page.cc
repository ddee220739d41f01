#include "serve/page/page.h"

#include <random>
#include <string>

namespace tarn::serve {
namespace {

constexpr std::string_view kPlace = "{{nonce}}";

std::string NewNonce() {
  std::random_device device;
  std::string nonce;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = device();
    for (int shift = 28; shift >= 0; shift -= 4) {
      nonce += "0123456789abcdef"[(word >> shift) & 15];
    }
  }
  return nonce;
}

std::string PageWith(const std::string& nonce) {
  std::string page(PageSource());
  for (size_t at = page.find(kPlace); at != page.npos;
       at = page.find(kPlace, at)) {
    page.replace(at, kPlace.size(), nonce);
  }
  return page;
}

}  // namespace

std::vector<Route> PageRoutes() {
  const auto page = [](const Request&, const PathArguments&,
                       Response response) {
    const std::string nonce = NewNonce();
    // Styles that the script sets on nodes are properties, not attributes.
    const std::string policy =
        "default-src 'none'; connect-src 'self'; img-src data:; style-src "
        "'nonce-" +
        nonce + "'; script-src 'nonce-" + nonce +
        "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.Send(200, "text/html; charset=utf-8", PageWith(nonce),
                  {{"Content-Security-Policy", policy},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cache-Control", "no-store"}});
  };
  return {{"GET", "/", page, /*is_public=*/true, /*any_type=*/true}};
}

}  // namespace tarn::serve
