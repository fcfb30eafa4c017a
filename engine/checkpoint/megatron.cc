// Reads Megatron's checkpoints. Each rank has a folder with its share of the model. Shares are
// joined, and the layers and experts of all ranks are numbered through, as msprobe 26 does: so
// checkpoints that were saved with different parallel sizes can be compared.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"

namespace msprobe::checkpoint {
namespace {

struct RankFolder {
  std::string path;
  int tensor = 0, pipeline = 0, expert = 0;
};

// Parameters that older versions of Megatron name differently; replaced in this order.
constexpr std::pair<std::string_view, std::string_view> kNewNames[] = {
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
    {"language_model.", ""},
    {"encoder", "decoder"},
    {".input_norm.", ".input_layernorm."},
    {"query_key_value", "linear_qkv"},
    {".dense.", ".linear_proj."},
    {"post_attention_norm", "pre_mlp_layernorm"},
    {"dense_h_to_4h", "linear_fc1"},
    {"dense_4h_to_h", "linear_fc2"},
    {"mlp.local_experts", "mlp.experts.local_experts"},
    {"final_norm", "final_layernorm"},
    {"word_embeddings_for_head", "output_layer"},
};
constexpr std::string_view kSplitAlong0[] = {"linear_qkv", "linear_fc1", "word_embeddings.weight",
                                             "output_layer.weight"};
constexpr std::string_view kSplitAlong1[] = {"linear_fc2.weight", "linear_proj.weight"};

template <size_t kSize>
bool NamesAny(std::string_view name, const std::string_view (&parts)[kSize]) {
  return std::any_of(std::begin(parts), std::end(parts), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

std::string NewName(std::string name) {
  for (const auto& [from, to] : kNewNames) {
    for (size_t at = 0; (at = name.find(from, at)) != std::string::npos; at += to.size())
      name.replace(at, from.size(), to);
  }
  return name;
}

constexpr int64_t kMostOfAKind = 1'000'000;  // layers, experts, ranks; more is a damaged file

// The number after "layers." or "experts.", with its position and length in the name; -1: none.
int64_t NumberBehind(std::string_view name, std::string_view word, size_t* at, size_t* size) {
  for (size_t found = 0; (found = name.find(word, found)) != std::string_view::npos; ++found) {
    const size_t digits = found + word.size();
    int64_t number = -1;
    const auto end = std::from_chars(name.data() + digits, name.data() + name.size(), number);
    if (end.ec != std::errc() || end.ptr == name.data() + name.size() || *end.ptr != '.') continue;
    if (number < 0 || number > kMostOfAKind) continue;
    *at = digits;
    *size = static_cast<size_t>(end.ptr - name.data()) - digits;
    return number;
  }
  return -1;
}

void Renumber(std::string_view word, int64_t add, std::string* name) {
  size_t at, size;
  const int64_t number = NumberBehind(*name, word, &at, &size);
  if (number >= 0 && add != 0) name->replace(at, size, std::to_string(number + add));
}

// Reads the run's arguments from the pickle: an argparse.Namespace, of which no object is made.
class Arguments : public PickleVisitor {
 public:
  void Visit(const formats::PickleTree& tree) override {
    const formats::PickleNode* state = Member(tree, tree.root(), "args");
    if (state == nullptr || state->kind != formats::PickleKind::kCall || state->items.size() < 3)
      return;
    const formats::PickleNode& members = tree[state->items[2]];
    const auto number = [&](std::string_view key, int64_t* out) {
      const formats::PickleNode* value = Member(tree, members, key);
      if (value != nullptr && value->kind == formats::PickleKind::kInt) *out = value->integer;
    };
    number("expert_model_parallel_size", &experts);
    number("pipeline_model_parallel_size", &pipeline);
  }
  int64_t experts = -1, pipeline = -1;  // sizes; -1: not known

 private:
  static const formats::PickleNode* Member(const formats::PickleTree& tree,
                                           const formats::PickleNode& dict, std::string_view key) {
    if (dict.kind != formats::PickleKind::kDict) return nullptr;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const formats::PickleNode& name = tree[dict.items[i]];
      if (name.kind == formats::PickleKind::kString && name.text == key)
        return &tree[dict.items[i + 1]];
    }
    return nullptr;
  }
};

// mp_rank_TT, mp_rank_TT_PPP, mp_rank_TT_EEE (one pipeline stage) or mp_rank_TT_PPP_EEE.
std::optional<RankFolder> ParseRank(const std::string& folder, const std::string& name) {
  std::vector<int> numbers;
  for (const std::string_view part : Split(std::string_view(name).substr(8), '_')) {
    int number = -1;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), number);
    if (end.ec != std::errc() || end.ptr != part.data() + part.size() || number < 0 ||
        number > kMostOfAKind) {
      return std::nullopt;
    }
    numbers.push_back(number);
  }
  if (numbers.empty() || numbers.size() > 3) return std::nullopt;
  numbers.resize(3, 0);
  return RankFolder{JoinPath(folder, name), numbers[0], numbers[1], numbers[2]};
}

// Whether a name belongs to the model: "model.decoder..." or "model1.decoder..." (virtual pipeline
// stage 1).
bool IsModelTensor(std::string_view name, int* stage, std::string_view* rest) {
  if (!name.starts_with("model")) return false;
  name.remove_prefix(5);
  *stage = 0;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), *stage);
  name.remove_prefix(static_cast<size_t>(end.ptr - name.data()));
  if (!name.starts_with('.') || *stage < 0 || *stage > kMostOfAKind) return false;
  *rest = name.substr(1);
  return true;
}

// Joins the shares of tensor-parallel ranks along the dimension in which they are divided. Each
// share begins where the one before it ends.
Status Join(std::string name, std::vector<TensorPiece> shares, CheckpointTensor* out) {
  const bool along0 = NamesAny(name, kSplitAlong0), along1 = NamesAny(name, kSplitAlong1);
  out->dtype = shares[0].dtype;
  out->shape = shares[0].shape;
  out->name = std::move(name);
  const size_t dimension = along0 ? 0 : 1;
  const bool split = (along0 || along1) && shares.size() > 1 && out->shape.size() > dimension;
  if (!split) {
    out->parts.push_back({std::move(shares[0]), {}});
    for (size_t i = 1; i < shares.size(); ++i) out->replicas.push_back({std::move(shares[i]), 0});
    return Status::Ok();
  }
  const std::vector<int64_t> first = out->shape;
  int64_t begin = 0;
  for (TensorPiece& share : shares) {
    std::vector<int64_t> expected = share.shape;
    if (expected.size() == first.size()) expected[dimension] = first[dimension];
    if (share.dtype != out->dtype || expected != first) {
      return InvalidDump(*share.file)
          .Expected("a share of {} as {} {}"_t(Excerpt(out->name), DTypeShortName(out->dtype),
                                               ShapeText(first)))
          .Found(fmt::format("{} {}", DTypeShortName(share.dtype), ShapeText(share.shape)));
    }
    std::vector<int64_t> at(first.size(), 0);
    at[dimension] = begin;
    if (__builtin_add_overflow(begin, share.shape[dimension], &begin)) {
      return InvalidDump(*share.file)
          .Expected("shares of {} that are less than 2^63 together"_t(Excerpt(out->name)))
          .Found(ShapeText(share.shape));
    }
    out->parts.push_back({std::move(share), std::move(at)});
  }
  out->shape[dimension] = begin;
  return Status::Ok();
}

struct Share {
  RankFolder rank;
  int stage;  // virtual pipeline stage
  TensorPiece piece;
};

Result<std::vector<RankFolder>> FindRanks(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  std::vector<RankFolder> ranks;
  for (const std::string& name : names) {
    if (!name.starts_with("mp_rank_")) continue;
    std::optional<RankFolder> rank = ParseRank(folder, name);
    if (!rank) {
      return InvalidDump(JoinPath(folder, name))
          .Expected("mp_rank_ and the tensor, pipeline and expert rank, as mp_rank_00_000_000"_t)
          .Found(Excerpt(name));
    }
    ranks.push_back(std::move(*rank));
  }
  return ranks;
}

// Appends what one rank holds of the model; everything else of its file is a tensor of its own.
Status ReadRank(RankFolder rank, Arguments* arguments, std::vector<Share>* shares,
                CheckpointBuilder* builder) {
  std::string file;
  for (const std::string_view name : {"model_rng.pt", "model_optim_rng.pt"}) {
    if (std::string path = JoinPath(rank.path, name); IsRegularFile(path)) file = std::move(path);
  }
  if (file.empty()) {
    return NotFound(JoinPath(rank.path, "model_optim_rng.pt"))
        .Expected("the share of each rank, to join them"_t);
  }
  std::vector<TensorPiece> pieces;
  MSPROBE_RETURN_IF_ERROR(ListPieces(file, &pieces, arguments));
  // mp_rank_TT_EEE: with a single pipeline stage the second number is the expert rank.
  if (arguments->pipeline == 1 && arguments->experts > 1 && rank.expert == 0)
    rank.expert = std::exchange(rank.pipeline, 0);
  for (TensorPiece& piece : pieces) {
    int stage;
    std::string_view rest;
    if (IsModelTensor(piece.name, &stage, &rest)) {
      piece.name = NewName(std::string(rest));
      shares->push_back({rank, stage, std::move(piece)});
    } else {
      CheckpointTensor tensor{.name = fmt::format("{}.{}", BaseName(rank.path), piece.name),
                              .dtype = piece.dtype,
                              .shape = piece.shape,
                              .is_parameter = false};
      tensor.parts.push_back({std::move(piece), {}});
      builder->Add(std::move(tensor));
    }
  }
  return Status::Ok();
}

// Layers of a stage and experts of a rank are numbered from 0 in their file: gives each its number
// in the whole model, as the first stage and the first expert rank count them.
void NumberThrough(std::vector<Share>* shares) {
  int64_t layers = 0, experts = 0;
  int stages = 0;
  for (const Share& share : *shares) {
    size_t at, size;
    stages = std::max(stages, share.rank.pipeline + 1);
    if (share.rank.pipeline == 0)
      layers = std::max(layers, NumberBehind(share.piece.name, "layers.", &at, &size) + 1);
    if (share.rank.expert == 0)
      experts = std::max(experts, NumberBehind(share.piece.name, "experts.", &at, &size) + 1);
  }
  for (Share& share : *shares) {
    const RankFolder& rank = share.rank;
    Renumber("layers.", (int64_t{stages} * share.stage + rank.pipeline) * layers,
             &share.piece.name);
    Renumber("experts.", int64_t{rank.expert} * experts, &share.piece.name);
  }
}

Status JoinShares(std::vector<Share> all, CheckpointBuilder* builder) {
  struct Ranks {
    std::map<int, TensorPiece> shares;                  // by tensor rank
    std::vector<std::pair<int, TensorPiece>> replicas;  // of shares, on other expert ranks
  };
  std::map<std::string, Ranks> by_name;
  for (Share& share : all) {
    Ranks& of_name = by_name[share.piece.name];
    if (of_name.shares.contains(share.rank.tensor)) {
      of_name.replicas.emplace_back(share.rank.tensor, std::move(share.piece));
    } else {
      of_name.shares.emplace(share.rank.tensor, std::move(share.piece));
    }
  }
  for (auto& [name, of_name] : by_name) {
    std::vector<TensorPiece> pieces;
    std::map<int, size_t> part_of;
    for (auto& [rank, piece] : of_name.shares) {
      part_of[rank] = pieces.size();
      pieces.push_back(std::move(piece));
    }
    CheckpointTensor tensor;
    MSPROBE_RETURN_IF_ERROR(Join(name, std::move(pieces), &tensor));
    for (auto& [rank, piece] : of_name.replicas) {
      const size_t part = tensor.parts.size() > 1 ? part_of[rank] : 0;
      tensor.replicas.push_back({std::move(piece), part});
    }
    builder->Add(std::move(tensor));
  }
  return Status::Ok();
}

}  // namespace

Status CheckpointBuilder::AddMegatron(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(std::vector<RankFolder> ranks, FindRanks(folder));
  std::vector<Share> shares;
  Arguments arguments;
  for (RankFolder& rank : ranks)
    MSPROBE_RETURN_IF_ERROR(ReadRank(std::move(rank), &arguments, &shares, this));
  NumberThrough(&shares);
  MSPROBE_RETURN_IF_ERROR(JoinShares(std::move(shares), this));
  return Finish(ranks.size() == 1 ? "Megatron, 1 rank"_t : "Megatron, {} ranks"_t(ranks.size()));
}

}  // namespace msprobe::checkpoint
