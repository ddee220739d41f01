#include "core/json/json_object.h"

#include <gtest/gtest.h>

#include <string>

#include "core/json.h"

namespace tarn {
namespace {

using nlohmann::json;

template <typename F>
std::string MessageOf(const F& call) {
  try {
    call();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonObject, ReadsMembersAndSaysWhereTheyAreWrong) {
  const json value = json::parse(
      R"({"a":"x","i":256.0,"r":0.5,"f":true,"l":[1,2],"o":{"k":3},"n":null})");
  const JsonObject object(value, "file: ");
  EXPECT_EQ("x", object.Text("a"));
  EXPECT_EQ(256, object.Integer("i", 0, 256));
  EXPECT_EQ(0.5, object.FindReal("r", 0, 1));
  EXPECT_TRUE(object.Flag("f"));
  EXPECT_EQ((std::vector<int32_t>{1, 2}), object.Integers("l", 1, 2));
  EXPECT_EQ(3, object.Object("o").Integer("k", 0, 9));
  EXPECT_FALSE(object.Has("n"));
  EXPECT_FALSE(object.FindText("n"));
  EXPECT_FALSE(object.FindInteger("none", 0, 1));
  EXPECT_EQ(nullptr, object.FindList("none"));
  EXPECT_EQ("file: o.k: want an integer from 0 to 2, got 3",
            MessageOf([&] { object.Object("o").Integer("k", 0, 2); }));
  EXPECT_EQ("file: a: want an integer from 0 to 9, got the text 'x'",
            MessageOf([&] { object.Integer("a", 0, 9); }));
  EXPECT_EQ("file: i: want an integer from 0 to 255, got 256.0",
            MessageOf([&] { object.Integer("i", 0, 255); }));
  EXPECT_EQ("file: l[1]: want an integer from 0 to 1, got 2",
            MessageOf([&] { object.Integers("l", 0, 1); }));
  EXPECT_EQ("file: none: want a value, got none",
            MessageOf([&] { object.Text("none"); }));
  EXPECT_EQ("file: n: want a value, got none",
            MessageOf([&] { object.Flag("n"); }));
  for (const char* key : {"i", "r", "f", "l", "o"}) {
    EXPECT_NE("no error", MessageOf([&] { object.Text(key); })) << key;
  }
  for (const char* key : {"a", "i", "r", "l", "o"}) {
    EXPECT_NE("no error", MessageOf([&] { object.Flag(key); })) << key;
  }
  for (const char* key : {"a", "f", "l", "o"}) {
    EXPECT_NE("no error", MessageOf([&] { object.FindReal(key, -9, 999); }))
        << key;
  }
  for (const char* key : {"a", "i", "r", "f", "o"}) {
    EXPECT_NE("no error", MessageOf([&] { object.List(key); })) << key;
  }
  EXPECT_NE("no error", MessageOf([&] { object.FindReal("r", 0.6, 1); }));
  EXPECT_NE("no error", MessageOf([&] { object.Object("a"); }));
  EXPECT_NE("no error", MessageOf([&] { JsonObject(json(3), ""); }));
}

TEST(JsonObject, NamesMembersOfNestedObjects) {
  const json value = json::parse(R"({"m":[{"c":1}]})");
  const JsonObject object(value, "");
  const JsonObject inner(object.List("m")[0], ElementName(object.At("m"), 0));
  EXPECT_EQ("m[0].c: want a text, got 1", MessageOf([&] { inner.Text("c"); }));
  EXPECT_EQ("m[0]: want no other members, got 'c'",
            MessageOf([&] { inner.WantKeys({"d"}); }));
  EXPECT_EQ("no error", MessageOf([&] { inner.WantKeys({"c", "d"}); }));
}

}  // namespace
}  // namespace tarn
