#include "engine/dump/config/config_effects.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::dump {

void LeaveStepsToOptimizers(Config* config) {
  const std::pair<std::string_view, bool> keys[] = {
      {"level", config->level != Level::kL1},
      {"dump_enable", config->dump_enable.has_value()},
      {"enable_dataloader", config->enable_dataloader}};
  for (const auto& [key, is_set] : keys) {
    if (is_set) config->warnings.push_back("\"{}\" has no effect in task grad_probe"_t(key));
  }
  config->level = Level::kL1;
  config->dump_enable.reset();
  config->enable_dataloader = false;
}

void LeaveSelectionToScript(Config* config) {
  const std::pair<std::string_view, std::vector<std::string>*> selections[] = {
      {"scope", &config->scope}, {"list", &config->list}, {"tensor_list", &config->tensor_list}};
  for (const auto& [key, names] : selections) {
    if (names->empty()) continue;
    config->warnings.push_back(
        "\"{}\" has no effect under level debug: save() says what is recorded"_t(key));
    names->clear();
  }
  const DataMode& mode = config->data_mode;
  if (!mode.forward_input || !mode.forward_output || !mode.backward_input || !mode.backward_output)
    config->warnings.push_back("\"data_mode\" has no effect under level debug"_t);
  config->data_mode = DataMode();
  if (!std::exchange(config->bench_path, "").empty())
    config->warnings.push_back("\"bench_path\" has no effect under level debug"_t);
}

}  // namespace msprobe::dump
