#include "engine/compare/table/advisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/text.h"
#include "engine/compare/table/generation_rules.h"

namespace msprobe::compare {
namespace {

// Operations whose results depend on the order in which threads add numbers.
constexpr std::array<std::string_view, 6> kOrderDependent = {"conv2d",   "conv3d",     "matmul",
                                                             "nll_loss", "layer_norm", "lstm"};

bool Fails(const Comparison& c, const TableFormat& table, size_t row) {
  if (c.rows[row].target < 0) return false;
  const GenerationVerdict* v = table.GenerationVerdictOf(row);
  if (v == nullptr) return table.ColorOf(row) == formats::RowColor::kRed;
  return v->word == GenerationWord::kNo || v->word == GenerationWord::kDifferent ||
         v->word == GenerationWord::kWarning;
}

std::string_view Advice(const Leaf& leaf, const Record& record) {
  const std::vector<std::string_view> parts = Split(record.api, '.');
  const std::string_view operation = parts.size() > 1 ? parts[1] : "";
  const bool output = leaf.slot == Slot::kOutput;
  if (output && std::find(kOrderDependent.begin(), kOrderDependent.end(), operation) !=
                    kOrderDependent.end()) {
    return "this operation may add up in another order on each run: compare again with "
           "seed_all(mode=True), which makes it deterministic";
  }
  if (leaf.slot == Slot::kParameterGrad || record.direction == Direction::kParameterGrad) {
    return "the backward call of this module makes a wrong gradient: look at its computation";
  }
  if (record.direction == Direction::kBackward) {
    return output
               ? "the backward call makes it wrong: look at its computation"
               : "the gradient is wrong before this call: look at the values of the forward pass";
  }
  return output ? "the call makes it wrong: look at its computation"
                : "the value is wrong before the call: look at where the program makes it (the "
                  "data, a call that writes into its input, overwritten memory)";
}

}  // namespace

std::string AdvisorText(const Comparison& c, const TableFormat& table, Generation generation) {
  // ptdbg_ascend counts lines of the file from 1, and the header is line 1; the others count rows.
  const size_t first_line = generation == Generation::kPtdbg ? 2 : 0;
  for (size_t line = 0; line < table.written_rows(); ++line) {  // what fails is written
    const size_t row = table.WrittenRow(line);
    if (!Fails(c, table, row)) continue;
    const Leaf& leaf = c.target.leaves[c.rows[row].target];
    return fmt::format("Line: {}\nSuspect Nodes: {}\nExpert Advice: {}\n", first_line + line,
                       leaf.name, Advice(leaf, c.target.records[leaf.record]));
  }
  return "Line: NA\nSuspect Nodes: NA\nExpert Advice: All data in comparison result meets the "
         "accuracy requirements.\n";
}

}  // namespace msprobe::compare
