#include "cli/command_line/arguments.h"

#include <fmt/format.h>

#include <array>

#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

constexpr std::array kAliases = {
    FlagAlias{"-tp", "--target_path"},
    FlagAlias{"-gp", "--golden_path"},
    FlagAlias{"-da", "--diff_analyze"},
    FlagAlias{"-config", "--config_path"},
    FlagAlias{"--config-path", "--config_path"},
    FlagAlias{"--input-dir", "--input_dir"},
    FlagAlias{"--output-dir", "--output_dir"},
    FlagAlias{"-fm", "--fuzzy_match"},
    FlagAlias{"-vc", "--verl-compare"},
    FlagAlias{"-vv", "--verl-verify"},
    FlagAlias{"-sc", "--slime-compare"},
    FlagAlias{"-cm", "--cell_mapping"},
    FlagAlias{"-am", "--api_mapping"},
    FlagAlias{"-dm", "--data_mapping"},
    FlagAlias{"-lm", "--layer_mapping"},
    FlagAlias{"-tensor_log", "--is_print_compare_log"},
    FlagAlias{"-progress_log", "--is_print_progress_log"},
    FlagAlias{"-oc", "--overflow_check"},
    FlagAlias{"--target-path", "--target_path"},
    FlagAlias{"--golden-path", "--golden_path"},
    FlagAlias{"--output-path", "--output_path"},
    FlagAlias{"--diff-analyze", "--diff_analyze"},
    FlagAlias{"--fuzzy-match", "--fuzzy_match"},
    FlagAlias{"--exit_code", "--exit-code"},
    FlagAlias{"--table_format", "--table-format"},
    FlagAlias{"-hl", "--highlight"},
    FlagAlias{"-npu", "--npu_csv_path"},
    FlagAlias{"-gpu", "--gpu_csv_path"},
    FlagAlias{"--npu-csv-path", "--npu_csv_path"},
    FlagAlias{"--gpu-csv-path", "--gpu_csv_path"},
    FlagAlias{"--out-path", "--out_path"},
    FlagAlias{"-api_info", "--api_info_file"},
    FlagAlias{"-api", "--api_name"},
    FlagAlias{"-csv_path", "--result_csv_path"},
    FlagAlias{"-save_error_data", "--save_error_data"},
};

// A flag of an older tool's `compare` that msprobe 27 does not have. It is an error: a script that
// uses it must not continue as if its work had been done.
struct Missing {
  std::string_view flag;
  Message why;
};
std::span<const Missing> MissingFlags() {
  static const Message kTrainingInference =
      "training is not compared with inference; -cm and -dm pair modules of different names"_t;
  static const Message kInput =
      "compare.json is read after -f: msprobe -f pytorch compare -i compare.json; or type its two "
      "paths: msprobe compare TARGET GOLDEN"_t;
  static const Message kOffline = "offline models are not compared; use msaccucmp of CANN"_t;
  static const Message kStacks =
      "stack.json beside the target is always read; --no-stacks leaves the column out"_t;
  static const std::array kMissing = {
      Missing{"--consistent_check", kTrainingInference},
      Missing{"--backend", kTrainingInference},
      Missing{"--config", "tensors are compared as they were recorded, without post-processing"_t},
      Missing{"-fr", kOffline},
      Missing{"--fusion_rule_file", kOffline},
      Missing{"-qfr", kOffline},
      Missing{"--quant_fusion_rule_file", kOffline},
      Missing{"-cfr", kOffline},
      Missing{"--close_fusion_rule_file", kOffline},
      Missing{"-ofs", kOffline},
      Missing{"--onnx_fusion_switch", kOffline},
      Missing{"--input_data", kOffline},
      Missing{"--input_shape", kOffline},
      Missing{"--output_size", kOffline},
      Missing{"--dym_shape_range", kOffline},
      Missing{"-i", kInput},
      Missing{"--input_path", kInput},
      Missing{"-s", kStacks},
      Missing{"--stack_mode", kStacks},
  };
  return kMissing;
}

}  // namespace

std::span<const FlagAlias> FlagAliases() { return kAliases; }

std::string_view ShortSpelling(std::string_view long_name) {
  for (const FlagAlias& a : kAliases) {
    if (a.long_name == long_name && a.alias[1] != '-') return a.alias;
  }
  return "";
}

std::vector<std::string> NormalizeArguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  bool verbatim = false;
  for (const std::string& token : arguments) {
    const size_t equals = token.find('=');
    const std::string_view flag = std::string_view(token).substr(0, equals);
    std::string replaced = token;
    if (!verbatim) {
      for (const FlagAlias& a : kAliases) {
        if (a.alias != flag) continue;
        replaced = a.long_name;
        if (equals != std::string::npos) replaced += token.substr(equals);
        break;
      }
    }
    verbatim = verbatim || token == "--";
    out.push_back(std::move(replaced));
  }
  return out;
}

Status UnknownFlag(std::string_view flag, std::string_view program,
                   std::span<const std::string> known) {
  flag = flag.substr(0, flag.find('='));
  const std::string help = fmt::format("{} --help", program);
  for (const Missing& m : MissingFlags()) {
    if (program == "msprobe compare" && m.flag == flag)
      return Unsupported("{}: {}"_t(m.flag, m.why)).Hint(help);
  }
  std::vector<std::string_view> candidates(known.begin(), known.end());
  for (const FlagAlias& a : kAliases) {
    if (std::find(known.begin(), known.end(), a.long_name) != known.end())
      candidates.push_back(a.alias);
  }
  // Every flag of one letter is near every other one: "-h" for "-i" would help nobody.
  const std::string_view nearest =
      flag.size() <= 2 ? std::string_view() : NearestSpelling(flag, candidates);
  Status status = InvalidArgument("{} has no flag {}"_t(program, Excerpt(flag)));
  return nearest.empty() ? std::move(status).Hint(help)
                         : std::move(status).Hint("did you mean {}?  ({})"_t(nearest, help));
}

Status UnknownVerb(std::string_view word, std::span<const std::string_view> verbs) {
  const std::string_view nearest = NearestSpelling(word, verbs);
  Status status = InvalidArgument("msprobe has no verb {}"_t(Excerpt(word)));
  const std::string meant = fmt::format("msprobe {}", nearest);
  return nearest.empty() ? std::move(status).Hint(std::string("msprobe --help"))
                         : std::move(status).Hint("did you mean: {}"_t(meant));
}

}  // namespace msprobe::cli
