// Writes tensor files for tests, in the safetensors format, whose header is plain text.
//
//   folder.Write("model.safetensors", Safetensors({{"w", {2, 2}, {1, 2, 3, 4}}}));
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::checkpoint::test {

struct WrittenTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A file: length of the header in eight bytes, little-endian; header; bytes of the tensors.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  return length + std::string(header) + std::string(data);
}

inline std::string Safetensors(const std::vector<WrittenTensor>& tensors) {
  std::string header, data;
  for (const WrittenTensor& tensor : tensors) {
    const size_t bytes = tensor.values.size() * sizeof(float);
    header +=
        fmt::format("{}\"{}\": {{\"dtype\": \"F32\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
                    header.empty() ? "" : ", ", tensor.name, fmt::join(tensor.shape, ", "),
                    data.size(), data.size() + bytes);
    data.append(reinterpret_cast<const char*>(tensor.values.data()), bytes);
  }
  header = "{" + header + "}";
  header.append((8 - header.size() % 8) % 8, ' ');  // elements are aligned in the file
  return SafetensorsBytes(header, data);
}

}  // namespace msprobe::checkpoint::test
