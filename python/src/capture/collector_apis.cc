// Which functions are observed, and what the user's lists say of each.
#include "capture/collective_call.h"
#include "capture/collector.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

// "linear" of "Functional.linear.".
std::string_view ApiName(const Api& api) {
  const std::string_view stem = api.stem;
  return stem.substr(api.prefix.size() + 1, stem.size() - api.prefix.size() - 2);
}

}  // namespace

std::string Collector::AddApi(const std::string& prefix, PyObject* owner, const std::string& name,
                              ApiTraits traits) {
  PyRef holder = PyRef::Borrow(owner), target = holder;
  std::vector<std::string_view> parts = Split(name, '.');
  (void)rules_.IgnoredValuesOf(prefix, parts.back());  // listed, whether it is there or not
  PyRef attribute;
  for (const std::string_view part : parts) {
    holder = target;
    attribute = PyRef::Steal(
        PyUnicode_FromStringAndSize(part.data(), static_cast<Py_ssize_t>(part.size())));
    target = PyRef::Steal(PyObject_GetAttr(holder.get(), attribute.get()));
    if (!target) {
      ClearError();
      return "this PyTorch does not have it";
    }
  }
  auto api = std::make_unique<Api>();
  api->prefix = prefix;
  api->stem = prefix + "." + std::string(parts.back()) + ".";
  api->counter = counters_.Of(api->stem);
  api->output_is_arguments = traits.output_is_arguments;
  if (traits.is_collective)
    api->collective =
        std::make_shared<const CollectiveSignature>(std::string(parts.back()), target.get());
  ApplyRules(api.get());
  std::string reason = Interposer::Add(holder.get(), attribute.get(), target.get(), api.get());
  if (reason.empty()) {
    apis_.push_back(std::move(api));
  } else {
    coverage_.unseen.push_back({prefix + "." + name, reason});
  }
  return reason;
}

Status Collector::ReadApiRules(const std::string& risk_levels, const std::string& ignored_values) {
  MSPROBE_ASSIGN_OR_RETURN(rules_, ApiRules::Read(risk_levels, ignored_values));
  coverage_.unseen.clear();  // the lists are about to be read, perhaps not for the first time
  for (const std::unique_ptr<Api>& api : apis_) ApplyRules(api.get());
  return Status::Ok();
}

void Collector::ApplyRules(Api* api) {
  if (api->kind != Api::kCall) return;
  const std::string_view name = ApiName(*api);
  const Config& config = session_->config();
  const bool asks = config.scope.empty() && config.list.empty();
  api->recorded = !asks || rules_.Records(config.risk_level, api->prefix, name);
  api->ignored = rules_.IgnoredValuesOf(api->prefix, name);
}

}  // namespace msprobe::capture
