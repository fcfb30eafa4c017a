#include "engine/accuracy/checked_call.h"

#include <gmock/gmock.h>

namespace msprobe::accuracy {
namespace {

TEST(CheckedCallLine, IsReadAsItWasWritten) {
  CheckedCall call{.name = "Tensor.add.0", .forward = Verdict::kError, .backward = Verdict::kBlank};
  call.message = "a \"quoted\" message\nof two lines";
  call.forward_rows.resize(2);
  call.forward_rows[1][kMessage] = "误差均衡性";
  call.backward_rows.resize(1);
  const std::string line = ToLine(call);
  EXPECT_EQ(line.find('\n'), line.npos);
  const Result<CheckedCall> read = CheckedCallFromLine(line);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->name, call.name);
  EXPECT_EQ(read->forward, Verdict::kError);
  EXPECT_EQ(read->backward, Verdict::kBlank);
  EXPECT_EQ(read->message, call.message);
  EXPECT_EQ(read->forward_rows, call.forward_rows);
  EXPECT_EQ(read->backward_rows, call.backward_rows);
}

TEST(CheckedCallLine, AnythingElseIsAnError) {
  const std::string line = ToLine({.name = "a", .forward = Verdict::kPass, .forward_rows = {{}}});
  for (size_t size = 0; size < line.size(); ++size)
    EXPECT_FALSE(CheckedCallFromLine(line.substr(0, size)).ok()) << size;
  for (const char* bad :
       {R"(["a","maybe"," ","",[],[]])", R"(["a","pass"," ",""])",
        R"(["a","pass"," ","",[["x"]],[]])", R"({"a":1})", R"(["a","pass"," ","",[],[],[]])"})
    EXPECT_FALSE(CheckedCallFromLine(bad).ok()) << bad;
}

}  // namespace
}  // namespace msprobe::accuracy
