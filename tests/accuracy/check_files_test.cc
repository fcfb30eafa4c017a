#include "engine/accuracy/check_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "engine/accuracy/details_table.h"
#include "engine/base/messages/message.h"

namespace msprobe::accuracy {
namespace {

using testing::HasSubstr;

class CheckFilesTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string Text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  CheckFiles Create(Rules rules = Rules::kOurs) {
    Result<CheckFiles> files = CheckFiles::Create(folder_, "20260102030405", rules);
    EXPECT_TRUE(files.ok()) << files.status().ToString();
    return std::move(*files);
  }
  static CheckedCall Call(const std::string& name, Verdict forward,
                          const std::string& message = "") {
    DetailsRow row;
    row.fill(" ");
    row[kShape] = "(2, 3)";
    row[kStatus] = VerdictName(forward);
    row[kMessage] = message;
    return {name, forward, Verdict::kBlank, {row, row}};
  }

  std::string folder_ = testing::TempDir() + "/check_files_test";
};

TEST_F(CheckFilesTest, BytesOfTheOlderTools) {
  CheckFiles files = Create(Rules::k26);
  ASSERT_TRUE(files.Add(Call("Tensor.add.0", Verdict::kPass)).ok());
  ASSERT_TRUE(files.Add(Call("VF.lstm.0", Verdict::kSkip, "no adapter")).ok());
  EXPECT_EQ(Text(files.result_path()),
            "\xef\xbb\xbf"
            "API name,Forward Test Success,Backward Test Success,Message\r\n"
            "Tensor.add.0,pass, \r\nVF.lstm.0,SKIP, ,no adapter\r\n");
  EXPECT_THAT(Text(files.details_path()),
              HasSubstr("Status,Message\r\nTensor.add.0.forward.output.0, , ,\"(2, 3)\", ,"));
  const Result<DetailsTable> table = DetailsTable::Read(files.details_path());
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->rows(), 4u);
  EXPECT_FALSE(CheckFiles::Create(folder_, "20260102030405").ok());
}

// Whatever a kill leaves: any prefix of the details with any prefix of the result.
TEST_F(CheckFilesTest, ResumesAfterAnyKill) {
  std::string result_path, details_path, all_details, all_result;
  {
    CheckFiles files = Create();
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(
          files.Add(Call("Torch.exp." + std::to_string(i), Verdict::kError, "two\nlines, \"x\""))
              .ok());
    }
    result_path = files.result_path();
    details_path = files.details_path();
    all_details = Text(details_path);
    all_result = Text(result_path);
  }
  const size_t titles = all_details.find('\n') + 1, result_titles = all_result.find('\n') + 1;
  for (size_t cut = titles; cut <= all_details.size(); cut += 7) {
    // A result row is written after its details: as many whole calls as the details have, or one
    // less.
    Write(details_path, all_details.substr(0, cut));
    Write(result_path, all_result.substr(0, result_titles + (cut * 31) % (all_result.size() -
                                                                          result_titles + 1)));
    Result<CheckFiles> files = CheckFiles::Resume(result_path);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    for (int i = 0; i < 4; ++i) {
      const std::string name = "Torch.exp." + std::to_string(i);
      if (files->IsDone(name)) continue;
      ASSERT_TRUE(files->Add(Call(name, Verdict::kError, "two\nlines, \"x\"")).ok());
    }
    const Result<DetailsTable> table = DetailsTable::Read(details_path);
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    EXPECT_EQ(Text(result_path).size(), all_result.size()) << cut;
  }
}

TEST_F(CheckFilesTest, SkippedCallsAreTriedAgain) {
  std::string path;
  {
    CheckFiles files = Create();
    ASSERT_TRUE(files.Add(Call("Tensor.add.0", Verdict::kPass)).ok());
    ASSERT_TRUE(files.Add(Call("VF.lstm.0", Verdict::kSkip, "no adapter")).ok());
    EXPECT_FALSE(files.Add(Call("Tensor.add.0", Verdict::kPass)).ok());
    path = files.result_path();
  }
  const Result<CheckFiles> files = CheckFiles::Resume(path);
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE(files->IsDone("Tensor.add.0"));
  EXPECT_FALSE(files->IsDone("VF.lstm.0"));
  EXPECT_EQ(DetailsTable::Read(files->details_path())->rows(), 2u);
}

TEST_F(CheckFilesTest, BadFilesAreLeftAsTheyAre) {
  std::string path;
  {
    CheckFiles files = Create();
    ASSERT_TRUE(files.Add(Call("Tensor.add.0", Verdict::kPass)).ok());
    path = files.result_path();
  }
  const std::string good = Text(path);
  const auto message = [&](const std::string& text) {
    Write(path, text);
    const Result<CheckFiles> files = CheckFiles::Resume(path);
    EXPECT_EQ(Text(path), text);
    return files.ok() ? "no error" : files.status().message();
  };
  EXPECT_THAT(message(good + "Tensor.add.0,pass, ,\r\n"), HasSubstr("\"Tensor.add.0\" twice"));
  EXPECT_THAT(message("a,b\r\n"), HasSubstr("expected 4 columns"));
  EXPECT_THAT(message(good + "Tensor.mul.0\r\n"), HasSubstr("4 cells in row 3"));
  EXPECT_THAT(message(""), HasSubstr("a row of titles"));
  EXPECT_THAT(CheckFiles::Resume(folder_ + "/result.csv").status().message(),
              HasSubstr("14 digits"));
  EXPECT_FALSE(CheckFiles::Resume(folder_ + "/accuracy_checking_result_20990102030405.csv").ok());
}

}  // namespace
}  // namespace msprobe::accuracy
