// Reads any bytes as the table that grad_compare wrote, of one rank and of all ranks, and draws
// what can be read as a page.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/gradients/written_comparison.h"
#include "engine/report_page/gradient_page.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

FUZZ_TARGET(similarities) {
  static msprobe::MemoryFolder folder;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  folder.Set("similarities.csv", all);
  folder.Set("rank0/similarities.csv", all);
  folder.Set("rank1/similarities.csv", all.substr(0, size / 2));
  for (const std::string& path : {folder.path(), folder.path() + "/similarities.csv"}) {
    const auto read = msprobe::gradients::ReadWrittenComparison(path);
    if (!read.ok()) continue;  // a damaged table
    const msprobe::gradients::SimilarityTable& table = read->all;
    for (size_t row = 0; row < table.parameters().size(); ++row) {
      for (size_t step = 0; step < table.steps().size(); ++step) {
        const double share = table.At(row, step).share();
        if (!(share >= 0 && share <= 1)) std::abort();  // NaN, too
      }
    }
    // The first piece is the page without its data: its script is the only one.
    const msprobe::report_page::PageText page =
        msprobe::report_page::GradientPage(*read, "target", "golden");
    if (page[0].find("<script") != page[0].rfind("<script")) std::abort();
  }
  return 0;
}
