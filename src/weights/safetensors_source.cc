// One safetensors file, or the shards of one with their index.
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/file.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "weights/quantised/quantised_source.h"
#include "weights/quantised/stored_groups.h"
#include "weights/shard_index.h"
#include "weights/weight_source.h"

namespace tarn {
namespace {

using SourceResult = Result<std::shared_ptr<const WeightSource>>;

// All shards together: as many as one file may have.
constexpr size_t kMaxTensors = size_t{1} << 18;

struct OpenShard {
  std::string path;
  SafetensorsFile file;
};

class SafetensorsSource final : public WeightSource {
 public:
  // path: the file, or the index of the shards.
  SafetensorsSource(std::string path, std::vector<OpenShard> shards)
      : path_(std::move(path)), shards_(std::move(shards)) {
    std::vector<WeightTensor> tensors;
    for (const OpenShard& shard : shards_) {
      for (const TensorEntry& entry : shard.file.tensors()) {
        places_.push_back({&shard, &entry});
        tensors.push_back(
            {entry.name, entry.shape,
             entry.is_bytes ? &kBytesEncoding : &EncodingOf(entry.dtype)});
      }
    }
    SetTensors(std::move(tensors));
  }

  std::string path() const override { return path_; }
  // Of the shards' metadata.
  std::vector<QuantisedNote> Notes() const {
    std::vector<QuantisedNote> notes;
    for (const OpenShard& shard : shards_) {
      const auto& metadata = shard.file.metadata();
      const auto note = metadata.find(kQuantisedKey);
      if (note != metadata.end()) notes.push_back({shard.path, note->second});
    }
    return notes;
  }

  std::string Where(const WeightTensor& tensor,
                    int64_t element) const override {
    const Place& place = places_[IndexOf(tensor)];
    return StrCat(place.shard->path, ": tensor ", Quoted(tensor.name, 200),
                  " at byte ",
                  place.shard->file.data_offset() + place.entry->begin +
                      static_cast<uint64_t>(tensor.encoding->Bytes(element)));
  }

 private:
  struct Place {
    const OpenShard* shard;
    const TensorEntry* entry;
  };

  // Calls f(bytes of a row's columns, number of the row among `rows`).
  template <typename F>
  void ForRows(size_t index, WeightRange rows, WeightRange columns,
               const F& f) const {
    const WeightTensor& tensor = tensors()[index];
    const Place& place = places_[index];
    const int64_t stride = tensor.encoding->Bytes(tensor.columns());
    const uint8_t* from = place.shard->file.Data(*place.entry) +
                          rows.begin * stride +
                          tensor.encoding->Bytes(columns.begin);
    for (int64_t r = 0; r < rows.size(); ++r) f(from + r * stride, r);
  }

  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    const WeightTensor& tensor = tensors()[index];
    const int64_t width = columns.size();
    if (width == tensor.columns()) {  // rows follow each other
      ForRows(index, {rows.begin, rows.begin + 1}, columns,
              [&](const uint8_t* from, int64_t) {
                tensor.encoding->widen(from, rows.size() * width, out);
              });
      return;
    }
    ForRows(index, rows, columns, [&](const uint8_t* from, int64_t r) {
      tensor.encoding->widen(from, width, out + r * width);
    });
  }

  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    const int64_t bytes = tensors()[index].encoding->Bytes(columns.size());
    ForRows(index, rows, columns, [&](const uint8_t* from, int64_t r) {
      std::memcpy(out + r * bytes, from, static_cast<size_t>(bytes));
    });
  }

  void Release(const WeightTensor& tensor) const override {
    const Place& place = places_[IndexOf(tensor)];
    place.shard->file.Release(*place.entry);
  }

  const std::string path_;
  const std::vector<OpenShard> shards_;
  std::vector<Place> places_;  // of tensors(), into shards_
};

Result<SafetensorsFile> OpenFile(const std::string& path, bool use_mmap) {
  return SafetensorsFile::Open(path, use_mmap,
                               SafetensorsTypes::kNumbersAndBytes);
}

SourceResult Joined(const std::string& path, std::vector<OpenShard> shards) {
  auto stored = std::make_shared<SafetensorsSource>(path, std::move(shards));
  const std::vector<QuantisedNote> notes = stored->Notes();
  return JoinQuantised(std::move(stored), notes);
}

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

// Every tensor of the shards is in the index under its file, and the other way
// round.
std::optional<Error> CheckShard(const OpenShard& shard, const std::string& name,
                                const std::map<std::string, std::string>& index,
                                const std::string& index_path) {
  for (const TensorEntry& entry : shard.file.tensors()) {
    const auto found = index.find(entry.name);
    if (found != index.end() && found->second == name) continue;
    return FormatError(
        StrCat(shard.path, ": tensor ", Quoted(entry.name, 200)),
        StrCat("a tensor that ", index_path, " finds in this file"),
        found == index.end()
            ? "one that it does not name"
            : StrCat("one that it finds in ", Quoted(found->second, 200)));
  }
  return std::nullopt;
}

SourceResult OpenShards(const std::string& dir, const std::string& index_path,
                        bool use_mmap) {
  const Result<std::string> text = ReadFile(index_path, kMaxIndexBytes);
  if (!text.ok()) return text.error();
  const auto index = ShardsFromJson(text.value(), index_path);
  if (!index.ok()) return index.error();
  std::map<std::string, std::set<std::string_view>> files;  // their tensors
  for (const auto& [tensor, file] : index.value()) files[file].insert(tensor);
  if (index.value().size() > kMaxTensors) {
    return FormatError(index_path, StrCat("at most ", kMaxTensors, " tensors"),
                       StrCat(index.value().size()));
  }
  std::vector<OpenShard> shards;
  for (const auto& [name, tensors] : files) {
    const std::string path = dir + "/" + name;
    Result<SafetensorsFile> file = OpenFile(path, use_mmap);
    if (!file.ok()) return file.error();
    shards.push_back({path, std::move(file).Take()});
    const OpenShard& shard = shards.back();
    if (auto error = CheckShard(shard, name, index.value(), index_path)) {
      return *error;
    }
    for (const std::string_view tensor : tensors) {
      if (shard.file.Find(std::string(tensor)) != nullptr) continue;
      return FormatError(path,
                         StrCat("the tensor ", Quoted(tensor, 200), ", which ",
                                index_path, " finds in this file"),
                         "no such tensor");
    }
  }
  return Joined(index_path, std::move(shards));
}

}  // namespace

SourceResult OpenWeightFile(const std::string& path, bool use_mmap) {
  Result<SafetensorsFile> file = OpenFile(path, use_mmap);
  if (!file.ok()) return file.error();
  std::vector<OpenShard> shards;
  shards.push_back({path, std::move(file).Take()});
  return Joined(path, std::move(shards));
}

SourceResult OpenWeightSource(const std::string& dir, bool use_mmap) {
  const std::string path = dir + "/model.safetensors";
  const std::string index = path + ".index.json";
  // A single file wins, as it does for the tools that write both.
  if (Exists(path) || !Exists(index)) return OpenWeightFile(path, use_mmap);
  return OpenShards(dir, index, use_mmap);
}

}  // namespace tarn
