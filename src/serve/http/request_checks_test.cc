#include "serve/http/request_checks.h"

#include <gtest/gtest.h>

#include <string>

namespace tarn::serve {
namespace {

int StatusOf(const std::string& head) {
  const auto refusal = CheckHead(head);
  return refusal ? refusal->status : 0;
}

std::string Head(const std::string& fields) {
  return "POST /a HTTP/1.1\r\nHost: localhost\r\n" + fields;
}

TEST(RequestChecks, HeadsThatSmuggleOrConfuseAreRefused) {
  EXPECT_EQ(0, StatusOf(Head("")));
  EXPECT_EQ(0, StatusOf(Head("Content-Length: 3\r\n")));
  EXPECT_EQ(0, StatusOf(Head("Transfer-Encoding: chunked\r\n")));
  EXPECT_EQ(0, StatusOf(Head("X: a\tb\r\n")));
  for (const char* fields :
       {"Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\ncontent-length: 4\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Content-Length : 3\r\n", " folded\r\n", "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n", "X: a\nY: b\r\n", "X: a\rb\r\n", "no colon\r\n",
        ": no name\r\n", "Host: other\r\n"}) {
    EXPECT_EQ(400, StatusOf(Head(fields))) << fields;
  }
  EXPECT_EQ(400, StatusOf(Head(std::string("X: a\0b\r\n", 8))));
  EXPECT_EQ(400, StatusOf("GET /"));
  std::string many;
  for (int i = 0; i < 63; ++i) many += "X: y\r\n";
  EXPECT_EQ(0, StatusOf(Head(many)));
  EXPECT_EQ(431, StatusOf(Head(many + "X: y\r\n")));
  EXPECT_EQ(414,
            StatusOf("GET /" + std::string(8 << 10, 'a') + " HTTP/1.1\r\n"));
  EXPECT_EQ(414, TooLongHead("GET /" + std::string(16 << 10, 'a')).status);
  EXPECT_EQ(
      431,
      TooLongHead("GET / HTTP/1.1\r\n" + std::string(16 << 10, 'a')).status);
}

TEST(RequestChecks, PathsAreDecodedOnceAndStayWithin) {
  EXPECT_EQ("/a b/c", PathOfTarget("/a%20b/c?x=%zz"));
  EXPECT_EQ("/%41", PathOfTarget("/%2541"));
  EXPECT_EQ("/", PathOfTarget("/"));
  EXPECT_EQ("/..a/a..", PathOfTarget("/..a/a.."));
  for (const char* target :
       {"", "a", "http://x/", "*", "/..", "/../a", "/a/..", "/a/../b",
        "/%2e%2e/a", "/a%2fb", "/a%2Fb", "/a%5cb", "/a%00", "/a%", "/a%2",
        "/a%zz", "/./a"}) {
    EXPECT_FALSE(PathOfTarget(target)) << target;
  }
}

TEST(RequestChecks, HostsAndOrigins) {
  for (const char* host :
       {"localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1", "[::1]"}) {
    EXPECT_TRUE(IsOwnHost(host, {})) << host;
  }
  for (const char* host : {"", "evil.com", "localhost.evil.com", "127.0.0.2",
                           "evil.com:80", "::1"}) {
    EXPECT_FALSE(IsOwnHost(host, {"a.b"})) << host;
  }
  EXPECT_TRUE(IsOwnHost("a.b:99", {"a.b"}));
  EXPECT_TRUE(IsOwnHost("anything", {"*"}));
  EXPECT_TRUE(IsOwnOrigin("http://localhost:8080", "localhost:8080", {}));
  EXPECT_TRUE(IsOwnOrigin("https://a.b", "x", {"https://a.b"}));
  EXPECT_FALSE(IsOwnOrigin("http://localhost:3000", "localhost:8080", {}));
  EXPECT_FALSE(IsOwnOrigin("null", "localhost", {}));
  EXPECT_FALSE(IsOwnOrigin("https://a.b.c", "x", {"https://a.b"}));
}

TEST(RequestChecks, RoutesIdsAndSecrets) {
  EXPECT_TRUE(MatchPath("/a/{id}/b", "/a/7/b"));
  EXPECT_EQ("7", MatchPath("/a/{id}/b", "/a/7/b")->at("id"));
  for (const char* path : {"/a/7", "/a/7/b/c", "/a//b", "/b/7/b", "/a/7/c"}) {
    EXPECT_FALSE(MatchPath("/a/{id}/b", path)) << path;
  }
  EXPECT_TRUE(MatchPath("/", "/"));
  EXPECT_TRUE(IsRequestId("aZ0._-"));
  EXPECT_FALSE(IsRequestId(""));
  EXPECT_FALSE(IsRequestId("a b"));
  EXPECT_FALSE(IsRequestId(std::string(129, 'a')));
  EXPECT_TRUE(IsRequestId(RandomRequestId()));
  EXPECT_NE(RandomRequestId(), RandomRequestId());
  EXPECT_TRUE(SameSecret("secret", "secret"));
  for (const char* other : {"", "secre", "secrets", "Secret", "secretsecret"}) {
    EXPECT_FALSE(SameSecret("secret", other)) << other;
  }
}

}  // namespace
}  // namespace tarn::serve
