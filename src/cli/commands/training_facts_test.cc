#include "cli/commands/training_facts.h"

#include <filesystem>

#include "core/test_util.h"

namespace tarn::cli {
namespace {

nlohmann::ordered_json Of(const std::string& text) {
  const TemporaryFolder dir;
  std::filesystem::create_directory(dir / "checkpoint");
  dir.Write("checkpoint/train.json", text);
  return TrainingFacts(dir.path());
}

TEST(TrainingFacts, TellsUpdatesDeviceAndPrecision) {
  const auto facts =
      Of(R"({"step": 7, "options": {"device": "cuda", "precision": "bf16"}})");
  EXPECT_EQ(facts.dump(),
            R"({"updates":7,"device":"cuda","precision":"bf16"})");
  // A run from before there was a choice.
  EXPECT_EQ(Of(R"({"step": 7, "options": {"lr": "0.1"}})").dump(),
            R"({"updates":7,"device":"cpu","precision":"f32"})");
}

TEST(TrainingFacts, AModelWithoutItsRunIsDescribed) {
  const TemporaryFolder dir;
  EXPECT_TRUE(TrainingFacts(dir.path()).is_null());
  for (const char* text :
       {"", "[]", "{", "{\"step\": 7}", R"({"step": "7", "options": {}})",
        R"({"step": 7, "options": []})"}) {
    EXPECT_TRUE(Of(text).is_null()) << text;
  }
  EXPECT_EQ(Of(R"({"step": 7, "options": {"device": 3}})")["device"], "?");
}

}  // namespace
}  // namespace tarn::cli
