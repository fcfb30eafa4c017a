#include "engine/dump/read/source_line.h"

#include <gtest/gtest.h>

namespace msprobe::dump {
namespace {

TEST(SourceLine, TheUsersOwnFrameWins) {
  EXPECT_EQ(UserSourceLine(
                {"File /env/site-packages/torch/nn/functional.py, line 9, in gelu, \n return f(x)",
                 "File /usr/lib/python3.11/runpy.py, line 1, in run, \n exec(code)",
                 "File train.py, line 41, in forward, \n y = F.gelu(x)",
                 "File main.py, line 7, in <module>, \n train()"}),
            "train.py:41 in forward: y = F.gelu(x)");
}

TEST(SourceLine, APackageHoldsTheModel) {
  EXPECT_EQ(UserSourceLine(
                {"File /x/lib/python3.11/site-packages/torch/nn/modules/linear.py, line 1, in "
                 "forward, \n return F.linear(input, self.weight)",
                 "File /x/lib/python3.11/site-packages/timm/vit.py, line 2, in forward, \n fc(x)",
                 "File /x/lib/python3.11/site-packages/timm/run.py, line 3, in call, \n block(x)",
                 "File /home/train.py, line 4, in step, \n loss = model(x)"}),
            "timm/vit.py:2 in forward (from /home/train.py:4): fc(x)");
  EXPECT_EQ(UserSourceLine({"File /x/dist-packages/a.py, line 1, in f, \n g(1,",
                            "File /x/dist-packages/b.py, line 2, in h, \n f()"}),
            "a.py:1 in f (from b.py:2): g(1,");
}

TEST(SourceLine, TheCallerOfAPackageIsALineOfItsOwn) {
  const std::vector<std::string_view> stack = {
      "File /x/lib/python3.11/site-packages/torch/nn/functional.py, line 1, in rms_norm, \n torch",
      "File /x/lib/python3.11/site-packages/transformers/norm.py, line 2, in forward, \n w * x",
      "File /x/lib/python3.11/site-packages/transformers/llama.py, line 3, in forward, \n "
      "self.n(x)",
      "File /home/train.py, line 4, in step, \n loss = model(x)",
      "File /home/main.py, line 9, in <module>, \n step()"};
  EXPECT_EQ(UserSourcePlace(stack).line, "transformers/norm.py:2 in forward: w * x");
  EXPECT_EQ(UserSourcePlace(stack).caller, "/home/train.py:4 in step: loss = model(x)");

  const SourcePlace no_program = UserSourcePlace({stack[0], stack[1], stack[2]});
  EXPECT_EQ(no_program.line, "transformers/norm.py:2 in forward: w * x");
  EXPECT_EQ(no_program.caller, "transformers/llama.py:3 in forward: self.n(x)");
  // The outermost one, also where PyTorch calls the package back.
  const SourcePlace launcher = UserSourcePlace(
      {stack[1], stack[2], "File /x/site-packages/trainer/cli.py, line 8, in main, \n run()",
       "File /x/site-packages/torch/distributed/run.py, line 5, in main, \n main()"});
  EXPECT_EQ(launcher.caller, "trainer/cli.py:8 in main: run()");

  EXPECT_EQ(UserSourcePlace({stack[3], stack[4]}).caller, "");
  EXPECT_EQ(UserSourcePlace({stack[0], stack[1]}).caller, "");
  EXPECT_EQ(UserSourcePlace({stack[0]}).line, "torch/nn/functional.py:1 in rms_norm: torch");
  EXPECT_EQ(UserSourcePlace({}).line, "");
}

TEST(SourceLine, InnermostWhenAllAreTheFrameworks) {
  EXPECT_EQ(UserSourceLine({"File /x/dist-packages/torch/a.py, line 1, in f, \n g(1,",
                            "File /usr/lib/python3.11/b.py, line 2, in h, \n f()"}),
            "torch/a.py:1 in f: g(1,");
}

TEST(SourceLine, OddSpellings) {
  EXPECT_EQ(UserSourceLine({}), "");
  EXPECT_EQ(UserSourceLine({"something\nelse"}), "something else");
  EXPECT_EQ(UserSourceLine({"File a, line b.py, line 3, in f, \n x"}), "a, line b.py:3 in f: x");
  EXPECT_EQ(UserSourceLine({"File a.py, line 3, in f"}), "a.py:3 in f");
  EXPECT_EQ(UserSourceLine({"File "}), "File ");
}

}  // namespace
}  // namespace msprobe::dump
