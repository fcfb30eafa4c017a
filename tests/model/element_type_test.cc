#include "engine/model/element_type.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace msprobe {
namespace {

TEST(ElementType, OfEachSpelling) {
  for (const char* text : {"torch.float32", "Float32", "float32", "FLOAT32"}) {
    const ElementType type = text;
    EXPECT_EQ(type.dtype(), DType::kFloat32) << text;
    EXPECT_EQ(type.python(), PythonNumber::kNone) << text;
    EXPECT_EQ(type, text);
  }
  EXPECT_EQ(ElementType("BFloat16").dtype(), DType::kBFloat16);
  EXPECT_EQ(ElementType("torch.bool").dtype(), DType::kBool);
  EXPECT_EQ(ElementType("Bool").dtype(), DType::kBool);
  EXPECT_EQ(ElementType("<class 'int'>").python(), PythonNumber::kInt);
  EXPECT_EQ(ElementType("int").python(), PythonNumber::kInt);
  EXPECT_EQ(ElementType("<class 'float'>").python(), PythonNumber::kFloat);
  EXPECT_EQ(ElementType("<class 'bool'>").python(), PythonNumber::kBool);
  EXPECT_EQ(ElementType("<class 'int'>").dtype(), std::nullopt);
}

TEST(ElementType, NameOfAClass) {
  EXPECT_EQ(ElementType("<class 'int'>").class_name(), "int");
  EXPECT_TRUE(ElementType("<class 'int'>").names_class());
  for (const char* text : {"int", "torch.float32", "<class 'int'", "<class '>", "", "N/A"}) {
    EXPECT_EQ(ElementType(text).class_name(), text);
    EXPECT_FALSE(ElementType(text).names_class()) << text;
  }
}

TEST(ElementType, EachDTypeIsReadBackFromItsSpelling) {
  std::set<int> indices;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const ElementType type = dtype;
    EXPECT_EQ(type, DTypeTorchName(dtype));
    EXPECT_EQ(type.dtype(), dtype);
    EXPECT_EQ(ElementType(DTypeShortName(dtype)).dtype(), dtype);
    EXPECT_EQ(type.index(), i);
    indices.insert(type.index());
  }
  for (const char* text : {"<class 'bool'>", "<class 'int'>", "<class 'float'>", "slice"})
    indices.insert(ElementType(text).index());
  EXPECT_EQ(indices.size(), static_cast<size_t>(ElementType::kIndexCount));
  EXPECT_EQ(*indices.rbegin(), ElementType::kUnknown);
}

TEST(ElementType, OfNoKnownTypeKeepsItsText) {
  for (const std::string text :
       {"slice", "N/A", "<class 'str'>", "torch.Size", "torch.", "<class '", "<class '>", "'>",
        "<class 'float32'>", "float3", "float322"}) {
    const ElementType type = text;
    EXPECT_FALSE(type.known()) << text;
    EXPECT_EQ(type.dtype(), std::nullopt) << text;
    EXPECT_EQ(type.python(), PythonNumber::kNone) << text;
    EXPECT_EQ(type.view(), text);
    EXPECT_FALSE(type.empty());
  }
  EXPECT_TRUE(ElementType().empty());
  EXPECT_TRUE(ElementType("").empty());
  EXPECT_EQ(ElementType(""), ElementType());
  EXPECT_FALSE(ElementType().known());
  EXPECT_EQ(ElementType().view(), "");
}

TEST(ElementType, OfLongTextsKeepsThemWhole) {
  for (const size_t size : {254u, 255u, 256u, 100000u}) {
    const std::string text(size, 'x'), other = text + "y";
    const ElementType type = text;
    EXPECT_EQ(type.view(), text) << size;
    EXPECT_FALSE(type == ElementType(other)) << size;
    EXPECT_EQ(type, ElementType(std::string_view(other).substr(0, size))) << size;
  }
}

TEST(ElementType, EqualIsSpelledAlike) {
  const std::string a = "torch.int8", b = "torch.int8";
  EXPECT_EQ(ElementType(a), ElementType(b));
  EXPECT_FALSE(ElementType("Int8") == ElementType(a));
  EXPECT_FALSE(ElementType("torch.int8") == ElementType("torch.int16"));
}

}  // namespace
}  // namespace msprobe
