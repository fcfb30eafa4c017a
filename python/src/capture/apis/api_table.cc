#include "capture/apis/api_table.h"

#include <algorithm>

#include "capture/collectives/collective_call.h"
#include "capture/python/framework.h"
#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::capture {
namespace {

// "linear" of "Functional.linear.".
std::string_view ApiName(const Api& api) {
  const std::string_view stem = api.stem;
  return stem.substr(api.prefix.size() + 1, stem.size() - api.prefix.size() - 2);
}

Api::Memory MemoryOf(std::string_view function) {
  if (WritesWholeTensor(function)) return Api::Memory::kFills;
  if (function == "__setitem__") return Api::Memory::kAssigns;
  const bool in_place =
      function.starts_with("__i") || (function.ends_with('_') && function[0] != '_');
  return in_place ? Api::Memory::kUpdates : Api::Memory::kOther;
}

bool MayChange(std::string_view prefix, std::string_view function) {
  const bool plain = prefix == "Functional" || prefix == "Tensor" || prefix == "Torch";
  if (!plain) return prefix != "Distributed" && prefix != "Primitive";
  return function == "batch_norm" || function == "instance_norm" ||
         (function.starts_with("_foreach_") && function.ends_with('_'));
}

}  // namespace

Message ApiTable::Add(const std::string& prefix, PyObject* owner, const std::string& name,
                      ApiTraits traits) {
  PyRef holder = PyRef::Borrow(owner), target = holder;
  std::vector<std::string_view> parts = Split(name, '.');
  (void)rules_.IgnoredValuesOf(prefix, parts.back());  // tells the rules that the API is listed
  PyRef attribute;
  for (const std::string_view part : parts) {
    holder = target;
    attribute = PyRef::Steal(
        PyUnicode_FromStringAndSize(part.data(), static_cast<Py_ssize_t>(part.size())));
    target = PyRef::Steal(PyObject_GetAttr(holder.get(), attribute.get()));
    if (!target) {
      ClearError();
      return "this {} does not have it"_t(std::string(Framework::Get().title));
    }
  }
  auto api = std::make_unique<Api>();
  api->prefix = prefix;
  api->stem = prefix + "." + std::string(parts.back()) + ".";
  api->counter = recording_->counters.Of(api->stem);
  api->output_is_arguments = traits.output_is_arguments;
  api->memory = MemoryOf(parts.back());
  api->may_change = MayChange(prefix, parts.back());
  api->may_draw = Framework::Get().is_torch() && MayDrawRandomNumbers(parts.back());
  if (traits.is_collective)
    api->collective =
        std::make_shared<const CollectiveSignature>(std::string(parts.back()), target.get());
  api->unwritten = UnwrittenBy(prefix + "." + std::string(parts.back()), target.get());
  ApplyRules(api.get());
  Message reason = Interposer::Add(holder.get(), attribute.get(), target.get(), api.get());
  if (reason.empty()) {
    NoteFunction(*api, target.get());
    apis_.push_back(std::move(api));
  } else {
    recording_->coverage.unseen.push_back({prefix + "." + name, reason});
  }
  return reason;
}

Message ApiTable::Watch(PyObject* owner, const std::string& name, Api::Kind kind) {
  const PyRef key = PyRef::Steal(PyUnicode_FromString(name.c_str()));
  // Taken from the type's own dictionary, because a look-up of the method would bind it.
  PyRef target;
  if (PyType_Check(owner)) {
    PyObject* dict = reinterpret_cast<PyTypeObject*>(owner)->tp_dict;
    target = PyRef::Borrow(dict ? PyDict_GetItemWithError(dict, key.get()) : nullptr);
  } else {
    target = PyRef::Steal(PyObject_GetAttr(owner, key.get()));
  }
  ClearError();
  if (!target) return "this {} does not have it"_t(std::string(Framework::Get().title));
  if (Interposer::Find(target.get()) != nullptr) return {};  // it was added by an earlier start
  auto api = std::make_unique<Api>();
  api->kind = kind;
  if (kind == Api::kResizer) api->prefix = "UntypedStorage." + name;
  if (kind == Api::kAllocator) api->prefix = (PyType_Check(owner) ? "Tensor." : "torch.") + name;
  Message reason = Interposer::Add(owner, key.get(), target.get(), api.get());
  if (reason.empty()) apis_.push_back(std::move(api));
  return reason;
}

const Api* ApiTable::OfObject(PyObject* object, std::string_view attribute) {
  std::string_view type = Py_TYPE(object)->tp_name;
  type.remove_prefix(type.rfind('.') + 1);  // npos + 1 is 0
  std::string name(attribute);
  (name += '.') += type;
  std::vector<int64_t> unwritten = UnwrittenBy(type, object);
  const Api*& api = of_objects_[{name, unwritten}];
  if (api == nullptr) {
    Api* const made = New("Primitive", name, nullptr);
    made->unwritten = std::move(unwritten);
    made->of_object = true;
    api = made;
  }
  return api;
}

void ApiTable::LeavesUnwritten(std::string_view name, std::vector<int64_t> places) {
  UnwrittenRule rule{.places = std::move(places)};
  const size_t open = name.find('(');
  if (open != name.npos) {
    for (const std::string_view text : Split(name.substr(open + 1, name.size() - open - 2), ',')) {
      const std::string_view condition = Trim(text);
      const size_t equals = std::min(condition.find('='), condition.size() - 1);
      rule.attributes.emplace_back(condition.substr(0, equals), condition.substr(equals + 1));
    }
  }
  unwritten_.emplace(name.substr(0, open), std::move(rule));
}

std::vector<int64_t> ApiTable::UnwrittenBy(std::string_view name, PyObject* object) const {
  std::vector<int64_t> places;
  const auto [begin, end] = unwritten_.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    const UnwrittenRule& rule = it->second;
    const bool applies =
        std::all_of(rule.attributes.begin(), rule.attributes.end(), [&](const auto& wanted) {
          const PyRef value = PyRef::Steal(PyObject_GetAttrString(object, wanted.first.c_str()));
          ClearError();
          return value && StrOf(value.get()) == wanted.second;
        });
    if (applies) places.insert(places.end(), rule.places.begin(), rule.places.end());
  }
  return places;
}

Api* ApiTable::New(const std::string& prefix, const std::string& name, PyObject* function) {
  auto api = std::make_unique<Api>();
  api->prefix = prefix;
  api->stem = prefix + "." + name + ".";
  api->counter = recording_->counters.Of(api->stem);
  api->may_change = MayChange(prefix, name);
  ApplyRules(api.get());
  NoteFunction(*api, function);
  apis_.push_back(std::move(api));
  return apis_.back().get();
}

void ApiTable::NoteFunction(const Api& api, PyObject* function) {
  if (function == nullptr) return;
  const auto named = functions_.try_emplace(api.stem.substr(0, api.stem.size() - 1)).first;
  if (by_counter_.size() <= api.counter) by_counter_.resize(api.counter + size_t{1});
  by_counter_[api.counter] = &*named;
  Functions& of_name = named->second;
  for (const PyRef& known : of_name.functions) {
    if (known.get() == function) return;
  }
  of_name.functions.push_back(PyRef::Borrow(function));
  of_name.described = false;
}

void ApiTable::Describe(const std::string& name, Functions* api) const {
  api->described = true;
  const PyRef functions = PyRef::Steal(PyList_New(0));
  for (const PyRef& function : api->functions) {
    if (functions) PyList_Append(functions.get(), function.get());
  }
  const PyRef overloads = functions ? PyRef::Steal(PyObject_CallFunction(
                                          describe_.get(), "sO", name.c_str(), functions.get()))
                                    : PyRef();
  const auto each = [](PyObject* list, const auto& use) {
    const bool is_list = list != nullptr && PyList_Check(list);
    for (Py_ssize_t i = 0; is_list && i < PyList_GET_SIZE(list); ++i) use(PyList_GET_ITEM(list, i));
  };
  api->overloads.clear();
  each(overloads.get(), [&](PyObject* names) {
    Names& overload = api->overloads.emplace_back();
    each(names, [&](PyObject* one) { overload.emplace_back(Utf8(one)); });
  });
  ClearError();
}

std::vector<std::pair<std::string_view, const std::vector<ApiTable::Names>*>>
ApiTable::Signatures() {
  std::vector<std::pair<std::string_view, const std::vector<Names>*>> all;
  if (!describe_) return all;
  // The few that were called are found by their counters, which lie side by side: the table itself
  // has a thousand APIs, scattered in memory that a training step has pushed out of the caches.
  const dump::CallNames& calls = recording_->session->calls();
  for (uint32_t counter = 0; counter < by_counter_.size(); ++counter) {
    if (!calls.Called(counter) || by_counter_[counter] == nullptr) continue;
    auto& [name, api] = *by_counter_[counter];
    if (!api.described) Describe(name, &api);
    if (!api.overloads.empty()) all.emplace_back(name, &api.overloads);
  }
  std::sort(all.begin(), all.end());
  return all;
}

Status ApiTable::ReadRules(const std::string& risk_levels, const std::string& ignored_values) {
  MSPROBE_ASSIGN_OR_RETURN(rules_, dump::ApiRules::Read(risk_levels, ignored_values));
  recording_->coverage.unseen.clear();  // the lists are read again after this
  ApplyRules();
  return Status::Ok();
}

void ApiTable::ApplyRules() {
  for (const std::unique_ptr<Api>& api : apis_) ApplyRules(api.get());
}

void ApiTable::ApplyRules(Api* api) {
  if (api->kind != Api::kCall && api->kind != Api::kFunction) return;
  const std::string_view name = ApiName(*api);
  const dump::Config& config = recording_->config();
  const bool asks = config.scope.empty() && config.list.empty();
  api->recorded = !asks || rules_.Records(config.risk_level, api->prefix, name);
  api->ignored = rules_.IgnoredValuesOf(api->prefix, name);
}

bool ApiTable::Lists(std::string_view name) const {
  return std::any_of(apis_.begin(), apis_.end(), [&](const auto& api) {
    const std::string_view stem = api->stem;  // "Torch.relu."; empty: an API that is not recorded
    return stem.size() > name.size() + 1 && stem.ends_with('.') &&
           stem.substr(stem.find('.') + 1, stem.size() - stem.find('.') - 2) == name;
  });
}

}  // namespace msprobe::capture
