#include "cli/outputs/explain_flag.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command_line/hyperlinks.h"
#include "engine/compare/explain/evidence.h"

namespace msprobe::cli {
namespace {

constexpr size_t kMostHops = 40;  // the first and the last half are shown

// "a/long/path/net.py:41 in forward: y = f(x)" in a line: the place stays, the code is cut.
std::string ShortSource(std::string_view source, size_t width) {
  const size_t space = std::min(source.find(' '), source.size());
  std::string place = CutPlace(source.substr(0, space), width);
  const std::string_view rest = source.substr(space);
  if (place.size() + rest.size() <= width) return place + std::string(rest);
  if (place.size() + 12 > width) return place;
  return place + std::string(rest.substr(0, width - place.size() - 3)) + "...";
}

}  // namespace

void ExplainFlag::Add(Flags& flags) {
  flags
      .Text(
          "--explain", &call_,
          "also show how the error came from the first divergence to this call: a name, a part of "
          "one, model.py:41, or loss"_t)
      .TypeName("CALL");
}

void ExplainFlag::Look(size_t pair, const compare::Comparison& comparison) {
  if (!given()) return;
  Found found;
  Result<int32_t> call = isolation::FindCall(comparison, call_);
  if (call.ok()) {
    found.name = compare::EntryName(comparison, *call);
    found.chain = isolation::ChainTo(comparison, *call);
  } else {
    found.status = call.status();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  found_[pair] = std::move(found);
}

Status ExplainFlag::Print(Console& out) {
  if (!given() || found_.empty()) return Status::Ok();
  const auto has_chain = [](const auto& item) { return !item.second.chain.hops.empty(); };
  auto best = std::find_if(found_.begin(), found_.end(), has_chain);
  if (best == found_.end()) {
    best = std::find_if(found_.begin(), found_.end(),
                        [](const auto& item) { return item.second.status.ok(); });
  }
  if (best == found_.end()) return found_.begin()->second.status;
  const isolation::ErrorChain& chain = best->second.chain;
  out.Write("\n");
  out.Tell("THE WAY TO {}"_t(best->second.name));
  const auto width = static_cast<size_t>(std::max(out.width(), 60)) - 6;
  const size_t half = kMostHops / 2;
  const size_t count = chain.hops.size();
  for (size_t i = 0; i < count; ++i) {
    if (count > kMostHops && i == half)
      out.Tell("  {}"_t("...  {} calls more"_t(count - kMostHops)));
    if (count > kMostHops && i >= half && i < count - half) continue;
    const isolation::ErrorHop& hop = chain.hops[i];
    const Message by = i == 0             ? Message()
                       : hop.from.empty() ? "  ({})"_t("saved by its forward call"_t)
                                          : "  ({})"_t("by {}"_t(hop.from));
    out.Print("  {:>3}  {}{}\n", i + 1, CutPlace(MakePrintable(hop.name), width),
              MakePrintable(by.Shown()));
    if (!hop.source_line.empty())
      out.Print("       {}\n", ShortSource(MakePrintable(hop.source_line), width));
    if (!hop.error.empty()) out.Tell("       {}"_t(hop.error));
  }
  if (!chain.note.empty()) out.Tell("  {}"_t("note {}"_t(chain.note)));
  return Status::Ok();
}

}  // namespace msprobe::cli
