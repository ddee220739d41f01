// A model opened with the C interface, and a state of it, for its tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "capi/test_models.h"
#include "tarn/tarn.h"

namespace tarn {

// Model directories of this process, removed at its end.
class CApi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("tarn_capi_" + std::to_string(getpid()));
    tarn_test::WriteModels(root_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(root_); }
  static std::string Path(const std::string& name) { return root_ / name; }

  void SetUp() override {
    ASSERT_EQ(
        tarn_model_open(Path("linear").c_str(), nullptr, &model_, &error_),
        TARN_OK)
        << tarn_error_message(error_);
    ASSERT_EQ(tarn_state_new(model_, &state_, &error_), TARN_OK);
  }
  void TearDown() override {
    tarn_error_free(error_);
    tarn_state_free(state_);
    tarn_model_close(model_);
  }
  // The call failed with this code and a message that contains `part`.
  void ExpectError(tarn_status got, tarn_status want, const char* part) {
    EXPECT_EQ(got, want);
    EXPECT_EQ(tarn_error_code(error_), want);
    EXPECT_NE(std::string(tarn_error_message(error_)).find(part),
              std::string::npos)
        << tarn_error_message(error_);
    tarn_error_free(error_);
    error_ = nullptr;
  }

  static inline std::filesystem::path root_;
  tarn_model* model_ = nullptr;
  tarn_state* state_ = nullptr;
  tarn_error* error_ = nullptr;
};

}  // namespace tarn
