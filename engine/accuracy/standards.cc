#include "engine/accuracy/standards.h"

#include <charconv>
#include <cmath>

#include "engine/base/file.h"
#include "engine/formats/text/yaml_file.h"

namespace msprobe::accuracy {

extern const char* const kShippedStandards;

namespace {

// The three dtypes for which msprobe 1.0 and 8 have metrics.
bool IsCommonFloat(std::string_view dtype) {
  return dtype == "torch.float16" || dtype == "torch.bfloat16" || dtype == "torch.float32";
}

}  // namespace

bool IsFp8(std::string_view dtype) {
  return dtype.starts_with("torch.float8") || dtype.find("hifloat8") != std::string_view::npos;
}
bool IsLargeFloat(std::string_view dtype) {
  return dtype == "torch.float64" || dtype == "torch.complex64" || dtype == "torch.complex128";
}

Message HintWithout() { return "without --standards the limits of this program hold"_t; }

// Fills a Standards from YAML; the first error stops.
class StandardsReader {
 public:
  explicit StandardsReader(std::string path) : path_(std::move(path)) {}

  Result<Standards> Read(const YAML::Node& root) {
    Standards s;
    const YAML::Node apis = Map(root, "apis");
    s.absolute_ = NamesOf(apis, "absolute");
    s.binary_ = NamesOf(apis, "binary");
    s.ulp_ = NamesOf(apis, "ulp");
    s.thousandth_ = NamesOf(apis, "thousandth");
    s.accumulative_ = NamesOf(apis, "accumulative");
    s.not_in_1_ = NamesOf(apis, "not_in_1.0");
    s.level_1_ = NamesOf(apis, "level_1");
    s.level_2_ = NamesOf(apis, "level_2");
    s.not_in_26_ = NamesOf(apis, "not_in_26");
    s.within_one_ = NamesOf(apis, "within_one");
    const YAML::Node first = Map(root, "first_check"), second = Map(root, "second_check");
    s.first_ = {Number(first, "cosine"),
                Number(first, "max_abs_error"),
                Number(first, "hundredth_share"),
                Number(first, "thousandth_share"),
                Number(first, "ten_thousandth_share"),
                Number(first, "bfloat16_epsilon"),
                Number(first, "dropout_elements"),
                Number(first, "dropout_zeros"),
                Table(first, "half_max_error"),
                Table(first, "ulp_counted"),
                Table(first, "input_rounding"),
                Number(first, "input_rounding_bound")};
    s.second_ = {Number(second, "thousandth_share"), Number(second, "ulp_mean"),
                 Number(second, "ulp_share"),        Number(second, "ulp_share_half"),
                 Number(second, "ulp_share_ratio"),  Number(second, "accumulative_small")};
    const YAML::Node rules = Map(root, "rules");
    const char* const names[] = {"default", "1.0", "8", "26"};
    for (size_t i = 0; i < s.rules_.size(); ++i) s.rules_[i] = RulesOf(Map(rules, names[i]));
    if (!status_.ok()) return std::move(status_).Hint(HintWithout());
    return s;
  }

 private:
  void Fail(const YAML::Node& node, Message expected) {
    if (status_.ok()) status_ = formats::WrongYaml(path_, node.Mark(), std::move(expected));
  }
  YAML::Node Child(const YAML::Node& parent, const char* key) {
    if (!status_.ok() || !parent.IsMap() || !parent[key]) {
      Fail(parent, "the key {}"_t(std::string_view(key)));
      return {};
    }
    return parent[key];
  }
  YAML::Node Map(const YAML::Node& parent, const char* key) {
    const YAML::Node node = Child(parent, key);
    if (status_.ok() && !node.IsMap()) Fail(node, "keys below {}"_t(std::string_view(key)));
    return node;
  }
  Standards::Names NamesOf(const YAML::Node& parent, const char* key) {
    Standards::Names names;
    const YAML::Node node = Child(parent, key);
    if (!status_.ok()) return names;
    if (!node.IsSequence()) Fail(node, "a list of names of APIs after {}"_t(std::string_view(key)));
    for (const YAML::Node& name : node) {
      if (!name.IsScalar()) Fail(name, "the name of an API"_t);
      names.insert(name.Scalar());
    }
    return names;
  }
  double Number(const YAML::Node& parent, const char* key) {
    const YAML::Node node = Child(parent, key);
    if (!status_.ok()) return 0;
    std::string_view text = node.IsScalar() ? std::string_view(node.Scalar()) : "";
    const bool power = text.starts_with("2^");
    if (power) text.remove_prefix(2);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (power) value = std::exp2(value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      Fail(node, "a number or a power of two (2^-10) after {}"_t(std::string_view(key)));
    return value;
  }
  DTypeTable Table(const YAML::Node& parent, const char* key) {
    const YAML::Node node = Map(parent, key);
    return {Number(node, "float16"), Number(node, "bfloat16"), Number(node, "float32"),
            Number(node, "other")};
  }
  RatioLimits Ratios(const YAML::Node& parent, const char* key) {
    const YAML::Node node = Map(parent, key);
    return {Number(node, "small_value"), Number(node, "rmse"), Number(node, "max_relative"),
            Number(node, "mean_relative"), Number(node, "balance")};
  }
  RuleLimits RulesOf(const YAML::Node& node) {
    RuleLimits limits;
    if (!status_.ok()) return limits;
    limits.small_value = Table(node, "small_value");
    limits.small_atol = Table(node, "small_atol");
    limits.absolute_atol = Table(node, "absolute_atol");
    limits.rtol = Table(node, "rtol");
    if (node["ratio_of_zero"]) {
      limits.ratio_of_zero = Number(node, "ratio_of_zero");
    } else {
      limits.ratio_floor = Table(node, "ratio_floor");
    }
    if (node["accumulative_bound"]) {
      limits.accumulative_bound = Table(node, "accumulative_bound");
      limits.accumulative_balance = Table(node, "accumulative_balance");
    }
    const YAML::Node error = Map(node, "error");
    limits.error.fill(Ratios(error, "level_0"));
    if (status_.ok() && error["level_1"]) limits.error[1] = Ratios(error, "level_1");
    if (status_.ok() && error["level_2"]) limits.error[2] = Ratios(error, "level_2");
    if (node["warning"]) limits.warning = Ratios(node, "warning");
    return limits;
  }

  std::string path_;
  Status status_;
};

Result<Rules> RulesFromName(std::string_view name) {
  if (name.empty()) return Rules::kOurs;
  if (name == "1.0") return Rules::k1;
  if (name == "8") return Rules::k8;
  if (name == "26") return Rules::k26;
  return InvalidArgument().Expected("1.0, 8 or 26, a generation of msprobe"_t).Found(Excerpt(name));
}

std::string_view AlgorithmName(Standard standard) {
  switch (standard) {
    case Standard::kBenchmark:
      return "标杆比对法";
    case Standard::kAbsolute:
      return "绝对阈值法";
    case Standard::kBinary:
      return "二进制一致法";
    case Standard::kUlp:
      return "ULP误差比对法";
    case Standard::kThousandth:
      return "双千指标法";
    case Standard::kAccumulative:
      return "累积误差比对法";
    case Standard::kNone:
      break;
  }
  return "";
}

std::string_view StandardName(Standard standard) {
  constexpr std::string_view kNames[] = {"benchmark",  "absolute",     "binary", "ulp",
                                         "thousandth", "accumulative", ""};
  return kNames[static_cast<size_t>(standard)];
}

double DTypeTable::Of(std::string_view torch_name) const {
  return torch_name == "torch.float16"    ? float16
         : torch_name == "torch.bfloat16" ? bfloat16
         : torch_name == "torch.float32"  ? float32
                                          : other;
}

const Standards& Standards::Shipped() {
  static const Standards* const shipped = [] {
    StandardsReader reader("standards.yaml");
    return new Standards(*reader.Read(YAML::Load(std::string(kShippedStandards))));
  }();
  return *shipped;
}

Result<Standards> Standards::Read(const std::string& path) {
  if (!Exists(path)) {
    return NotFound(path).Expected("a file of standards and limits (YAML)"_t).Hint(HintWithout());
  }
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Parse(file.bytes(), path);
}

Result<Standards> Standards::Parse(std::string_view text, const std::string& path) {
  try {
    return StandardsReader(path).Read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    return formats::WrongYaml(path, error.mark, std::string("YAML"))
        .Found(error.msg)
        .Hint(HintWithout());
  }
}

bool Standards::Lists(Standard standard, Rules rules, std::string_view api) const {
  switch (standard) {
    case Standard::kAbsolute:
      return absolute_.contains(api);
    case Standard::kBinary:
      return binary_.contains(api) && !(rules == Rules::k1 && not_in_1_.contains(api));
    case Standard::kUlp:
      return ulp_.contains(api);
    case Standard::kThousandth:
      return thousandth_.contains(api);
    case Standard::kAccumulative:
      return accumulative_.contains(api) && rules != Rules::k1;
    default:
      return false;
  }
}

Standard Standards::OfMetrics(Rules rules, std::string_view api, DType device,
                              bool fp8_input) const {
  const std::string_view dtype = DTypeTorchName(device);
  if (rules != Rules::kOurs && !IsCommonFloat(dtype)) return Standard::kNone;
  if (rules == Rules::k26) return fp8_input ? Standard::kAbsolute : Standard::kBenchmark;
  if (rules == Rules::kOurs && fp8_input) return Standard::kAbsolute;
  if (rules == Rules::k1) {
    for (const Standard s : {Standard::kBinary, Standard::kAbsolute, Standard::kUlp})
      if (Lists(s, rules, api)) return s;
    return Standard::kBenchmark;
  }
  for (const Standard s : {Standard::kAbsolute, Standard::kBinary, Standard::kUlp,
                           Standard::kThousandth, Standard::kAccumulative}) {
    if (Lists(s, rules, api)) return s;
  }
  return Standard::kBenchmark;
}

Standard Standards::OfResult(Rules rules, std::string_view api, std::string_view dtype,
                             bool fp8_input) const {
  const bool is_float = IsCommonFloat(dtype) || IsLargeFloat(dtype);
  if (rules == Rules::k1) {
    if (Lists(Standard::kThousandth, rules, api)) return Standard::kThousandth;
    if (!is_float || Lists(Standard::kBinary, rules, api)) return Standard::kBinary;
    if (Lists(Standard::kAbsolute, rules, api)) return Standard::kAbsolute;
    if (!IsCommonFloat(dtype)) return Standard::kNone;
    return Lists(Standard::kUlp, rules, api) ? Standard::kUlp : Standard::kBenchmark;
  }
  if (rules != Rules::k8) {
    if (IsFp8(dtype)) return Standard::kUlp;
    if (fp8_input) return Standard::kAbsolute;
  }
  if (rules == Rules::k26 && (IsCommonFloat(dtype) || dtype == "torch.float64"))
    return Standard::kBenchmark;
  if (!is_float) return Standard::kBinary;
  for (const Standard s : {Standard::kAbsolute, Standard::kBinary, Standard::kUlp,
                           Standard::kThousandth, Standard::kAccumulative}) {
    // What is exact of floats, such as abs, is a root of a sum of complex numbers.
    const bool rounds =
        s == Standard::kBinary && rules == Rules::kOurs && dtype.starts_with("torch.complex");
    if (!rounds && Lists(s, rules, api)) return s;
  }
  return Standard::kBenchmark;
}

const RatioLimits& Standards::RatiosOf(Rules rules, std::string_view api) const {
  const bool known = !(rules == Rules::k26 && not_in_26_.contains(api));
  const size_t level = !known ? 0 : level_2_.contains(api) ? 2 : level_1_.contains(api) ? 1 : 0;
  return LimitsOf(rules).error[level];
}

kernels::AccuracyLimits Standards::LimitsOf(Rules rules, Standard standard, DType device,
                                            DType golden) const {
  const RuleLimits& of = LimitsOf(rules);
  const std::string_view dtype = DTypeTorchName(device);
  kernels::AccuracyLimits limits;
  const bool named = golden == DType::kFloat64 || golden == DType::kFloat16;
  limits.epsilon = device == DType::kBFloat16 ? first_.bfloat16_epsilon
                                              : DTypeEpsilon(named ? golden : DType::kFloat32);
  limits.small_value = of.small_value.Of(dtype);
  limits.small_atol =
      (standard == Standard::kAbsolute ? of.absolute_atol : of.small_atol).Of(dtype);
  limits.rtol = of.rtol.Of(dtype);
  if (standard == Standard::kAccumulative) {
    limits.small_value = second_.accumulative_small;
    limits.small_atol = limits.rtol = of.accumulative_bound.Of(dtype);
  }
  limits.ulp_limit = first_.ulp_counted.Of(dtype);
  limits.ulp_of = limits.golden_as = device;
  if (rules != Rules::kOurs) {
    limits.unit_of_one_at_zero = true;
    // They widen bfloat16 to float32 before they compare.
    if (device == DType::kBFloat16) limits.golden_as = DType::kFloat32;
  }
  return limits;
}

}  // namespace msprobe::accuracy
