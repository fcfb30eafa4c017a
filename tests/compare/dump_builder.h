// Builds dumps by hand.
//
//   DumpBuilder b;
//   b.Call("Functional.linear.0.forward")
//       .In(Numbers(1, -1, 0, 5))
//       .Out(Numbers(2, -2, 0, 7))
//       .At("train.py", 10, "y = f(x)");
//   Dump dump = b.Take();
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/compare.h"
#include "engine/compare/proofs/words.h"
#include "engine/model/table.h"
#include "tests/compare/settled.h"

namespace msprobe::compare::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One tensor's numbers, and the texts of its leaf.
struct Tensor {
  double max = 1, min = -1, mean = 0, norm = 2;
  std::string shape = "[2, 3]", dtype = "torch.float32";
  std::string checksum, fingerprint, data_name;
  bool stats = true;
  Tensor& Shape(std::string text) { return shape = std::move(text), *this; }
  Tensor& DType(std::string text) { return dtype = std::move(text), *this; }
  Tensor& Checksum(std::string text) { return checksum = std::move(text), *this; }
  Tensor& Print(std::string text) { return fingerprint = std::move(text), *this; }
  Tensor& Data(std::string text) { return data_name = std::move(text), *this; }
  Tensor& NoStats() { return stats = false, *this; }
};
inline Tensor Numbers(double max, double min, double mean, double norm) {
  Tensor t;
  t.max = max, t.min = min, t.mean = mean, t.norm = norm;
  return t;
}
// The tensor with every number changed by the relative error `by`.
inline Tensor Scaled(Tensor t, double by) {
  t.max *= 1 + by, t.min *= 1 + by, t.mean *= 1 + by, t.norm *= 1 + by;
  return t;
}

class DumpBuilder {
 public:
  DumpBuilder() { dump_.path = "dump.json", dump_.folder = ".", dump_.level = Level::kMix; }

  // Splits "Functional.linear.0.forward" and "Module.fc.Linear.forward.0" as the readers do.
  DumpBuilder& Call(std::string_view name) {
    Record r;
    r.name = Text(name);
    r.is_module = name.starts_with("Module.") || name.starts_with("Cell.");
    std::vector<std::string_view> parts = Split(r.name, '.');
    const auto number = [](std::string_view s) { return std::stoll(std::string(s)); };
    std::string_view direction;
    if (r.is_module) {
      r.call = number(parts.back());
      direction = parts[parts.size() - 2];
      r.api = r.name.substr(0, r.name.view().rfind(direction) - 1);
    } else {
      direction = parts.back();
      r.call = number(parts[parts.size() - 2]);
      r.api =
          r.name.substr(0, r.name.size() - direction.size() - parts[parts.size() - 2].size() - 2);
    }
    r.direction = direction == "forward"    ? Direction::kForward
                  : direction == "backward" ? Direction::kBackward
                                            : Direction::kParameterGrad;
    r.first_leaf = static_cast<uint32_t>(dump_.leaves.size());
    dump_.records.push_back(r);
    inputs_ = outputs_ = 0;
    return *this;
  }
  DumpBuilder& In(const Tensor& t) {
    return Add(t, Slot::kInput, ".input." + std::to_string(inputs_++));
  }
  DumpBuilder& Kwarg(std::string name, const Tensor& t) {
    return Add(t, Slot::kKwarg, ".input." + name);
  }
  DumpBuilder& Out(const Tensor& t) {
    return Add(t, Slot::kOutput, ".output." + std::to_string(outputs_++));
  }
  DumpBuilder& OutAt(std::string place, const Tensor& t) {
    return Add(t, Slot::kOutput, ".output." + place);
  }
  // What the call changes and does not return: "input.1", "buffers.running_mean".
  DumpBuilder& Changed(std::string place, const Tensor& t) {
    return Add(t, Slot::kOutput, ".changed." + place);
  }
  DumpBuilder& Parameter(std::string name, const Tensor& t) {
    return Add(t, Slot::kParameter, ".parameters." + name);
  }
  DumpBuilder& Grad(std::string name, const Tensor& t) {
    return Add(t, Slot::kParameterGrad, "." + name);
  }
  DumpBuilder& Value(std::string name, std::string type, std::string value) {
    Leaf leaf = Start(Slot::kKwarg, ".input." + name);
    leaf.kind = LeafKind::kScalar;
    leaf.type = Text(type);
    leaf.dtype = Text("<class '" + type + "'>");
    leaf.shape = Shape::Scalar();
    leaf.value = Text(value);
    return Finish(leaf);
  }
  DumpBuilder& Null(Slot slot = Slot::kInput) {
    const bool goes_in = slot == Slot::kInput;
    Leaf leaf = Start(slot, (goes_in ? ".input." : ".output.") +
                                std::to_string(goes_in ? inputs_++ : outputs_++));
    leaf.kind = LeafKind::kNone;
    return Finish(leaf);
  }
  // The module in which the last call of an API ran, where no call of it is recorded (level L1).
  DumpBuilder& InModule(std::string_view name) {
    return dump_.records.back().module = Text(name), *this;
  }
  DumpBuilder& Parent(std::string_view name) {
    return dump_.records.back().parent = Text(name), *this;
  }
  DumpBuilder& At(std::string_view file, int line, std::string_view source,
                  std::string_view function = "forward") {
    dump_.records.back().stack = static_cast<int32_t>(dump_.stacks.size());
    dump_.stacks.push_back({Text(Frame(file, line, source, function))});
    return *this;
  }
  // The line that called the last one given.
  DumpBuilder& From(std::string_view file, int line, std::string_view source,
                    std::string_view function) {
    dump_.stacks.back().push_back(Text(Frame(file, line, source, function)));
    return *this;
  }
  Dump& dump() { return dump_; }
  // The last leaf, for tests that damage it.
  Leaf& last() { return dump_.leaves.back(); }
  Dump Take() { return std::move(dump_); }

 private:
  static std::string Frame(std::string_view file, int line, std::string_view source,
                           std::string_view function) {
    return "File " + std::string(file) + ", line " + std::to_string(line) + ", in " +
           std::string(function) + ", \n " + std::string(source);
  }
  std::string_view Text(std::string_view text) { return dump_.arena.emplace_back(text); }
  std::string_view Number(double value) {
    std::string text;
    AppendPythonFloat(&text, value);
    return Text(text);
  }
  Leaf Start(Slot slot, const std::string& suffix) {
    Leaf leaf;
    leaf.record = static_cast<uint32_t>(dump_.records.size() - 1);
    leaf.slot = slot;
    leaf.name = Text(std::string(dump_.records.back().name) + suffix);
    return leaf;
  }
  DumpBuilder& Finish(const Leaf& leaf) {
    dump_.leaves.push_back(leaf);
    ++dump_.records.back().leaf_count;
    return *this;
  }
  DumpBuilder& Add(const Tensor& t, Slot slot, const std::string& suffix) {
    Leaf leaf = Start(slot, suffix);
    leaf.type = "torch.Tensor";
    leaf.dtype = Text(t.dtype);
    leaf.shape = dump_.shapes.Of(t.shape);
    leaf.requires_grad = "True";
    leaf.checksum = Text(t.checksum);
    leaf.fingerprint = Text(t.fingerprint);
    leaf.data_name = Text(t.data_name);
    dump_.has_checksums = dump_.has_checksums || !t.checksum.empty();
    if (t.stats) {
      leaf.has_stats = true;
      leaf.max_value = t.max, leaf.min_value = t.min, leaf.mean_value = t.mean,
      leaf.norm_value = t.norm;
      leaf.max = Number(t.max), leaf.min = Number(t.min), leaf.mean = Number(t.mean),
      leaf.norm = Number(t.norm);
    }
    return Finish(leaf);
  }

  Dump dump_;
  int inputs_ = 0, outputs_ = 0;
};

// A dump of one call with this input, or this output, alone.
inline Dump OneInput(const Tensor& t) {
  return DumpBuilder().Call("Torch.f.0.forward").In(t).Take();
}
inline Dump OneOutput(const Tensor& t) {
  return DumpBuilder().Call("Torch.f.0.forward").Out(t).Take();
}

// All proofs of the comparison must hold, and nothing may be left out of a round that would change
// it.
inline Comparison MustCompare(Dump target, Dump golden, CompareOptions options = {}) {
  const bool keeps = std::exchange(options.keep_proofs, true);
  Result<Comparison> result = Compare(std::move(target), std::move(golden), options);
  if (!result.ok()) {
    std::fputs(result.status().ToString().c_str(), stderr);
    std::abort();
  }
  Comparison& c = *result;
  EXPECT_EQ(RefusalOf(c), "");
  EXPECT_EQ(UnsettledOf(c), "");
  if (!keeps) c.decided->proofs = nullptr;
  return std::move(c);
}

}  // namespace msprobe::compare::test
