// The parts of a report on a terminal: what the comparison of one pair of dumps found, in lines.
// The report on one pair (report_terminal.h) and the one on many ranks and steps (report_ranks.h)
// are put together from these.
//
//   const FindingsScreen screen(findings, options);
//   Print(screen.Finding({.where = "step {}"_t(3)}));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/findings.h"
#include "engine/compare/report/report_terminal.h"

namespace msprobe::compare {

// "msprobe compare, by statistics    DIFFERS, 187 of 205 values compared"; the numbers are on a
// line of their own where they do not fit.
std::vector<std::string> TitleLines(const Message& title, const Summary& summary,
                                    const TerminalOptions& options);

class FindingsScreen {
 public:
  using Lines = std::vector<std::string>;
  // What the reader must know besides a first divergence.
  struct Place {
    Message where;                   // in front of the name: "step 3, rank 1"
    Message exchange;                // a sentence on the exchange that brought the wrong number
    std::vector<Message> travelled;  // sentences on the way of the wrong number
  };

  // Both are referenced.
  FindingsScreen(const Findings& found, const TerminalOptions& options);

  Lines Sides() const;  // the two dumps: path, calls, values
  Lines Began() const;  // from what weights and data, with which settings, whether bits decide
  // The first divergence, or why there is none.
  Lines Finding(const Place& place = {}) const;
  // The sentence of a comparison without a first divergence.
  Message NoDivergence() const;
  // The calls that also differ, in at most `room` lines, of which a blank line, a heading and "and
  // N more" take three.
  Lines Table(int room) const;
  // How many calls and values agree, which calls only one side has, what is not known.
  Lines Footer() const;
  // What the words of these lines mean, after `label`.
  Lines LegendOf(const std::vector<const Lines*>& parts) const;

 private:
  struct TableWidths {
    int name = 0, what = 0;
  };
  std::string Paint(std::string_view color, std::string_view text) const;
  // The lines of a text with names that must not be cut.
  Lines Fold(const Message& text, int width) const;
  // Lines with `label` before the first one.
  Lines Labelled(std::string_view label, const Message& text) const;
  Message WithinRounding() const;
  // Why the calls are not the same although the results agree.
  Message OtherStructure() const;
  Message OtherCalls() const;
  TableWidths WidthsOf(const std::vector<Findings::OtherCall>& calls) const;
  Lines LinesOf(const Findings::OtherCall& call, const TableWidths& widths) const;
  Lines OneSideOnly(bool target, int64_t count) const;
  Lines NotObserved() const;

  const Findings& f_;
  const int width_, lines_;
  const bool colors_, whole_;
};

}  // namespace msprobe::compare
