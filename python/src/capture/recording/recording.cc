#include "capture/recording/recording.h"

#include "capture/python/framework.h"
#include "capture/values/framework_tensor.h"
#include "capture/values/numpy_array.h"
#include "capture/values/tensor_access.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::capture {
namespace {

// The value that a tensor file belongs to: "input.1" of "a.0.forward.input.1.pt" in "a.0.forward".
std::string_view ValueOfFile(std::string_view file, std::string_view entry) {
  if (file.starts_with(entry) && file.size() > entry.size() + 1)
    file.remove_prefix(entry.size() + 1);
  const std::string_view suffix = Framework::Get().tensor_suffix;
  if (file.ends_with(suffix)) file.remove_suffix(suffix.size());
  return file;
}

}  // namespace

void Recording::Take(const std::vector<DeferredNumbers>& arrived) {
  weights.Resolve(arrived);
  if (!weights.empty() && !weights.waits()) session->WriteBeside("weights.json", weights.Take());
  session->ResolveDeferred(arrived);
}

void Recording::TakeArrived() {
  if (const std::vector<DeferredNumbers> arrived = device.Arrived(); !arrived.empty())
    Take(arrived);
  if (device.is_used()) drain.Start([this] { Guarded([this] { TakeArrived(); }); });
  if (const std::vector<DeferredNumbers> arrived = in_flight.Take(); !arrived.empty())
    Take(arrived);
}

void Recording::FetchDeferred() {
  drain.Stop();
  Take(in_flight.Take());
  Take(device.Finish());
}

void Recording::Fault(const char* what) noexcept {
  try {
    const std::string_view text = what;
    session->Fail(text == "std::bad_alloc" ? Unsupported("out of memory"_t) : Internal(text));
  } catch (const std::exception&) {
    session->Fail(Status::Ok());  // there is no memory even to say so
  }
}

void Recording::NotePrecision(Entry* entry) {
  if (!notes_precision) return;
  const PrecisionPolicy now = PrecisionPolicy::Now();
  if (now == precision) return;
  if (now != written_precision) {
    written_precision = now;
    written_precision_text = now.Text();
  }
  entry->precision = written_precision_text;
}

bool Recording::Stores(const std::string& name) const {
  // Weights, gradients and state of an optimizer: some seven times the parameters. Statistics and
  // fingerprints tell whether they agree.
  const bool every = config().task == Task::kTensor && !name.starts_with("Optimizer.");
  return session->storing() &&
         (every || looks_for_overflow() || stored_calls > 0 || session->filter().WantsTensor(name));
}

EntryStyle Recording::StyleOf(const std::string& name, bool is_output) const {
  if (!looks_for_nan()) return {.store = Stores(name)};
  const bool locate = session->filter().WantsTensor(name);
  return {.reading = is_output || locate ? Reading::kMeasured : Reading::kDescribed,
          .locate = locate};
}

bool Recording::StoreHeld(const HeldTensor& held) {
  const auto store = [&](const auto& access) {
    return access.readable() && MeasureTensor(access.view()).fingerprint == held.fingerprint &&
           session->Store(held.file, access.view());
  };
  PyObject* const value = held.value.get();
  if (!Framework::Get().IsTensor(value)) return store(NumpyArray(value));
  return Framework::Get().is_torch() ? store(TensorAccess(value)) : store(FrameworkTensor(value));
}

void Recording::StoreAll(const std::vector<HeldTensor>& all, Entry* entry) {
  std::string changed;
  for (const HeldTensor& held : all) {
    if (StoreHeld(held)) continue;
    entry->ForgetFile(held.file);
    changed += changed.empty() ? "" : ", ";
    changed += ValueOfFile(held.file, entry->name());
  }
  entry->changed_in_place = changed;
}

std::string Recording::WhereIs(int64_t site) {
  if (site < 0) return "";
  const std::vector<std::string> frames = stacks.Format(site);
  return dump::UserSourceLine({frames.begin(), frames.end()});
}

}  // namespace msprobe::capture
