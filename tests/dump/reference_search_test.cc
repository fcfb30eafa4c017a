#include "engine/dump/session/reference_search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/session/reference_dump.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"
#include "tests/dump/recorded_dumps.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

using ::testing::HasSubstr;
using Verdict = ReferenceSearch::Verdict;

// `checksums`: further members of the tensor.
std::string Tensor(std::string_view shape, std::string_view checksums,
                   std::string_view dtype = "torch.float32") {
  return fmt::format(R"({{"type": "torch.Tensor", "dtype": "{}", "shape": [{}]{}{}}})", dtype,
                     shape, checksums.empty() ? "" : ", ", checksums);
}
std::string Print(int value) { return fmt::format(R"("fingerprint": "{:016x}")", value); }
std::string Crc(int value) { return fmt::format(R"("md5": "{:08x}")", value); }
std::string Xor(int value) { return fmt::format(R"("md5": "0x{:016x}")", value); }

std::string Call(std::string_view name, std::string_view in, std::string_view out,
                 std::string_view more = "") {
  return fmt::format(R"("{}": {{"input_args": [{}], "input_kwargs": {{}}{}, "output": [{}]}})",
                     name, in, more, out);
}
constexpr char kName[] = "Functional.gelu.0.forward";

Verdict Judge(ReferenceSearch* search, const std::string& call) {
  EXPECT_TRUE(search->Write(test::ParseEntry(call)).ok());
  return search->verdict();
}

// The verdict on the entry `here`, with a reference dump that contains `there`.
Verdict Judged(const std::string& there, const std::string& here) {
  const TemporaryFolder folder;
  folder.Write("step0/rank/dump.json", Ours({there}));
  ReferenceSearch search(folder.path());
  EXPECT_TRUE(*search.Begin(0, std::nullopt));
  return Judge(&search, here);
}

TEST(ReferenceSearch, DiffersWhenEqualInputsMakeSomethingElse) {
  const std::string in = Tensor("2, 3", Print(1)), out = Tensor("2", Print(2));
  const std::string other = Tensor("2", Print(3)), unknown = Tensor("2", "");
  const std::string unread = Tensor("2, 3", "");
  const std::string number = R"({"type": "int", "value": 3})";
  const std::string weights = fmt::format(R"(, "parameters": {{"weight": {}}})", out);
  const std::string others = fmt::format(R"(, "parameters": {{"weight": {}}})", other);
  const struct {
    std::string there, here;
    Verdict verdict;
  } cases[] = {
      {Call(kName, in, out), Call(kName, in, out), Verdict::kAlike},
      {Call(kName, in, out), Call(kName, in, other), Verdict::kDiffers},
      {Call(kName, in, out + ", " + out), Call(kName, in, out + ", " + other), Verdict::kDiffers},
      {Call(kName, "", out), Call(kName, "", other), Verdict::kDiffers},
      {Call(kName, in + ", " + number, out), Call(kName, in, other), Verdict::kDiffers},
      {Call(kName, in, out), Call(kName, other, other), Verdict::kOtherInputs},
      {Call(kName, in, out), Call(kName, Tensor("3, 2", Print(1)), other), Verdict::kOtherInputs},
      {Call(kName, in, out, weights), Call(kName, in, other, others), Verdict::kOtherInputs},
      {Call(kName, in, out, weights), Call(kName, in, other, weights), Verdict::kDiffers},
      {Call(kName, in, out), Call(kName, in, other, weights), Verdict::kDiffers},  // msprobe 1.0
      {Call(kName, in, out), Call(kName, in + ", " + in, other), Verdict::kUnclear},
      {Call(kName, in, out), Call(kName, unread, other), Verdict::kUnclear},
      {Call(kName, unread, out), Call(kName, in, other), Verdict::kUnclear},
      {Call(kName, in, unknown), Call(kName, in, other), Verdict::kUnclear},
      {Call(kName, in, out), Call(kName, in, Tensor("1, 2", Print(3))), Verdict::kUnclear},
      {Call("Torch.empty_like.0.forward", in, out), Call("Torch.empty_like.0.forward", in, other),
       Verdict::kUnclear},
      {Call(kName, in, out), Call("Functional.gelu.1.forward", in, out), Verdict::kNoPartner},
      {Call("Functional.gelu.0.backward", in, out), Call("Functional.gelu.0.backward", in, out),
       Verdict::kNoPartner},
  };
  for (const auto& c : cases) {
    const std::string more = Call("Torch.ones.0.forward", "", out);
    EXPECT_EQ(Judged(c.there + ",\n" + more, c.here), c.verdict) << c.there << "\n" << c.here;
  }
}

TEST(ReferenceSearch, TakesTheChecksumsThatTheDumpHas) {
  const std::string bf16 = "torch.bfloat16";
  const struct {
    std::string there, here;
    kernels::Checksum checksum;
    Verdict verdict;
  } cases[] = {
      {Tensor("2", Crc(5)), Tensor("2", Print(9) + ", " + Crc(6)), kernels::Checksum::kCrc32,
       Verdict::kDiffers},
      {Tensor("2", Crc(5)), Tensor("2", Print(9) + ", " + Crc(5)), kernels::Checksum::kCrc32,
       Verdict::kAlike},
      {Tensor("2", Print(9) + ", " + Crc(5)), Tensor("2", Print(9) + ", " + Crc(6)),
       kernels::Checksum::kNone, Verdict::kAlike},
      {Tensor("2", Xor(5)), Tensor("2", Xor(6)), kernels::Checksum::kXor, Verdict::kDiffers},
      {Tensor("2", Crc(5), bf16), Tensor("2", Crc(6), bf16), kernels::Checksum::kCrc32,
       Verdict::kDiffers},
  };
  for (const auto& c : cases) {
    const TemporaryFolder folder;
    folder.Write("step0/rank/dump.json", Ours({Call(kName, "", c.there)}));
    ReferenceSearch search(folder.path());
    ASSERT_TRUE(*search.Begin(0, std::nullopt)) << c.there;
    EXPECT_EQ(search.checksum(), c.checksum) << c.there;
    EXPECT_EQ(Judge(&search, Call(kName, "", c.here)), c.verdict) << c.there << c.here;
  }
}

// Checksums that are computed in another way than ours are ignored.
TEST(ReferenceSearch, ChecksumsOfOtherMeaningAreNotCompared) {
  const TemporaryFolder folder;
  const auto holds = [&](std::string_view header, const std::string& tensor) {
    folder.Write("step0/rank/dump.json", std::string(header) + Call(kName, "", tensor) + "}}");
    return ReferenceSearch::Check(folder.path(), folder.path() + "/now").ok();
  };
  constexpr std::string_view k26 = R"({"task": "statistics", "level": "L1", "framework": "pytorch",
    "dump_data_dir": null, "data": {)";
  constexpr std::string_view k10 = R"({"task": "statistics", "level": "L1", "dump_data_dir": null,
    "data": {)";
  EXPECT_TRUE(holds(k26, Tensor("2", Crc(1), "torch.bfloat16")));
  EXPECT_FALSE(holds(k10, Tensor("2", Crc(1), "torch.bfloat16")));  // CRC-32 of the cast to float32
  EXPECT_TRUE(holds(k10, Tensor("2", Crc(1))));
  EXPECT_TRUE(holds(k26, Tensor("2", Xor(1))));
  EXPECT_FALSE(holds(k26, Tensor("", Xor(1))));  // the value itself, no checksum
  EXPECT_FALSE(holds(k26, Tensor("2", R"("md5": "zz345678")")));
}

TEST(ReferenceSearch, DumpOfTheSameStepAndRank) {
  const TemporaryFolder folder;
  const std::string text = Ours({Call(kName, "", Tensor("2", Print(1)))});
  for (const char* name : {"ranks/step0/rank0", "ranks/step0/rank1", "ranks/step2/rank1",
                           "one/step0/rank", "procs/step0/proc11", "procs/step0/proc12"})
    folder.Write(std::string(name) + "/dump.json", text);
  const struct {
    const char* path;
    int64_t step;
    std::optional<int> rank;
    bool found;
  } cases[] = {
      {"ranks", 0, 0, true},
      {"ranks", 0, 1, true},
      {"ranks", 0, 2, false},
      {"ranks", 1, 0, false},
      {"ranks", 2, 0, false},
      {"ranks", 0, std::nullopt, false},
      {"ranks/step0", 0, 1, true},
      {"ranks/step0", 1, 1, false},
      {"ranks/step2/rank1", 2, 1, true},
      {"ranks/step2/rank1", 2, std::nullopt, true},
      {"one", 0, std::nullopt, true},
      {"one", 0, 3, true},
      {"one/step0/rank/dump.json", 0, std::nullopt, true},
      {"procs", 0, std::nullopt, false},
  };
  for (const auto& c : cases) {
    ReferenceSearch search(folder.path() + "/" + c.path);
    const Result<bool> found = search.Begin(c.step, c.rank);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, c.found) << c.path << " step " << c.step << " rank " << c.rank.value_or(-1);
  }
}

TEST(ReferenceSearch, EachCallIsCountedInTheReportOfItsStep) {
  const TemporaryFolder folder;
  const std::string one = Tensor("2", Print(1)), two = Tensor("2", Print(2));
  for (const char* name : {"step0/rank/dump.json", "step1/rank/dump.json"})
    folder.Write(name, Ours({Call(kName, one, one)}));
  ReferenceSearch search(folder.path());
  ASSERT_TRUE(*search.Begin(0, std::nullopt));
  EXPECT_EQ(search.Report(), "");
  Judge(&search, Call(kName, one, one));
  Judge(&search, Call(kName, one, two));
  Judge(&search, Call(kName, one, two));
  Judge(&search, Call("Torch.add.0.forward", one, two));
  EXPECT_EQ(search.Report(),
            "compared with " + folder.path() +
                "/step0/rank/dump.json: 1 call equal, 2 calls different, 1 call without a "
                "partner");
  ASSERT_TRUE(*search.Begin(0, std::nullopt));
  EXPECT_NE(search.Report(), "");
  ASSERT_TRUE(*search.Begin(1, std::nullopt));
  EXPECT_EQ(search.Report(), "");
}

TEST(ReferenceSearch, DumpsThatCannotBeComparedAreRefused) {
  const TemporaryFolder folder;
  const std::string now = folder.path() + "/now";
  const std::string text = Ours({Call(kName, "", Tensor("2", Print(1)))});
  folder.Write("empty/step0/rank/a.txt", "");
  folder.Write("without/step0/rank/dump.json", Ours({Call(kName, "", Tensor("2", ""))}));
  folder.Write("broken/step0/rank/dump.json", "{\"data\": [");
  folder.Write("good/step0/rank/dump.json", Ours({}));
  folder.Write("good/step1/rank/dump.json", text);
  const auto said = [&](const std::string& name, const std::string& dump_path) {
    return ReferenceSearch::Check(folder.path() + "/" + name, dump_path).ToString();
  };
  EXPECT_THAT(said("none", now), HasSubstr("expected a dump.json, or a folder with dumps"));
  EXPECT_THAT(said("none", now), HasSubstr("bench_path"));
  EXPECT_THAT(said("empty", now), HasSubstr("holds no dump"));
  EXPECT_THAT(said("without", now), HasSubstr("expected checksums"));
  EXPECT_THAT(said("broken", now), HasSubstr("dump.json:"));
  EXPECT_TRUE(ReferenceSearch::Check(folder.path() + "/good", now).ok());
  for (const char* name : {"good", "good/step1", "good/step0/rank"})
    EXPECT_THAT(said(name, folder.path() + "/good"), HasSubstr("write over")) << name;
  ReferenceSearch broken(folder.path() + "/broken");
  EXPECT_FALSE(broken.Begin(0, std::nullopt).ok());
}

TEST(ReferenceSearch, EveryGenerationWithChecksums) {
  for (const char* version : {"1.0.4", "8.3.3", "26.2.0"}) {
    const std::string path = kDumps + "/" + version + "/L1_md5/base";
    ASSERT_TRUE(ReferenceSearch::Check(path, "now").ok()) << version;
    EXPECT_FALSE(
        ReferenceSearch::Check(kDumps + "/" + version + "/L0_statistics/base", "now").ok());
    ReferenceSearch search(path);
    ASSERT_TRUE(*search.Begin(0, std::nullopt)) << version;
    EXPECT_EQ(search.checksum(), kernels::Checksum::kCrc32);
  }
}

// A run of many steps does not list the baseline's other steps for each of its own.
TEST(FindReference, LooksIntoTheFolderOfTheStepAlone) {
  const TemporaryFolder folder;
  folder.Write("step3/rank0/dump.json", Ours({}));
  folder.Write("step3/rank1/dump.json", Ours({}));
  folder.Write("step31/rank0/dump.json", Ours({}));
  const auto of_step = [&](int64_t step) { return DumpsOfStep(folder.path(), step).value(); };
  ASSERT_EQ(of_step(3).size(), 2u);
  EXPECT_EQ(of_step(3)[1].rank, 1);
  EXPECT_EQ(of_step(3)[1].step, 3);
  EXPECT_TRUE(of_step(4).empty());
  EXPECT_EQ((*FindReference(folder.path(), 31, 0))->path,
            folder.path() + "/step31/rank0/dump.json");
  EXPECT_FALSE(*FindReference(folder.path(), 3, 2));
  EXPECT_FALSE(*FindReference(folder.path(), 4, 0));
  EXPECT_EQ(WhyNoReference(folder.path(), 4), folder.path() + " holds no dump of this step");
  EXPECT_THAT(WhyNoReference(folder.path(), 3).English(),
              HasSubstr(" holds 2 dumps of this step and not exactly one of this rank"));
  // Without folders of steps, what belongs to no step is taken.
  const TemporaryFolder bare;
  bare.Write("rank0/dump.json", Ours({}));
  EXPECT_TRUE(*FindReference(bare.path(), 7, 0));
  // Below the folder of a step that holds no dump, the whole path is searched.
  bare.Write("step7/notes.txt", "");
  EXPECT_TRUE(*FindReference(bare.path(), 7, 0));
}

}  // namespace
}  // namespace msprobe::dump
