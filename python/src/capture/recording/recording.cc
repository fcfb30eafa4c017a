#include "capture/recording/recording.h"

#include "capture/python/framework.h"
#include "capture/python/torch_api.h"
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

// Whether `use` says so of the elements; false where they cannot be read.
template <typename Use>
bool WithElements(PyObject* value, Use&& use) {
  const auto read = [&](const auto& access) { return access.readable() && use(access.view()); };
  if (!Framework::Get().IsTensor(value)) return read(NumpyArray(value));
  return Framework::Get().is_torch() ? read(TensorAccess(value)) : read(FrameworkTensor(value));
}

// Takes the elements of a tensor of the host as they are, where the program has not changed them.
// False: there is no room.
bool TakeElements(HeldTensor* held) {
  bool has_room = true;
  held->changed = !WithElements(held->value.get(), [&](const TensorView& view) {
    if (MeasureTensor(view).fingerprint != held->fingerprint) return false;
    held->elements = HeldElements::Reserve(view.dtype, view.dims());
    has_room = held->elements != nullptr;
    if (has_room) held->elements->Take(view);
    return true;
  });
  return has_room;
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
  late.Run();
}

void Recording::FetchDeferred() {
  drain.Stop();
  Take(in_flight.Take());
  Take(device.Finish());
  late.Run(/*give_up=*/true);
}

void Recording::FetchInStep() {
  Take(device.FinishInStep());
  late.Run(/*give_up=*/true);
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

std::shared_ptr<LateTensor> Recording::AskAgain(PyObject* tensor) {
  auto now = std::make_shared<LateTensor>();
  TensorAccess access(tensor, Fetch::kNever);
  if (access.on_device())
    now->numbers.ticket = device.Ask(access.holder(), {.dtype = access.element_type(),
                                                       .shape = access.shape(),
                                                       .late = now,
                                                       .device = access.device()});
  if (now->numbers.ticket >= 0) return now;
  if (!access.readable()) access.FetchNow();
  if (access.readable()) now->numbers.stats = MeasureTensor(access.view());
  now->arrived = true;
  return now;
}

bool Recording::DecidesNow(LateTensors* needs, std::vector<HeldTensor>* held) {
  bool has_room = true;
  for (HeldTensor& each : *held) {
    if (each.late == nullptr) continue;
    has_room = has_room && each.elements != nullptr;
    const TensorAccess access(each.value.get(), Fetch::kNever);
    const int64_t version = TorchApi::Get().VersionOf(access.holder());
    if (version < 0 || version != each.version)
      needs->push_back(each.again = AskAgain(each.value.get()));
  }
  if (late.Knows(*needs)) return true;
  for (HeldTensor& each : *held) {
    if (each.late == nullptr) has_room = has_room && TakeElements(&each);
  }
  if (!has_room) {
    FetchInStep();
    return true;
  }
  for (HeldTensor& each : *held) each.value = PyRef();
  return false;
}

bool Recording::StoreHeld(const HeldTensor& held) {
  if (held.changed) return false;
  uint64_t fingerprint = held.fingerprint;
  if (held.late != nullptr) {
    fingerprint = held.late->numbers.stats.fingerprint;
    if (!held.late->arrived || (held.again != nullptr && !held.again->Equals(*held.late)))
      return false;
  }
  if (held.elements != nullptr) return session->Store(held.file, held.elements->view());
  return WithElements(held.value.get(), [&](const TensorView& view) {
    return MeasureTensor(view).fingerprint == fingerprint && session->Store(held.file, view);
  });
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
