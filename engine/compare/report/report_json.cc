#include "engine/compare/report/report_json.h"

#include <algorithm>
#include <cmath>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/fix_hint.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/value_text.h"
#include "engine/compare/regions/regions.h"
#include "engine/model/gradients_before.h"

namespace msprobe::compare {
namespace {

// Writes one JSON document, indented by two blanks. Members are written in the order of the calls.
class JsonWriter {
 public:
  void Open(char bracket) {
    text_ += bracket;
    ++depth_;
    first_ = true;
  }
  void Close(char bracket) {
    --depth_;
    if (!first_) NewLine();
    text_ += bracket;
    first_ = false;
  }
  void Key(std::string_view key) {
    Element();
    AppendJsonString(&text_, key);
    text_ += ": ";
  }
  void Element() {
    if (!first_) text_ += ',';
    NewLine();
    first_ = false;
  }
  void Text(std::string_view value) { AppendJsonString(&text_, value); }
  // "" means that nothing was recorded: null.
  void TextOrNull(std::string_view value) { value.empty() ? Null() : Text(value); }
  void Integer(int64_t value) { AppendInteger(&text_, value); }
  void Number(double value) {
    if (std::isfinite(value)) {
      AppendPythonFloat(&text_, value);
    } else {
      text_ += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    }
  }
  // NaN means that the number does not apply: null.
  void NumberOrNull(double value) { std::isnan(value) ? Null() : Number(value); }
  void Raw(std::string_view json) { text_ += json; }
  void Bool(bool value) { text_ += value ? "true" : "false"; }
  void Null() { text_ += "null"; }
  std::string Take() { return std::move(text_) + "\n"; }

  void KeyText(std::string_view key, std::string_view value) { Key(key), Text(value); }
  void KeyTextOrNull(std::string_view key, std::string_view value) { Key(key), TextOrNull(value); }
  void KeyInteger(std::string_view key, int64_t value) { Key(key), Integer(value); }

 private:
  void NewLine() {
    text_ += '\n';
    text_.append(static_cast<size_t>(depth_) * 2, ' ');
  }

  std::string text_;
  int depth_ = 0;
  bool first_ = true;
};

class Report {
 public:
  Report(const Comparison& c, const Findings& found, size_t most)
      : c_(c), f_(found), summary_(Summarize(c)), most_(most) {}

  std::string Write() {
    w_.Open('{');
    w_.KeyText("schema", kJsonReportSchema);
    w_.KeyText("verdict", RunVerdictName(summary_.verdict));
    w_.Key("compared");
    w_.Open('{');
    w_.KeyInteger("values", summary_.compared);
    w_.KeyInteger("target", summary_.target_values);
    w_.KeyInteger("golden", summary_.golden_values);
    w_.Close('}');
    w_.KeyText("mode", ModeName(c_.mode));
    w_.Key("tolerance"), w_.Number(c_.tolerance);
    w_.KeyTextOrNull("exact", c_.exact.English());
    Side("target", c_.target);
    Side("golden", c_.golden);
    w_.Key("first_divergence");
    c_.first.pair < 0 ? w_.Null() : Divergence(c_.first);
    w_.Key("runners_up");
    w_.Open('[');
    for (const FirstDivergence& f : c_.runners_up) w_.Element(), Divergence(f);
    w_.Close(']');
    w_.Key("first_bits");
    c_.first_bits.pair < 0 ? w_.Null() : Bits(c_.first_bits);
    Regions();
    Counts();
    Names("unmatched", [&](int32_t p) { return !c_.pairs[p].matched() && !c_.IsCompiled(p); });
    Names("compiled", [&](int32_t p) { return c_.IsCompiled(p); });
    w_.Key("beginning");
    w_.Open('{');
    w_.KeyTextOrNull("note", c_.run_start.mistake.English());
    w_.KeyTextOrNull("weights", c_.run_start.weights.English());
    w_.KeyTextOrNull("data", c_.run_start.data.English());
    w_.KeyTextOrNull("settings", c_.run_start.settings.English());
    w_.Close('}');
    Sentences();
    w_.Key("not_observed");
    w_.Open('[');
    for (const Message& sentence : c_.not_observed) w_.Element(), w_.Text(sentence.English());
    w_.Close(']');
    w_.Close('}');
    return w_.Take();
  }

 private:
  void Side(std::string_view key, const Dump& dump) {
    w_.Key(key);
    w_.Open('{');
    w_.KeyText("path", dump.path);
    w_.KeyTextOrNull("dialect", dump.DialectName().English());
    w_.KeyText("framework", dump.framework);
    w_.Key("complete"), w_.Bool(dump.complete);
    w_.KeyInteger("calls", static_cast<int64_t>(dump.records.size()));
    w_.KeyInteger("rows", static_cast<int64_t>(dump.leaves.size()));
    w_.Close('}');
  }

  void Divergence(const FirstDivergence& f) {
    const RecordPair& pair = c_.pairs[f.pair];
    w_.Open('{');
    const auto name = [](const Dump& dump, int32_t index) -> std::string_view {
      if (index < 0) return "";
      const Record& record = dump.records[index];
      // Of a run in which nothing lay in .grad the dump has no such entry.
      return IsGradientsBefore(record.name) && record.leaf_count == 0 ? "" : record.name.view();
    };
    w_.KeyTextOrNull("target_name", name(c_.target, pair.target));
    w_.KeyTextOrNull("golden_name", name(c_.golden, pair.golden));
    w_.KeyText("class", ClassName(f.call_class));
    w_.Key("confidence"), w_.Number(std::round(f.confidence * 1000) / 1000);
    w_.KeyTextOrNull("module", f.module);
    w_.KeyTextOrNull("source_line", f.source_line);
    w_.KeyTextOrNull("caller_line", f.caller_line);
    w_.KeyTextOrNull("golden_line", f.golden_line);
    w_.KeyText("why", f.why.English());
    if (!f.ranks.empty()) {  // of a joined run
      w_.Key("ranks"), w_.Open('[');
      for (const int32_t rank : f.ranks) w_.Element(), w_.Integer(rank);
      w_.Close(']');
    }
    w_.KeyTextOrNull("advice", f.advice.English());
    Hint(FixHintOf(c_, f));
    w_.Key("worst");
    f.row < 0 ? w_.Null() : WorstRow(f.row);
    w_.Close('}');
  }

  void Hint(const FixHint& hint) {
    w_.Key("fix_hint");
    if (hint.kind == FixHint::Kind::kNone) return w_.Null();
    w_.Open('{');
    w_.KeyText("kind", FixKindName(hint.kind));
    w_.KeyText("text", hint.Text().English());
    w_.Key("changes");
    w_.Open('[');
    for (const FixHint::Change& change : hint.changes) {
      w_.Element();
      w_.Open('{');
      w_.KeyText("what", change.what.English());
      w_.KeyTextOrNull("target", change.target.English());
      w_.KeyTextOrNull("golden", change.golden.English());
      w_.Close('}');
    }
    w_.Close(']');
    w_.Close('}');
  }

  void Bits(const FirstBits& f) {
    const RecordPair& pair = c_.pairs[f.pair];
    w_.Open('{');
    w_.KeyText("target_name", c_.target.records[pair.target].name);
    w_.KeyText("golden_name", c_.golden.records[pair.golden].name);
    w_.KeyText("class", ClassName(c_.classes[f.pair]));
    w_.KeyTextOrNull("source_line", f.source_line);
    w_.KeyInteger("noise_between", f.noise_between);
    w_.Key("row"), WorstRow(f.row);
    w_.Close('}');
  }

  void WorstRow(int32_t index) {
    const Row& row = c_.rows[index];
    const Measure& m = c_.measures[index];
    const Leaf* t = row.target < 0 ? nullptr : &c_.target.leaves[row.target];
    const Leaf* g = row.golden < 0 ? nullptr : &c_.golden.leaves[row.golden];
    w_.Open('{');
    w_.KeyTextOrNull("target_row", t ? t->name : "");
    w_.KeyTextOrNull("golden_row", g ? g->name : "");
    w_.KeyTextOrNull("target_dtype", t ? t->dtype.view() : "");
    w_.KeyTextOrNull("golden_dtype", g ? g->dtype.view() : "");
    w_.KeyTextOrNull("target_shape", t ? t->shape.view() : "");
    w_.KeyTextOrNull("golden_shape", g ? g->shape.view() : "");
    w_.KeyText("verdict", VerdictName(m.verdict));
    w_.KeyTextOrNull("reason", ReasonText(m.reason).English());
    w_.KeyTextOrNull("note", c_.notes.empty() ? "" : c_.notes[index].English());
    w_.Key("severity"), w_.NumberOrNull(m.severity);
    NonFinite("target_nonfinite", t);
    NonFinite("golden_nonfinite", g);
    w_.Key("statistics");
    w_.Open('{');
    const auto statistic = [&](std::string_view name, std::string_view target,
                               std::string_view golden, double tv, double gv, double diff,
                               double relative) {
      w_.Key(name);
      w_.Open('{');
      Value("target", target, tv);
      Value("golden", golden, gv);
      w_.Key("diff"), w_.NumberOrNull(diff);
      w_.Key("relative"), w_.NumberOrNull(relative);
      w_.Close('}');
    };
    const Leaf none;
    const Leaf &a = t ? *t : none, &b = g ? *g : none;
    const Differences d = t && g ? DifferencesOf(a, b) : Differences();
    statistic("max", a.max, b.max, a.max_value, b.max_value, d.max_diff, d.max_rel);
    statistic("min", a.min, b.min, a.min_value, b.min_value, d.min_diff, d.min_rel);
    statistic("mean", a.mean, b.mean, a.mean_value, b.mean_value, d.mean_diff, d.mean_rel);
    statistic("norm", a.norm, b.norm, a.norm_value, b.norm_value, d.norm_diff, d.norm_rel);
    w_.Close('}');
    w_.Key("elements");
    m.tensor < 0 ? w_.Null() : Elements(c_.diffs[m.tensor], t->shape);
    w_.Close('}');
  }

  // How many elements are NaN or infinite; null when they were not counted.
  void NonFinite(std::string_view key, const Leaf* leaf) {
    w_.Key(key);
    if (leaf == nullptr || leaf->counts->nan < 0) return w_.Null();
    w_.Open('{');
    w_.KeyInteger("nan", leaf->counts->nan);
    w_.KeyInteger("pos_inf", leaf->counts->pos_inf);
    w_.KeyInteger("neg_inf", leaf->counts->neg_inf);
    w_.Close('}');
  }

  // A recorded statistic: null when it was not recorded.
  void Value(std::string_view key, std::string_view text, double value) {
    w_.Key(key);
    text.empty() || text == "null" ? w_.Null() : w_.Number(value);
  }

  void Elements(const kernels::Diff& d, Shape shape) {
    w_.Open('{');
    w_.KeyInteger("count", d.count);
    w_.KeyInteger("unequal", d.unequal);
    w_.KeyInteger("nonfinite_target", d.nonfinite_target);
    w_.KeyInteger("nonfinite_golden", d.nonfinite_golden);
    w_.KeyInteger("nonfinite_mismatch", d.nonfinite_mismatch);
    w_.KeyInteger("nonfinite_matched", d.nonfinite_matched);
    w_.Key("cosine"), w_.NumberOrNull(d.cosine);
    w_.Key("relative_l2"), w_.NumberOrNull(d.relative_l2);
    w_.Key("max_abs_error"), w_.NumberOrNull(d.max_abs_error);
    w_.Key("max_rel_error"), w_.NumberOrNull(d.max_rel_error);
    w_.Key("rmse"), w_.NumberOrNull(d.rmse);
    w_.Key("max_ulp"), d.max_ulp < 0 ? w_.Null() : w_.Integer(d.max_ulp);
    w_.Key("first_index"), d.first_index < 0 ? w_.Null() : w_.Integer(d.first_index);
    w_.Key("worst_index"), d.worst_index < 0 ? w_.Null() : w_.Integer(d.worst_index);
    w_.Key("first_position"), Position(d.first_index, shape);
    w_.Key("worst_position"), Position(d.worst_index, shape);
    w_.Key("worst_target"), d.worst_index < 0 ? w_.Null() : w_.Number(d.worst_target);
    w_.Key("worst_golden"), d.worst_index < 0 ? w_.Null() : w_.Number(d.worst_golden);
    w_.Close('}');
  }

  // The position of an index in the shape, as a list; null when there is none.
  void Position(int64_t index, Shape shape) {
    const std::string text = index < 0 ? "" : IndexText(index, shape);
    text.starts_with('[') ? w_.Raw(text) : w_.Null();
  }

  void Counts() {
    w_.Key("calls");
    w_.Open('{');
    for (int i = 0; i < 5; ++i)
      w_.KeyInteger(ClassName(static_cast<CallClass>(i)), summary_.calls[i]);
    w_.KeyInteger("aligned", summary_.aligned_calls);
    w_.KeyInteger("target_only", summary_.target_only_calls);
    w_.KeyInteger("golden_only", summary_.golden_only_calls);
    w_.KeyInteger("compared_nowhere", summary_.calls_compared_nowhere);
    w_.KeyInteger("rewritten",
                  std::count_if(c_.rewritten.begin(), c_.rewritten.end(), [](char kind) {
                    return kind != 0 && kind != Comparison::kCompiled;
                  }));
    w_.KeyInteger("compiled", summary_.compiled_calls);
    w_.Close('}');
    w_.Key("rows");
    w_.Open('{');
    for (int i = 0; i < 4; ++i)
      w_.KeyInteger(VerdictName(static_cast<RowVerdict>(i)), summary_.rows[i]);
    w_.KeyInteger("nothing_recorded", summary_.neutral_rows);
    w_.KeyInteger("other_form", summary_.other_forms);
    w_.KeyInteger("without_effect", summary_.without_effect);
    w_.KeyInteger("too_wide", summary_.too_wide);
    w_.KeyInteger("target_only", summary_.target_only_rows);
    w_.KeyInteger("golden_only", summary_.golden_only_rows);
    w_.KeyInteger("unreadable", summary_.unreadable_rows);
    w_.Close('}');
  }

  void Regions() {
    std::vector<Region> regions = RegionsOf(c_);
    if (regions.size() > most_) regions.resize(most_);
    w_.Key("regions");
    w_.Open('[');
    for (const Region& region : regions) {
      w_.Element();
      w_.Open('{');
      w_.KeyText("verdict", region.wrong ? "wrong" : "rewrite");
      w_.KeyInteger("target_calls", region.target_calls);
      w_.KeyInteger("golden_calls", region.golden_calls);
      for (const bool target : {true, false}) {
        w_.Key(target ? "target" : "golden");
        w_.Open('[');
        for (const std::string_view name : NamesOf(c_, region, target, most_))
          w_.Element(), w_.Text(name);
        w_.Close(']');
      }
      Matched(region);
      w_.KeyTextOrNull("module", ModuleAround(c_, region.pairs.front()));
      w_.KeyTextOrNull("source_line", SourceLineOf(c_, region.pairs.front()));
      w_.Close('}');
    }
    w_.Close(']');
  }

  // The calls of a region that have a partner: [the target's name, the golden's].
  void Matched(const Region& region) {
    size_t most = most_;
    w_.Key("matched");
    w_.Open('[');
    for (const int32_t p : region.pairs) {
      if (!c_.pairs[p].matched() || most == 0) continue;
      --most;
      w_.Element();
      w_.Open('[');
      w_.Element(), w_.Text(c_.target.records[c_.pairs[p].target].name);
      w_.Element(), w_.Text(c_.golden.records[c_.pairs[p].golden].name);
      w_.Close(']');
    }
    w_.Close(']');
  }

  // The names of the calls of each side that `is_named` chooses; "calls" has the full counts.
  template <typename IsNamed>
  void Names(std::string_view key, IsNamed is_named) {
    w_.Key(key);
    w_.Open('{');
    for (const bool target : {true, false}) {
      w_.Key(target ? "target" : "golden");
      w_.Open('[');
      size_t left = most_;
      for (int32_t p = 0; p < static_cast<int32_t>(c_.pairs.size()) && left > 0; ++p) {
        if ((target ? c_.pairs[p].golden : c_.pairs[p].target) >= 0 || !is_named(p)) continue;
        w_.Element(), w_.Text(EntryName(c_, p));
        --left;
      }
      w_.Close(']');
    }
    w_.Close('}');
  }

  // What the screen says besides, so that a page made from the document says the same.
  void Sentences() {
    w_.Key("sentences");
    w_.Open('{');
    w_.KeyTextOrNull("first_bits", f_.first_bits.English());
    w_.KeyTextOrNull("rewrites", f_.rewrites.English());
    w_.KeyTextOrNull("wrong_region", f_.wrong_region.English());
    w_.KeyTextOrNull("equal", f_.equal.English());
    w_.Key("largest_noise"), w_.Number(f_.largest_noise);
    w_.KeyTextOrNull("why_largest_noise", f_.why_largest_noise.English());
    w_.KeyTextOrNull("not_judged", f_.not_judged.English());
    w_.KeyTextOrNull("other_arguments", f_.other_arguments.English());
    w_.KeyTextOrNull("unmatched_calls", f_.unmatched_calls.English());
    w_.KeyTextOrNull("compared_nowhere", f_.compared_nowhere);
    w_.Close('}');
  }

  const Comparison& c_;
  const Findings& f_;
  Summary summary_;
  const size_t most_;  // names and regions of a list
  JsonWriter w_;
};

}  // namespace

std::string JsonReport(const Comparison& comparison) {
  return JsonReport(comparison, FindingsOf(comparison), JsonLists::kShort);
}

std::string JsonReport(const Comparison& comparison, const Findings& found, JsonLists lists) {
  constexpr size_t kShort = 100;
  return Report(comparison, found, lists == JsonLists::kShort ? kShort : SIZE_MAX).Write();
}

}  // namespace msprobe::compare
