// The verbs of msprobe: each is a class in the file of its name.
//
//   for (const std::unique_ptr<Verb>& verb : AllVerbs()) console.Print("{}\n", verb->name());
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cli/command_line/verb.h"

namespace msprobe::cli {

std::unique_ptr<Verb> MakeApiPrecisionCompareVerb();
std::unique_ptr<Verb> MakeBisectVerb();
std::unique_ptr<Verb> MakeCompareVerb();
std::unique_ptr<Verb> MakeCompletionVerb();
std::unique_ptr<Verb> MakeConfigCheckVerb();
std::unique_ptr<Verb> MakeData2dbVerb();
std::unique_ptr<Verb> MakeDeterminismVerb();
std::unique_ptr<Verb> MakeGradCompareVerb();
std::unique_ptr<Verb> MakeGraphVisualizeVerb();
std::unique_ptr<Verb> MakeMergeResultVerb();
std::unique_ptr<Verb> MakeOpGenerateVerb();
// overflow_check, and nan_analyze, its name in msprobe 8.
std::unique_ptr<Verb> MakeOverflowCheckVerb(std::string_view name);
std::unique_ptr<Verb> MakeParseVerb();
std::unique_ptr<Verb> MakeRecoverVerb();
std::unique_ptr<Verb> MakeReplayVerb();
std::unique_ptr<Verb> MakeReportVerb();
std::unique_ptr<Verb> MakeRunOverflowCheckVerb();
// run_ut; `many`: multi_run_ut.
std::unique_ptr<Verb> MakeRunUtVerb(std::string_view name, bool many);
std::unique_ptr<Verb> MakeSelfcheckVerb();
std::unique_ptr<Verb> MakeShowVerb();
std::unique_ptr<Verb> MakeUnpackVerb();
std::unique_ptr<Verb> MakeVersionVerb();

// In the order in which help lists them.
std::vector<std::unique_ptr<Verb>> AllVerbs();

}  // namespace msprobe::cli
