// Reads tests/data/pt/expected.txt, the tensors that torch reads in the files of that folder; and
// helpers with which the tests of file formats write files.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/tensor_file.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::formats {

struct GoldenTensor {
  std::string file;  // path
  std::string name;  // inside the file
  std::string dtype, shape;
  bool requires_grad = false, is_parameter = false;
  std::string crc;  // CRC-32 of the elements in logical order
};

inline std::string DataPath(const std::string& name) {
  return std::string(MSPROBE_TEST_DATA) + "/" + name;
}

inline std::vector<GoldenTensor> GoldenTensors(const std::string& suffix) {
  std::vector<GoldenTensor> tensors;
  std::ifstream in(DataPath("pt/expected.txt"));
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string_view> cells = Split(line, '\t');
    if (cells.size() != 6 || !cells[0].ends_with(suffix)) continue;
    tensors.push_back({.file = DataPath(suffix.substr(1) + "/" + std::string(cells[0])),
                       .name = std::string(cells[1]),
                       .dtype = std::string(cells[2]),
                       .shape = std::string(cells[3]),
                       .requires_grad = cells[4][0] == '1',
                       .is_parameter = cells[4][2] == '1',
                       .crc = std::string(cells[5])});
  }
  EXPECT_FALSE(tensors.empty()) << "tests/data/pt/expected.txt";
  return tensors;
}

// The golden files with a suffix, each once.
inline std::vector<std::string> GoldenFiles(const std::string& suffix) {
  std::vector<std::string> files;
  for (const GoldenTensor& tensor : GoldenTensors(suffix)) {
    if (files.empty() || files.back() != tensor.file) files.push_back(tensor.file);
  }
  return files;
}

inline std::string Elements(const TensorView& view) {
  std::string bytes(static_cast<size_t>(view.numel()) * DTypeSize(view.dtype), '\0');
  CopyContiguous(view, bytes.data());
  return bytes;
}

inline std::string ElementsCrc(const TensorView& view) {
  std::string text;
  AppendHex(&text, Crc32(Elements(view)), 8);
  return text;
}

// An archive of these entries.
inline std::string Archive(const std::vector<std::pair<std::string, std::string>>& entries) {
  ZipComposer zip;
  for (const auto& [name, content] : entries) zip.Add(name, content);
  zip.Finish();
  return zip.Take();
}

// A folder of the running test, the same at each call; removed when the program ends.
inline std::string TestFolder() {
  static const TemporaryFolder root;
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  std::string folder = root.path() + "/" + info.test_suite_name() + "." + info.name();
  EXPECT_TRUE(MakeDirectories(folder).ok());
  return folder;
}

// No half-written files: the folder has exactly these names, and no temporary file.
inline void ExpectFolderHolds(const std::string& folder, const std::vector<std::string>& names) {
  Result<std::vector<std::string>> found = ListDirectory(folder);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, names);
}

}  // namespace msprobe::formats
