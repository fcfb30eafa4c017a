#include "cli/verbs.h"

namespace msprobe::cli {

std::vector<std::unique_ptr<Verb>> AllVerbs() {
  std::vector<std::unique_ptr<Verb>> verbs;
  verbs.push_back(MakeCompareVerb());
  verbs.push_back(MakeApiPrecisionCompareVerb());
  verbs.push_back(MakeRunUtVerb("run_ut", /*many=*/false));
  verbs.push_back(MakeRunUtVerb("multi_run_ut", /*many=*/true));
  verbs.push_back(MakeOpGenerateVerb());
  verbs.push_back(MakeOverflowCheckVerb("overflow_check"));
  verbs.push_back(MakeOverflowCheckVerb("nan_analyze"));
  verbs.push_back(MakeRunOverflowCheckVerb());
  verbs.push_back(MakeConfigCheckVerb());
  verbs.push_back(MakeGradCompareVerb());
  verbs.push_back(MakeMergeResultVerb());
  verbs.push_back(MakeGraphVisualizeVerb());
  verbs.push_back(MakeData2dbVerb());
  verbs.push_back(MakeShowVerb());
  verbs.push_back(MakeReportVerb());
  verbs.push_back(MakeParseVerb());
  verbs.push_back(MakeRecoverVerb());
  verbs.push_back(MakeUnpackVerb());
  verbs.push_back(MakeSelfcheckVerb());
  verbs.push_back(MakeReplayVerb());
  verbs.push_back(MakeBisectVerb());
  verbs.push_back(MakeDeterminismVerb());
  verbs.push_back(MakeCompletionVerb());
  verbs.push_back(MakeVersionVerb());
  return verbs;
}

}  // namespace msprobe::cli
