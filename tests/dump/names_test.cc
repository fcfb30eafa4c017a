#include "engine/model/names.h"

#include <gtest/gtest.h>

namespace msprobe::dump {
namespace {

struct Case {
  const char* name;
  const char* api;
  int64_t call;
  Direction direction;
  bool is_module;
};

TEST(ModuleForPeople, PathAndClass) {
  EXPECT_EQ(ModuleForPeople("Module.layers.3.mlp.LlamaMLP.forward.0"), "layers.3.mlp (LlamaMLP)");
  EXPECT_EQ(ModuleForPeople("Module.fc.Linear.backward.12"), "fc (Linear)");
  EXPECT_EQ(ModuleForPeople("Cell.net.conv.Conv2d"), "net.conv (Conv2d)");
  EXPECT_EQ(ModuleForPeople("Module.0.fc.Linear"), "0.fc (Linear)");
  for (const char* other : {"", "optimizer", "Functional.linear.0.forward", "Module", "Module.fc"})
    EXPECT_EQ(ModuleForPeople(other), "") << other;
}

TEST(ParseEntryName, FormsOfEveryGeneration) {
  const Case cases[] = {
      {"Functional.linear.3.forward", "Functional.linear", 3, Direction::kForward, false},
      {"Functional.linear.3.backward", "Functional.linear", 3, Direction::kBackward, false},
      {"Tensor.__add__.0.forward", "Tensor.__add__", 0, Direction::kForward, false},
      {"Torch.linalg.norm.12.forward", "Torch.linalg.norm", 12, Direction::kForward, false},
      {"Primitive.norm.LayerNorm.4.forward", "Primitive.norm.LayerNorm", 4, Direction::kForward,
       false},
      {"Module.0.encoder.ln.LayerNorm.forward.1", "Module.0.encoder.ln.LayerNorm", 1,
       Direction::kForward, true},
      {"Module.fc.Linear.backward.0", "Module.fc.Linear", 0, Direction::kBackward, true},
      {"Cell.net.fc.Dense.forward.7", "Cell.net.fc.Dense", 7, Direction::kForward, true},
      {"Module.fc.Linear.parameters_grad.2", "Module.fc.Linear", 2, Direction::kParameterGrad,
       true},
      {"Module.fc.Linear.parameters_grad", "Module.fc.Linear", -1, Direction::kParameterGrad, true},
      {"MyModule.0.forward.5", "MyModule.0", 5, Direction::kForward, true},
      {"mid.0.debug", "mid", 0, Direction::kNone, false},
      {"Functional.linear.x.forward", "Functional.linear.x", -1, Direction::kForward, false},
      {"Functional.linear.007.forward", "Functional.linear.007", -1, Direction::kForward, false},
      {"Functional.linear.99999999999999999999.forward", "Functional.linear.99999999999999999999",
       -1, Direction::kForward, false},
      {"something", "something", -1, Direction::kNone, false},
      {"a.b.3", "a.b.3", -1, Direction::kNone, false},
      {"", "", -1, Direction::kNone, false},
      {".", ".", -1, Direction::kNone, false},
      {"forward", "forward", -1, Direction::kNone, false},
      {".forward", "", -1, Direction::kForward, false},
  };
  for (const Case& c : cases) {
    const EntryName parsed = ParseEntryName(c.name);
    EXPECT_EQ(parsed.api, c.api) << c.name;
    EXPECT_EQ(parsed.call, c.call) << c.name;
    EXPECT_EQ(parsed.direction, c.direction) << c.name;
    EXPECT_EQ(parsed.is_module, c.is_module) << c.name;
  }
  EXPECT_TRUE(ParseEntryName("mid_grad.0.debug").is_debug);
}

TEST(ComposeEntryName, IsWhatParsingTakesApart) {
  EXPECT_EQ(ComposeEntryName("Functional.linear.", 3, "backward", false),
            "Functional.linear.3.backward");
  EXPECT_EQ(ComposeEntryName("Module.fc.Linear.", 0, "parameters_grad", true),
            "Module.fc.Linear.parameters_grad.0");
  for (const bool is_module : {false, true}) {
    const std::string name = ComposeEntryName("Module.a.B.", 12, "forward", is_module);
    const EntryName parsed = ParseEntryName(name);
    EXPECT_EQ(parsed.api, "Module.a.B");
    EXPECT_EQ(parsed.call, 12);
    EXPECT_EQ(parsed.direction, Direction::kForward);
  }
}

TEST(NumberAfter, OnlyPlainNumbers) {
  EXPECT_EQ(NumberAfter("step12", "step"), 12);
  EXPECT_EQ(NumberAfter("rank0", "rank"), 0);
  EXPECT_EQ(NumberAfter("rank", "rank"), -1);
  EXPECT_EQ(NumberAfter("rank01", "rank"), -1);
  EXPECT_EQ(NumberAfter("rank-1", "rank"), -1);
  EXPECT_EQ(NumberAfter("proc3", "rank"), -1);
}

TEST(SafeFileName, StaysInsideTheFolderAndBelowTheLimit) {
  EXPECT_EQ(SafeFileName("a_b", ".pt"), "a_b.pt");
  EXPECT_EQ(SafeFileName("../../etc/passwd", ".pt"), "2bef2c0bbbdefdfa_.._.._etc_passwd.pt");
  EXPECT_NE(SafeFileName("a/b", ".pt"), SafeFileName("a\nb", ".pt"));
  const std::string a = SafeFileName(std::string(400, 'a') + "x", ".pt"),
                    b = SafeFileName(std::string(401, 'a') + "x", ".pt");
  EXPECT_EQ(a.size(), 220u);  // leaves room for the suffix of a temporary file
  EXPECT_NE(a, b);
  EXPECT_TRUE(a.ends_with("x.pt"));
  std::string letters;
  for (int i = 0; i < 200; ++i) letters += "\xE5\xB1\x82";
  for (const char* tail : {"", "x", "xx"}) {
    const std::string name = SafeFileName(letters + tail, ".pt");
    EXPECT_EQ(name.substr(16, 2), "_\xE5") << "begins with a whole character";
  }
}

TEST(NamesTest, WrappersAreTakenAwayFromNamesOfModules) {
  const std::pair<const char*, const char*> cases[] = {
      {"module.fc.weight", "fc.weight"},
      {"_orig_mod.module.fc.weight", "fc.weight"},
      {"layers.0._fsdp_wrapped_module.mlp._checkpoint_wrapped_module.up.weight",
       "layers.0.mlp.up.weight"},
      {"Module.module.layers.0._orig_mod.fc.Linear", "Module.layers.0.fc.Linear"},
      {"Module.0.fc.Linear", "Module.0.fc.Linear"},
      {"encoder.module.weight", "encoder.module.weight"},  // not in front: the program's own name
      {"module.weight", "weight"},
      {"_orig_mod", "_orig_mod"},
      {"Functional.linear", "Functional.linear"},
      {"Tensor.__add__", "Tensor.__add__"},
      {"", ""},
  };
  std::string room;
  for (const auto& [name, expected] : cases) EXPECT_EQ(WithoutWrappers(name, &room), expected);
}

}  // namespace
}  // namespace msprobe::dump
