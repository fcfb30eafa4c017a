#include "engine/anomaly/anomaly_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/display_width.h"
#include "engine/base/messages/language.h"
#include "engine/base/text.h"

namespace msprobe::anomaly {
namespace {

constexpr size_t kMostLines = 5;  // of exchanges and of other ranks, on a terminal

// Appends `items`, each as `append` writes it, as a JSON list.
template <typename Items, typename Append>
void AppendList(std::string* out, const Items& items, const Append& append) {
  *out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) *out += ", ";
    first = false;
    append(item);
  }
  *out += ']';
}

void AppendTexts(std::string* out, std::span<const std::string> texts) {
  AppendList(out, texts, [&](const std::string& text) { AppendJsonString(out, text); });
}

void AppendRanks(std::string* out, std::span<const int32_t> ranks) {
  AppendList(out, ranks, [&](int32_t rank) { AppendInteger(out, rank); });
}

void AppendMember(std::string* out, std::string_view key, std::string_view text) {
  *out += fmt::format(", \"{}\": ", key);
  AppendJsonString(out, text);
}

void AppendCount(std::string* out, std::string_view key, int64_t count) {
  *out += count < 0 ? fmt::format(", \"{}\": null", key) : fmt::format(", \"{}\": {}", key, count);
}

// What holds of a value of each call: {"name": "output.0", "kinds": "NaN", "nan": 3, ...}.
void AppendValues(std::string* out, const RankAnomaly& rank) {
  AppendList(out, rank.values, [&](const WrongValue& value) {
    *out += "{\"name\": ";
    AppendJsonString(out, value.name);
    AppendMember(out, "kinds", KindsWord(value.kinds).English());
    AppendCount(out, "nan", value.nan);
    AppendCount(out, "infinite", value.infinite);
    AppendCount(out, "elements", value.elements);
    AppendMember(out, "text", value.text.English());
    *out += '}';
  });
}

std::string_view KindOf(const FirstAnomalies& found, size_t origin) {
  return found.found.origins[origin].in_exchange   ? "exchange"
         : found.RankOf(origin).trace.from_outside ? "outside"
                                                   : "made";
}

void AppendOrigin(std::string* out, const FirstAnomalies& found, size_t origin) {
  const RankAnomaly& rank = found.RankOf(origin);
  *out += "{\"rank\": ";
  AppendJsonString(out, rank.label.English());
  AppendMember(out, "op_name", rank.name);
  AppendMember(out, "kind", KindOf(found, origin));
  AppendMember(out, "source_line", rank.source_line);
  *out += ", \"values\": ";
  AppendValues(out, rank);
  AppendMember(out, "why", DescribeWhy(found, origin).English());
  AppendMember(out, "note", rank.note.English());
  *out += ", \"reached\": ";
  AppendRanks(out, found.found.origins[origin].reached);
  *out += '}';
}

// The origins that are not the answer.
std::vector<size_t> Others(const FirstAnomalies& found) {
  std::vector<size_t> others;
  for (size_t i = 0; i < found.found.origins.size(); ++i) {
    if (std::find(found.answer.begin(), found.answer.end(), i) == found.answer.end())
      others.push_back(i);
  }
  return others;
}

ValueKinds KindsMade(const RankAnomaly& rank) {
  ValueKinds kinds, outputs;
  for (const WrongValue& value : rank.values) {
    kinds.Add(value.kinds);
    if (value.is_output) outputs.Add(value.kinds);
  }
  return outputs.any() ? outputs : kinds;
}

constexpr int kLabelColumns = 10;

void AppendLine(std::string* out, const Message& label, const Message& text) {
  const std::string shown = label.Shown();
  const int missing = std::max(0, kLabelColumns - DisplayWidth(shown));
  *out += fmt::format("  {}{}  {}\n", shown, std::string(static_cast<size_t>(missing), ' '),
                      text.Shown());
}

void AppendOriginLines(std::string* out, const FirstAnomalies& found, size_t origin) {
  const RankAnomaly& rank = found.RankOf(origin);
  AppendLine(out, "rank"_t, rank.label);
  AppendLine(out, "operation"_t, "{}"_t(rank.name));
  if (!rank.source_line.empty()) AppendLine(out, "source"_t, "{}"_t(rank.source_line));
  if (rank.source_line.empty() && !rank.parents.empty())
    AppendLine(out, "module"_t, "{}"_t(rank.parents.back()));
  for (const WrongValue& value : rank.values)
    AppendLine(out, value.label, "{} ({})"_t(value.text, value.type));
  AppendLine(out, "why first"_t, DescribeWhy(found, origin));
  if (!rank.note.empty()) AppendLine(out, "note"_t, rank.note);
}

}  // namespace

std::string AnomalyFile(const FirstAnomalies& found) {
  std::string out = "{";
  for (const size_t origin : found.answer) {
    const RankAnomaly& rank = found.RankOf(origin);
    out += out.size() > 1 ? ",\n " : "";
    AppendJsonString(&out, rank.key);
    out += ": [{\"op_name\": ";
    AppendJsonString(&out, rank.name);
    out += ", \"data_info\": " + (rank.entry.empty() ? "{}" : rank.entry);
    out += ", \"construct_info\": ";
    AppendTexts(&out, rank.parents);
    out += ", \"stack_info\": ";
    AppendTexts(&out, rank.stack);
    AppendMember(&out, "source_line", rank.source_line);
    out += ", \"values\": ";
    AppendValues(&out, rank);
    AppendMember(&out, "why", DescribeWhy(found, origin).English());
    out += "}]";
  }
  return out + "}\n";
}

std::string AnomalyJson(const FirstAnomalies& found, const AnomalySearch& search,
                        std::span<const Message> notes, const std::string& file) {
  const std::vector<size_t> others = Others(found);
  std::string out = fmt::format("{{\"verdict\": \"{}\"", !found.answer.empty() ? "found"
                                                         : search.complete     ? "none"
                                                                               : "unknown");
  AppendMember(&out, "phase", PhaseName(found.phase));
  out += ", \"first\": ";
  AppendList(&out, found.answer, [&](size_t i) { AppendOrigin(&out, found, i); });
  out += ", \"others\": ";
  AppendList(&out, others, [&](size_t i) { AppendOrigin(&out, found, i); });
  out += ", \"travelled\": ";
  std::vector<const compare::RankHop*> hops;
  for (const compare::RankHop& hop : found.found.hops) {
    if (!hop.from.empty()) hops.push_back(&hop);
  }
  AppendList(&out, hops, [&](const compare::RankHop* hop) {
    out += "{\"op_name\": ";
    AppendJsonString(&out, hop->name);
    AppendMember(&out, "source_line", hop->source_line);
    out += ", \"from\": ";
    AppendRanks(&out, hop->from);
    out += ", \"to\": ";
    AppendRanks(&out, hop->to);
    out += '}';
  });
  out +=
      fmt::format(", \"steps\": {}, \"ranks\": {}, \"notes\": ", search.steps, found.ranks.size());
  AppendList(&out, notes, [&](const Message& note) { AppendJsonString(&out, note.English()); });
  AppendMember(&out, "file", file);
  return out + "}\n";
}

std::string AnomalyText(const FirstAnomalies& found, const AnomalySearch& search) {
  const bool none = found.answer.empty();
  Message steps;
  if (search.all_steps != 1) {
    steps = none ? "{} steps"_t(search.all_steps)
                 : "{} of {} steps, up to the first that has one"_t(search.steps, search.all_steps);
  }
  const size_t ranks = found.ranks.size();
  const Message counts =
      Message::Joined({ranks == 1 ? "1 rank"_t : "{} ranks"_t(ranks),
                       search.entries == 1 ? "1 entry"_t : "{} entries"_t(search.entries)},
                      ", ");
  const Message looked = Message::Joined({steps, counts}, none ? ", " : "; ");
  const Message unread = search.complete ? Message() : "not every rank could be read"_t;
  if (none) {
    return Message::Joined({"msprobe {}: no NaN or infinity begins in what was read ({})"_t(
                                search.verb, looked),
                            unread},
                           "; ")
               .Shown() +
           '\n';
  }
  const RankAnomaly& rank = found.RankOf(found.answer[0]);
  const ValueKinds kinds = KindsMade(rank);
  const auto headline = kinds.nan && kinds.infinite() ? "msprobe {}: {} begin on {}, {}"_t
                                                      : "msprobe {}: {} begins on {}, {}"_t;
  std::string out = headline(search.verb, KindsWord(kinds), rank.label, rank.name).Shown() + '\n';
  for (size_t i = 0; i < found.answer.size(); ++i) {
    if (i == kMostLines) {
      AppendLine(&out, {}, "and on {} more"_t(found.answer.size() - i));
      break;
    }
    if (i > 0) out += '\n';
    AppendOriginLines(&out, found, found.answer[i]);
  }
  const std::vector<Message> travel = DescribeTravel(found);
  for (size_t i = 0; i < travel.size() && i < kMostLines; ++i)
    AppendLine(&out, i == 0 ? "spread"_t : Message(), travel[i]);
  if (travel.size() > kMostLines)
    AppendLine(&out, {}, "and {} more exchanges"_t(travel.size() - kMostLines));
  const std::vector<size_t> others = Others(found);
  for (size_t i = 0; i < others.size() && i < kMostLines; ++i) {
    const RankAnomaly& other = found.RankOf(others[i]);
    AppendLine(&out, i == 0 ? "later also"_t : Message(), "{}, {}"_t(other.label, other.name));
  }
  AppendLine(&out, "read"_t, Message::Joined({looked, unread}, "; "));
  return out;
}

}  // namespace msprobe::anomaly
