#include "engine/accuracy/checked_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::accuracy {
namespace {

constexpr std::string_view kWhere = "a worker's answer";

bool ReadText(formats::JsonCursor* json, std::string* out) {
  formats::JsonText text;
  if (!json->String(&text)) return false;
  out->clear();
  formats::AppendJsonText(out, text);
  return true;
}

bool ReadVerdictName(formats::JsonCursor* json, Verdict* verdict) {
  std::string name;
  if (!ReadText(json, &name)) return false;
  const auto at = std::find(kVerdictNames.begin(), kVerdictNames.end(), name);
  if (at == kVerdictNames.end()) return json->Fail("a verdict"_t);
  *verdict = static_cast<Verdict>(at - kVerdictNames.begin());
  return true;
}

bool ReadRowsOfCall(formats::JsonCursor* json, std::vector<DetailsRow>* rows) {
  json->BeginArray();
  while (json->NextItem()) {
    DetailsRow& row = rows->emplace_back();
    json->BeginArray();
    size_t cells = 0;
    for (std::string cell; json->NextItem() && ReadText(json, &cell); ++cells) {
      if (cells == row.size()) return json->Fail("no more cells"_t);
      row[cells] = std::move(cell);
    }
    if (!json->failed() && cells != row.size()) return json->Fail("one cell for each column"_t);
  }
  return !json->failed();
}

}  // namespace

std::string ToLine(const CheckedCall& call) {
  std::string line = "[";
  const auto separate = [&] {
    if (line.back() != '[') line += ',';
  };
  const auto add = [&](std::string_view text) {
    separate();
    AppendJsonString(&line, text);
  };
  add(call.name);
  add(VerdictName(call.forward));
  add(VerdictName(call.backward));
  add(call.message);
  for (const std::vector<DetailsRow>* rows : {&call.forward_rows, &call.backward_rows}) {
    separate();
    line += '[';
    for (const DetailsRow& row : *rows) {
      separate();
      line += '[';
      for (const std::string& cell : row) add(cell);
      line += ']';
    }
    line += ']';
  }
  return line += ']';
}

Result<CheckedCall> CheckedCallFromLine(std::string_view line) {
  formats::JsonCursor json(line);
  CheckedCall call;
  json.BeginArray();
  const bool whole = json.NextItem() && ReadText(&json, &call.name) && json.NextItem() &&
                     ReadVerdictName(&json, &call.forward) && json.NextItem() &&
                     ReadVerdictName(&json, &call.backward) && json.NextItem() &&
                     ReadText(&json, &call.message) && json.NextItem() &&
                     ReadRowsOfCall(&json, &call.forward_rows) && json.NextItem() &&
                     ReadRowsOfCall(&json, &call.backward_rows) && !json.NextItem();
  if (json.failed()) return json.Error(kWhere);
  if (!whole) return InvalidDump(kWhere).Expected("six values"_t).Found("fewer or more"_t);
  return call;
}

}  // namespace msprobe::accuracy
