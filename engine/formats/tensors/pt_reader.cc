#include <fmt/format.h>

#include <utility>

#include "engine/base/messages/message.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/pt_tensors.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kMaxPickle = uint64_t{256} << 20;

// The folder all entries lie in, with its '/': the one that holds data.pkl.
Result<std::string_view> FindFolder(const ZipReader& zip, const std::string& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::string_view folder;
  for (const ZipEntry& entry : zip.entries()) {
    if (!entry.name.ends_with(kPickle) ||
        entry.name.find('/') != entry.name.size() - kPickle.size())
      continue;
    if (!folder.empty())
      return InvalidDump(path, entry.offset).Expected("one data.pkl"_t).Found("a second one"_t);
    folder = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  }
  if (folder.empty()) {
    const size_t count = zip.entries().size();
    Message found = count == 0
                        ? "{} entries"_t(count)
                        : "{} entries, the first {}"_t(count, Excerpt(zip.entries()[0].name, 60));
    return InvalidDump(path)
        .Expected("an archive of torch.save, with an entry NAME/data.pkl"_t)
        .Found(std::move(found));
  }
  return folder;
}

Result<PtFile> Read(const std::shared_ptr<const MappedFile>& file, const PtReadOptions& options) {
  const std::string& path = file->path();
  std::string_view bytes = file->bytes();
  if (options.offset > bytes.size() || options.size > bytes.size() - options.offset) {
    return InvalidDump(path, options.offset)
        .Expected("{} bytes of a tensor"_t(options.size))
        .Found("a file of {}"_t(bytes.size()));
  }
  if (options.size > 0) bytes = bytes.substr(options.offset, options.size);
  if (bytes.substr(0, 1) == "\x80") {
    return Unsupported(
               "{}: the format torch.save wrote before version 1.6, or a bare pickle"_t(path))
        .Hint("save it again as a zip: torch.save(torch.load(path, weights_only=True), path)"_t);
  }
  if (bytes.substr(0, 2) != "PK") {
    return InvalidDump(path, 0)
        .Expected("a .pt file, a zip as torch.save writes it"_t)
        .Found(bytes.empty() ? "an empty file"_t : Excerpt(bytes, 16));
  }
  MSPROBE_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(bytes, path));
  MSPROBE_ASSIGN_OR_RETURN(const std::string_view folder, FindFolder(zip, path));
  if (const ZipEntry* order = zip.Find(fmt::format("{}byteorder", folder))) {
    MSPROBE_ASSIGN_OR_RETURN(const ZipContent text, zip.Read(*order, 64, options.verify_checksums));
    if (text.bytes == "big") {
      return Unsupported("{}: a file of a big-endian machine"_t(path))
          .Hint("save it again on a little-endian one"_t);
    }
    if (text.bytes != "little") {
      return InvalidDump(path, order->offset)
          .Expected("byteorder little or big"_t)
          .Found(Excerpt(text.bytes));
    }
  }
  const ZipEntry& entry = *zip.Find(fmt::format("{}data.pkl", folder));
  if (entry.size > kMaxPickle) {
    return InvalidDump(path, entry.offset)
        .Expected("a data.pkl of at most {} bytes"_t(kMaxPickle))
        .Found(fmt::format("{}", entry.size));
  }
  MSPROBE_ASSIGN_OR_RETURN(const ZipContent pickle,
                           zip.Read(entry, kMaxPickle, options.verify_checksums));
  PtFile out;
  MSPROBE_ASSIGN_OR_RETURN(
      out.tree,
      Unpickle(pickle.bytes,
               {.path = path, .base_offset = entry.offset, .keep_objects = options.keep_objects}));
  out.owner = pickle.owner ? pickle.owner : file;
  PtTensorBuilder builder(out.tree, zip, folder, file, path, options);
  MSPROBE_ASSIGN_OR_RETURN(out.tensors, builder.Build());
  return out;
}

// `checksum`: that of all elements of the tensor in logical order, when the file has it.
Result<TensorFile> ReadTensor(const std::shared_ptr<const MappedFile>& mapped,
                              const PtReadOptions& options,
                              std::optional<uint32_t>* checksum = nullptr) {
  MSPROBE_ASSIGN_OR_RETURN(PtFile file, Read(mapped, options));
  if (file.tensors.size() != 1) {
    return Unsupported("{}: expected one tensor, found {}"_t(mapped->path(), file.tensors.size()));
  }
  PtTensor& found = file.tensors[0];
  const TensorView view = found.tensor.view();
  if (checksum != nullptr && found.storage.data() == view.data && view.IsContiguous() &&
      static_cast<uint64_t>(view.numel()) * DTypeSize(view.dtype) == found.storage.size()) {
    *checksum = found.checksum;
  }
  return std::move(found.tensor);
}

}  // namespace

Result<PtFile> ReadPt(const std::string& path, const PtReadOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return ReadPt(std::move(file), options);
}

Result<PtFile> ReadPt(MappedFile mapped, const PtReadOptions& options) {
  return Read(std::make_shared<MappedFile>(std::move(mapped)), options);
}

Result<TensorFile> ReadPtTensor(const std::string& path, const PtReadOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return ReadPtTensor(std::move(file), options);
}

Result<TensorFile> ReadPtTensor(MappedFile mapped, const PtReadOptions& options, Verify verify) {
  const auto file = std::make_shared<MappedFile>(std::move(mapped));
  if (verify == Verify::kByReader || !options.verify_checksums) return ReadTensor(file, options);
  PtReadOptions later = options;
  later.verify_storages = false;
  std::optional<uint32_t> checksum;
  MSPROBE_ASSIGN_OR_RETURN(TensorFile tensor, ReadTensor(file, later, &checksum));
  // The checksum is that of the whole storage: it is of no use for a part of the storage, or for
  // elements in another order.
  if (!checksum) {
    tensor = {};  // frees its memory, which is filled anew
    return ReadTensor(file, options);
  }
  tensor.crc32 = checksum;
  return tensor;
}

}  // namespace msprobe::formats
