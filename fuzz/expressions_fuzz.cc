// Parses any text as each argument that has its own grammar (slices, --fail-on, lists of ranks),
// and as the name of an entry.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/table/fail_on.h"
#include "engine/dump/config/config_values.h"
#include "engine/model/names.h"
#include "engine/tensor/tensor_slice.h"
#include "fuzz/target.h"

namespace {

void Refused(const msprobe::Status& status) {
  if (status.code() != msprobe::ErrorCode::kInvalidArgument || status.message().empty())
    std::abort();
}

void Slice(std::string_view text) {
  static const std::array<float, 24> values{};
  static const std::array<int64_t, 3> shape = {2, 3, 4}, strides = {12, 4, 1};
  const msprobe::TensorView view{.data = values.data(),
                                 .dtype = msprobe::DType::kFloat32,
                                 .ndim = 3,
                                 .shape = shape.data(),
                                 .strides = strides.data()};
  const auto slice = msprobe::TensorSlice::Parse(text);
  if (!slice.ok()) return Refused(slice.status());
  const auto part = slice->Apply(view);
  if (!part.ok()) return Refused(part.status());
  if (part->view().numel() > 24) std::abort();
  std::string out;
  msprobe::AppendElements(&out, part->view(), 10);
}

}  // namespace

FUZZ_TARGET(expressions) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Slice(text);
  const auto limits = msprobe::compare::ParseFailOn(text);
  if (!limits.ok()) Refused(limits.status());
  std::vector<int64_t> numbers;
  if (msprobe::dump::AppendNumberRange(text, &numbers) && numbers.empty()) std::abort();
  const msprobe::EntryName name = msprobe::ParseEntryName(text);
  if (name.api.size() > size || name.call < -1) std::abort();
  if (name.direction != msprobe::Direction::kNone && name.api.data() != text.data()) std::abort();
  return 0;
}
