// What a resumed run is compared with, and the file of its state.

#include <gtest/gtest.h>

#include "train/options/test_util.h"
#include "train/run/plan.h"
#include "train/run/state.h"

namespace tarn::train {
namespace {

TEST(ResumeOptionsTest, TheSameModelInOtherWords) {
  // Unused keys and patterns of one type leave no trace.
  const Given given = {{"layers", "linear,linear"},
                       {"topk", "7"},
                       {"d_ff", "0"},
                       {"n_layers", "2"}};
  const TrainOptions saved = BuildOptions(With(given));
  EXPECT_NO_THROW(ResumeOptions(saved, With(given)));
  EXPECT_NO_THROW(ResumeOptions(saved, {{"attention", "linear"}}));
  const Given bad = {{"layers", "linear,full"},
                     {"norm_kind", "rms"},
                     {"feed_forward", "swiglu"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      ResumeOptions(saved, {{"topk", "7"}, {n, v}});
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << message;
  }
  const Given pattern =
      With({{"layers", "linear,local:local_context=8"}, {"n_layers", "2"}});
  const TrainOptions hybrid = BuildOptions(pattern);
  EXPECT_NO_THROW(ResumeOptions(hybrid, pattern));
  EXPECT_TRUE(Contains(Refusal([&] {
                         ResumeOptions(hybrid, {{"attention", "linear"}});
                       }),
                       "--attention"));
}

TEST(ResumeOptionsTest, RefusesWhatWouldChangeTheBits) {
  const TrainOptions saved =
      BuildOptions(With({{"lr", "0.1"}, {"threads", "2"}, {"d_model", "64"}}));
  const auto resume = [&](const Given& given) {
    return ResumeOptions(saved, given);
  };
  // Options may be repeated, and those that are free may change.
  EXPECT_EQ(resume({{"lr", "1e-1"},
                    {"d_model", "64"},
                    {"threads", "2"},
                    {"checkpoint_every", "3"}})
                .checkpoint_every,
            3);
  // Where a flag is given twice the last one counts, as at the beginning of a
  // run.
  EXPECT_NO_THROW(resume({{"threads", "1"}, {"threads", "2"}}));
  EXPECT_THROW(resume({{"threads", "2"}, {"threads", "1"}}), ArgumentError);
  const Given bad = {
      {"lr", "0.2"},       {"batch", "9"},       {"seed", "1"},
      {"threads", "1"},    {"d_model", "32"},    {"dropout", "0.5"},
      {"steps", "7"},      {"records", "block"}, {"init", "/m"},
      {"accumulate", "2"}, {"norm", "post"}};
  for (const auto& [name, value] : bad) {
    const std::string message = Refusal([&, n = name, v = value] {
      resume({{n, v}});
    });
    EXPECT_TRUE(Contains(message, FlagName(name))) << name << ": " << message;
  }
}

// Another precision is other arithmetic from the first step on, like another
// batch. Another device is the same arithmetic in another order.
TEST(ResumeOptionsTest, ADeviceMayChangeAPrecisionMayNot) {
  const TrainOptions saved =
      BuildOptions(With({{"device", "cuda"}, {"precision", "bf16"}}));
  EXPECT_EQ(DeviceName(saved.device), "cuda");
  EXPECT_EQ(PrecisionName(saved.precision), "bf16");
  const TrainOptions same = ResumeOptions(saved, {});
  EXPECT_EQ(same.device, Device::kCuda);
  EXPECT_EQ(same.precision, Precision::kBF16);
  EXPECT_EQ(ResumeOptions(saved, {{"device", "cpu"}}).device, Device::kCpu);
  const std::string message = Refusal([&] {
    ResumeOptions(saved, {{"precision", "f32"}});
  });
  EXPECT_TRUE(Contains(message, "--precision: want bf16")) << message;
}

TEST(PlanRunTest, ADeviceThatIsNotHereIsRefusedBeforeAnyWork) {
  const TemporaryFolder dir;
  const Given given = {{"generator", "copy"}, {"seq_len", "32"},
                       {"d_model", "8"},      {"n_heads", "2"},
                       {"out", dir / "out"},  {"device", "cuda"}};
  try {
    PlanRun(given);
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.where(), "--device");
    EXPECT_EQ(error.given(), "cuda");
    EXPECT_TRUE(Contains(error.wanted(), "cpu")) << error.wanted();
  }
  EXPECT_EQ(dir.FileCount(), 0u);
  const RunPlan plan = PlanRun(given, {.cuda = true});
  EXPECT_EQ(plan.state.options.device, Device::kCuda);
  EXPECT_EQ(plan.began_on, Device::kCpu);  // nothing was made yet
}

// What a step needs besides the weights is in the device's own memory.
TEST(PlanRunTest, ActivationsElsewhereAreNotThisMachinesMemory) {
  const auto need = [](const char* device, const char* batch) {
    return MemoryEstimate(
        BuildOptions(With({{"device", device}, {"batch", batch}})));
  };
  EXPECT_GT(need("cpu", "64"), need("cpu", "8"));
  EXPECT_EQ(need("cuda", "64"), need("cuda", "8"));
  EXPECT_GT(need("cuda", "8"), 0);
}

TEST(ResumeOptionsTest, PatternsAreComparedByWhatTheyMean) {
  const TrainOptions saved = BuildOptions(With({{"layers", "linear,full"}}));
  for (const char* same : {"linear,full", "linear:feature_map=elu1,full"}) {
    EXPECT_EQ(ResumeOptions(saved, {{"layers", same}}).model, saved.model);
  }
  for (const char* other : {"full,linear", "linear", "linear,full,full"}) {
    const std::string message = Refusal([&] {
      ResumeOptions(saved, {{"layers", other}});
    });
    EXPECT_TRUE(Contains(message, "--layers")) << other << ": " << message;
  }
  const TrainOptions alike = BuildOptions(With({{"layers", "full,full"}}));
  EXPECT_EQ(ResumeOptions(alike, {{"layers", "full,full"}}).model, alike.model);
}

TEST(ResumeOptionsTest, MoreStepsUnlessTheyShapeTheRates) {
  const TrainOptions cosine = BuildOptions(kBase);
  EXPECT_THROW(ResumeOptions(cosine, {{"steps", "5000"}}), ArgumentError);
  const TrainOptions constant = BuildOptions(With({{"schedule", "constant"}}));
  EXPECT_EQ(ResumeOptions(constant, {{"steps", "5000"}}).schedule.steps, 5000);
  EXPECT_THROW(ResumeOptions(constant, {{"steps", "5"}}), ArgumentError);
}

TEST(ResumeOptionsTest, TheSameCommandLineWithAPresetAndFlagsThatBeatIt) {
  const Given given = With({{"preset", "tiny"}, {"batch", "3"}, {"lr", "0.5"}});
  const TrainOptions saved = BuildOptions(given);
  EXPECT_EQ(saved.batch, 3);
  EXPECT_EQ(ResumeOptions(saved, given).batch, 3);
  EXPECT_THROW(ResumeOptions(saved, With({{"preset", "tiny"}, {"lr", "0.5"}})),
               ArgumentError);
}

TEST(TrainStateTest, ReadsBackWhatWasWritten) {
  TrainState state;
  state.options = BuildOptions(With({{"lr", "0.0012345678901234567"},
                                     {"seed", "18446744073709551615"},
                                     {"attention", "full"}}));
  state.step = 41;
  state.elapsed_s = 1.0 / 3;
  state.cpu_s = 2.0 / 3;
  state.plateau = {2, 3, 1.0 / 7, 32};
  state.log_bytes = 12345;
  state.fingerprint = 0xFEDCBA9876543210;
  state.best_held_out = 2.7182818284590452;
  state.best_step = 40;
  const std::string json = TrainStateToJson(state);
  const TrainState read = TrainStateFromJson(json);
  EXPECT_EQ(TrainStateToJson(read), json);
  EXPECT_EQ(OptionTexts(read.options), OptionTexts(state.options));
  EXPECT_EQ(read.options.model, state.options.model);
  EXPECT_EQ(read.fingerprint, state.fingerprint);
  EXPECT_EQ(read.cpu_s, state.cpu_s);
  EXPECT_EQ(read.plateau.evaluations, 2);
  EXPECT_EQ(read.plateau.drops, 3);
  EXPECT_EQ(read.plateau.best, 1.0 / 7);
  EXPECT_EQ(read.plateau.since_best, 32);
  EXPECT_EQ(read.best_held_out, state.best_held_out);
  EXPECT_FALSE(read.last_held_out.has_value());
}

TEST(TrainStateTest, ReadsCheckpointsFromBeforeDevicesAndPlateaus) {
  TrainState state;
  state.options =
      BuildOptions(With({{"device", "cuda"}, {"precision", "bf16"}}));
  std::string json = TrainStateToJson(state);
  EXPECT_EQ(TrainStateFromJson(json).options.device, Device::kCuda);
  EXPECT_EQ(TrainStateFromJson(json).options.precision, Precision::kBF16);
  for (const char* key : {"cpu_s", "plateau_looks", "plateau_drops",
                          "plateau_best", "device", "precision"}) {
    const size_t at = json.find(StrCat("  \"", key, "\""));
    ASSERT_NE(at, std::string::npos) << key;
    json.erase(at, json.find('\n', at) + 1 - at);
  }
  const TrainState read = TrainStateFromJson(json);
  EXPECT_EQ(read.cpu_s, 0);
  EXPECT_EQ(read.plateau.drops, 0);
  EXPECT_EQ(read.options.device, Device::kCpu);
  EXPECT_EQ(read.options.precision, Precision::kF32);
}

// The name belonged to --schedule plateau before runs could stop early.
TEST(TrainStateTest, APatienceOfEarlierCheckpointsIsThatOfTheirSchedule) {
  TrainState state;
  state.options = BuildOptions(With({{"patience", "1"}, {"eval_every", "9"}}));
  std::string json = TrainStateToJson(state);
  EXPECT_EQ(TrainStateFromJson(json).options.patience, 1);
  for (const char* key : {"decay_patience", "since_best"}) {
    const size_t at = json.find(StrCat("\"", key, "\""));
    ASSERT_NE(at, std::string::npos) << key;
    json.erase(at, json.find('\n', at) + 1 - at);
  }
  const size_t at = json.find("\"patience\": \"1\"");
  ASSERT_NE(at, std::string::npos);
  json.replace(at, 15, "\"patience\": \"7\"");
  const TrainState read = TrainStateFromJson(json);
  EXPECT_EQ(read.options.patience, 0);
  EXPECT_EQ(read.options.schedule.decay_patience, 7);
  EXPECT_EQ(read.plateau.since_best, 0);
}

TEST(ResumeOptionsTest, AStoppedRunMayContinueWithAnotherPatience) {
  const Given given = With({{"patience", "2"}, {"eval_every", "9"}});
  const TrainOptions saved = BuildOptions(given);
  EXPECT_EQ(ResumeOptions(saved, {}).patience, 2);
  EXPECT_EQ(ResumeOptions(saved, {{"patience", "0"}}).patience, 0);
  EXPECT_EQ(ResumeOptions(saved, {{"patience", "5"}}).patience, 5);
  EXPECT_THROW(ResumeOptions(saved, {{"decay_patience", "5"}}), ArgumentError);
}

TEST(TrainStateTest, RefusesBrokenText) {
  TrainState state;
  state.options = BuildOptions(kBase);
  const std::string json = TrainStateToJson(state);
  EXPECT_NO_THROW(TrainStateFromJson(json));
  for (size_t length = 0; length + 2 < json.size(); length += 7) {
    EXPECT_THROW(TrainStateFromJson(json.substr(0, length)), FormatError);
  }
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THROW(TrainStateFromJson(changed("\"step\": 0", "\"step\": -1")),
               FormatError);
  EXPECT_THROW(TrainStateFromJson(changed("\"batch\"", "\"bath\"")),
               FormatError);
  EXPECT_THROW(TrainStateFromJson(
                   changed("\"fingerprint\": \"0\"", "\"fingerprint\": \"x\"")),
               FormatError);
}

}  // namespace
}  // namespace tarn::train
