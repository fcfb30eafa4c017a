#include "engine/compare/layouts/declared_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "engine/compare/layouts/name_pattern.h"
#include "engine/compare/model/record_keys.h"
#include "engine/formats/text/yaml_file.h"

namespace msprobe::compare::layouts {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20;
// More dimensions than a tensor has, and more entries than anybody writes, are those of a damaged
// file.
constexpr size_t kMostDims = 64, kMostEntries = 10000, kLongestText = 1000;

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
}

// The parts of a text between blanks.
std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t begin = text.find_first_not_of(' ');
    if (begin == text.npos) break;
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
  return words;
}

// Reads "b s/cp (3 h/tp d) +tp". False: it is not written so.
class DimsReader {
 public:
  bool Read(std::string_view text, DeclaredDims* out) {
    bool inside = false, first = true;
    for (std::string_view word : Words(text)) {
      if (out->dims.size() >= kMostDims) return false;
      if (word.starts_with('+')) {
        if (inside || !IsWord(word.substr(1))) return false;
        out->added.emplace_back(word.substr(1));
        continue;
      }
      if (!out->added.empty()) return false;  // dimensions stand in front
      if (word.starts_with('(')) {
        if (inside) return false;
        inside = first = true;
        out->dims.emplace_back();
        word.remove_prefix(1);
      } else if (!inside) {
        first = true;
        out->dims.emplace_back();
      }
      const bool ends = word.ends_with(')');
      if (ends) word.remove_suffix(1);
      if ((ends && !inside) || !Factor(word, first, &out->dims.back())) return false;
      first = false;
      inside = inside && !ends;
    }
    return !inside && (!out->dims.empty() || !out->added.empty());
  }

 private:
  // "h/tp": a name or a size, and the axes along which it is divided.
  static bool Factor(std::string_view word, bool first, DeclaredDim* dim) {
    const size_t slash = word.find('/');
    if (!IsWord(word.substr(0, slash))) return false;
    while (word.find('/') != word.npos) {
      word.remove_prefix(word.find('/') + 1);
      const std::string_view axis = word.substr(0, word.find('/'));
      if (!IsWord(axis)) return false;
      dim->axes.emplace_back(axis);
      dim->in_pieces |= !first;
    }
    return true;
  }
};

class LayoutReader {
 public:
  explicit LayoutReader(DeclaredLayout* out) : out_(*out) {}

  Status Read(const YAML::Node& root) {
    static constexpr std::string_view kKeys[] = {"target_mesh", "golden_mesh",     "dims",  "order",
                                                 "modules",     "gradient_factor", "ignore"};
    if (!root.IsMap()) return Wrong(root, "a mapping with target_mesh, golden_mesh, dims, ..."_t);
    std::set<std::string> seen;
    for (const auto& member : root) {
      if (!member.first.IsScalar() ||
          std::find(std::begin(kKeys), std::end(kKeys), member.first.Scalar()) == std::end(kKeys))
        return formats::UnknownYaml(out_.path, member.first, kKeys);
      if (!seen.insert(member.first.Scalar()).second) return Wrong(member.first, "each key once"_t);
      MSPROBE_RETURN_IF_ERROR(ReadKey(member.first.Scalar(), member.second));
    }
    return CheckAxes();
  }

 private:
  Status Wrong(const YAML::Node& node, Message expected) const {
    return formats::WrongYaml(out_.path, node, std::move(expected));
  }

  Status ReadKey(const std::string& key, const YAML::Node& node) {
    if (key == "target_mesh") return ReadMesh(node, &out_.target_mesh);
    if (key == "golden_mesh") return ReadMesh(node, &out_.golden_mesh);
    if (key == "dims") return ReadDims(node);
    if (key == "order") return ReadOrder(node);
    if (key == "modules") return ReadModules(node);
    if (key == "ignore") return ReadIgnored(node);
    double factor = 0;
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
    if (error != std::errc() || end != text.data() + text.size() || !(factor > 0) ||
        !std::isfinite(factor))
      return Wrong(node, "a number above 0"_t);
    out_.gradient_factor = factor;
    return Status::Ok();
  }

  Status ReadMesh(const YAML::Node& node, std::vector<MeshAxis>* mesh) {
    if (!node.IsMap()) return Wrong(node, "axes with their sizes: {{dp: 2, tp: 4}}"_t);
    int64_t ranks = 1;
    for (const auto& member : node) {
      int64_t size = 0;
      const std::string text = member.second.IsScalar() ? member.second.Scalar() : "";
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (!member.first.IsScalar() || !IsWord(member.first.Scalar()))
        return Wrong(member.first, "the name of an axis"_t);
      if (error != std::errc() || end != text.data() + text.size() || size < 1 ||
          size > kMostRanks / ranks)
        return Wrong(member.second, "the size of an axis, from 1 on"_t);
      if (std::any_of(mesh->begin(), mesh->end(),
                      [&](const MeshAxis& axis) { return axis.name == member.first.Scalar(); }))
        return Wrong(member.first, "each axis once"_t);
      ranks *= size;
      mesh->push_back({member.first.Scalar(), size});
    }
    return Status::Ok();
  }

  // Calls each(name, value) for pairs of texts.
  template <typename Each>
  Status Pairs(const YAML::Node& node, const Message& expected, Each each) {
    if (!node.IsMap() || node.size() > kMostEntries) return Wrong(node, expected);
    for (const auto& member : node) {
      for (const YAML::Node& text : {member.first, member.second}) {
        if (!text.IsScalar() || text.Scalar().empty() || text.Scalar().size() > kLongestText)
          return Wrong(text, expected);
      }
      MSPROBE_RETURN_IF_ERROR(each(member.first, member.second));
    }
    return Status::Ok();
  }

  Status ReadDims(const YAML::Node& node) {
    const Message expected =
        "a pattern of names and the dimensions of the value: \"*.qkv.*\": \"b s (h/tp d)\""_t;
    return Pairs(node, expected, [&](const YAML::Node& pattern, const YAML::Node& text) {
      DeclaredDims dims{.pattern = pattern.Scalar(), .text = text.Scalar()};
      dims.line = static_cast<uint64_t>(text.Mark().line) + 1;
      if (!DimsReader().Read(dims.text, &dims)) return Wrong(text, expected);
      out_.dims.push_back(std::move(dims));
      return Status::Ok();
    });
  }

  Status ReadOrder(const YAML::Node& node) {
    const Message expected = "an axis and its order, which is zigzag: {{cp: zigzag}}"_t;
    return Pairs(node, expected, [&](const YAML::Node& axis, const YAML::Node& order) {
      if (order.Scalar() != "zigzag") return Wrong(order, expected);
      order_.emplace_back(axis.Scalar(), axis);
      out_.zigzag.insert(axis.Scalar());
      return Status::Ok();
    });
  }

  Status ReadModules(const YAML::Node& node) {
    const Message expected =
        "the target's and the golden's name of modules, with as many *: \"layers.*\": "
        "\"decoder.layers.*\""_t;
    return Pairs(node, expected, [&](const YAML::Node& target, const YAML::Node& golden) {
      const std::string &a = target.Scalar(), &b = golden.Scalar();
      if (std::count(a.begin(), a.end(), '*') != std::count(b.begin(), b.end(), '*'))
        return Wrong(golden, expected);
      out_.modules.emplace_back(a, b);
      return Status::Ok();
    });
  }

  Status ReadIgnored(const YAML::Node& node) {
    const Message expected = "a list of patterns of names: [\"*.dropout.*\"]"_t;
    if (!node.IsSequence() || node.size() > kMostEntries) return Wrong(node, expected);
    for (const YAML::Node& item : node) {
      if (!item.IsScalar() || item.Scalar().empty() || item.Scalar().size() > kLongestText)
        return Wrong(item, expected);
      out_.ignored.push_back(item.Scalar());
    }
    return Status::Ok();
  }

  Status CheckAxes() const {
    const auto known = [&](const std::string& name) {
      for (const auto* mesh : {&out_.target_mesh, &out_.golden_mesh}) {
        for (const MeshAxis& axis : *mesh) {
          if (axis.name == name) return true;
        }
      }
      return false;
    };
    const Message expected = "axes of target_mesh or golden_mesh"_t;
    for (const DeclaredDims& dims : out_.dims) {
      std::vector<std::string> axes = dims.added;
      for (const DeclaredDim& dim : dims.dims)
        axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
      for (const std::string& axis : axes) {
        if (!known(axis))
          return InvalidConfig(out_.path, dims.line).Expected(expected).Found(Excerpt(axis));
        if (std::count(axes.begin(), axes.end(), axis) > 1) {
          return InvalidConfig(out_.path, dims.line)
              .Expected("each axis once in the dimensions of a value"_t)
              .Found(Excerpt(dims.text));
        }
      }
    }
    for (const auto& [axis, node] : order_) {
      if (!known(axis)) return Wrong(node, expected);
    }
    return Status::Ok();
  }

  DeclaredLayout& out_;
  std::vector<std::pair<std::string, YAML::Node>> order_;
};

}  // namespace

Result<DeclaredLayout> DeclaredLayout::Read(const std::string& path) {
  return formats::ReadYaml<DeclaredLayout>(
      path, [&](const YAML::Node& root) -> Result<DeclaredLayout> {
        DeclaredLayout declared{.path = path};
        MSPROBE_RETURN_IF_ERROR(LayoutReader(&declared).Read(root));
        return declared;
      });
}

const DeclaredDims* DeclaredLayout::DimsOf(std::span<const std::string> names) const {
  for (const DeclaredDims& each : dims) {
    for (const std::string& name : names) {
      if (MatchesPattern(each.pattern, name)) return &each;
    }
  }
  return nullptr;
}

bool DeclaredLayout::Ignores(std::span<const std::string> names) const {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return MatchesPattern(pattern, name); });
  });
}

Status DeclaredSide::Check(size_t ranks, const std::string& run) const {
  size_t all = 1;
  for (const MeshAxis& axis : mesh_) all *= static_cast<size_t>(axis.size);
  if (all == ranks) return Status::Ok();
  return InvalidConfig(declared_.path)
      .Expected("a mesh of {} ranks, as {} has"_t(ranks, run))
      .Found(mesh_.empty() ? "no mesh"_t : "a mesh of {}"_t(all));
}

std::optional<DeclaredSide::Axis> DeclaredSide::AxisOf(const std::string& name) const {
  int64_t stride = 1;
  for (size_t i = mesh_.size(); i-- > 0;) {
    if (mesh_[i].name == name) return Axis{mesh_[i].size, stride};
    stride *= mesh_[i].size;
  }
  return std::nullopt;
}

Status DeclaredSide::Contradicted(const DeclaredDims& dims, Message expected, Shape found,
                                  std::string_view name, int32_t rank) const {
  return InvalidConfig(declared_.path, dims.line)
      .Expected(std::move(expected))
      .Found("{} for {} of rank {}"_t(
          found.empty() ? "no shape"_t : Message(std::string(found.view())), name, rank));
}

Result<std::vector<int64_t>> DeclaredSide::WholeOf(const DeclaredDims& dims,
                                                   std::span<const ValuePart> parts,
                                                   std::span<const RankRun> runs,
                                                   std::string_view name) const {
  constexpr int64_t kMost = int64_t{1} << 48;
  std::vector<int64_t> whole(dims.dims.size(), 0);
  // Of each dimension: the extent at each place along its axes.
  std::vector<std::map<int64_t, int64_t>> extents(dims.dims.size());
  for (const ValuePart& part : parts) {
    const RankRun& run = runs[part.run];
    const Shape shape = run.dump->leaves[part.leaf].shape;
    if (!shape.known() || shape.extents().size() != dims.dims.size()) {
      return Contradicted(dims, "values of {} dimensions, \"{}\""_t(dims.dims.size(), dims.text),
                          shape, name, run.rank);
    }
    for (size_t d = 0; d < whole.size(); ++d) {
      int64_t place = 0;
      for (const std::string& name_of_axis : dims.dims[d].axes) {
        const Axis axis = AxisOf(name_of_axis).value_or(Axis());
        place = place * axis.size + run.rank / axis.stride % axis.size;
      }
      const int64_t extent = shape.extents()[d];
      if (extent > kMost) return Contradicted(dims, "extents of a tensor"_t, shape, name, run.rank);
      const auto [at, is_new] = extents[d].emplace(place, extent);
      if (!is_new && at->second != extent) {
        return Contradicted(dims, "extent {} of dimension {} of \"{}\""_t(at->second, d, dims.text),
                            shape, name, run.rank);
      }
    }
  }
  for (size_t d = 0; d < whole.size(); ++d) {
    for (const auto& [place, extent] : extents[d]) whole[d] += extent;
  }
  return whole;
}

Result<ValueLayout> DeclaredSide::LayoutOf(const DeclaredDims& dims,
                                           std::span<const ValuePart> parts,
                                           std::span<const RankRun> runs, Shape whole,
                                           std::string_view name) const {
  using Kind = ValueLayout::Kind;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> extents, WholeOf(dims, parts, runs, name));
  const std::span<const int64_t> all = whole.extents();
  if (!whole.known() || !std::equal(extents.begin(), extents.end(), all.begin(), all.end())) {
    return Contradicted(dims, "parts of {} along \"{}\""_t(whole.view(), dims.text),
                        runs[parts[0].run].dump->leaves[parts[0].leaf].shape, name,
                        runs[parts[0].run].rank);
  }
  // Of each place of the whole, and of each addend there, the copies.
  std::map<std::vector<int64_t>, std::map<int64_t, std::vector<int32_t>>> places;
  ValueLayout layout;
  size_t divided = 0;
  for (size_t d = 0; d < dims.dims.size(); ++d) {
    bool here = false, zigzag = dims.dims[d].in_pieces;
    for (const std::string& axis : dims.dims[d].axes) {
      here |= AxisOf(axis).value_or(Axis()).size > 1;
      zigzag |= declared_.zigzag.contains(axis);
    }
    if (!here) continue;
    ++divided;
    layout.dimension = divided == 1 && !zigzag ? static_cast<int32_t>(d) : -1;
  }
  const auto coordinate = [&](int32_t rank, const std::string& axis_name) {
    const Axis axis = AxisOf(axis_name).value_or(Axis());
    return rank / axis.stride % axis.size;
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const int32_t rank = runs[parts[i].run].rank;
    std::vector<int64_t> place;
    for (const DeclaredDim& dim : dims.dims) {
      for (const std::string& axis : dim.axes) place.push_back(coordinate(rank, axis));
    }
    int64_t addend = 0;
    for (const std::string& axis : dims.added)
      addend = addend * AxisOf(axis).value_or(Axis()).size + coordinate(rank, axis);
    places[place][addend].push_back(static_cast<int32_t>(i));
  }
  const auto content = [&](int32_t i) {
    return ContentKey(runs[parts[i].run].dump->leaves[parts[i].leaf]);
  };
  bool sum = false, other_copies = false;
  for (const auto& [place, addends] : places) {
    std::vector<int32_t>& of = layout.places.emplace_back();
    for (const auto& [addend, copies] : addends) {
      std::map<uint64_t, size_t> count;
      for (const int32_t i : copies) ++count[content(i)];
      // A copy that is not as the others may be wrong: it is the one to compare.
      const auto rarest = std::min_element(copies.begin(), copies.end(), [&](int32_t a, int32_t b) {
        return count[content(a)] < count[content(b)];
      });
      of.push_back(*rarest);
      other_copies |= count.size() > 1;
    }
    sum |= of.size() > 1;
  }
  layout.kind = sum                        ? Kind::kSum
                : layout.places.size() > 1 ? Kind::kShards
                : other_copies             ? Kind::kDivergent
                                           : Kind::kWhole;
  return layout;
}

}  // namespace msprobe::compare::layouts
