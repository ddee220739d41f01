// Tensors in groups, joined from the tensors that a file holds for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "weights/weight_source.h"

namespace tarn {

/// What the metadata of a file say of its tensors in groups (kQuantisedKey of
/// stored_groups.h).
struct QuantisedNote {
  std::string path;  // of the file
  std::string text;
};

/// `stored` as its tensors are meant: those that the notes name with the
/// encodings of their schemes, in the blocks that matrices take as they are,
/// and the others as they are. `stored` itself where no note names a tensor and
/// no tensor holds bytes. FormatError in one line for notes that are not of the
/// form, for parts that are missing or have another type or shape, for a tensor
/// that is there a second time, and for bytes that belong to no tensor. Scales
/// and minima that are no numbers are found when they are read: reads throw
/// FormatError.
Result<std::shared_ptr<const WeightSource>> JoinQuantised(
    std::shared_ptr<const WeightSource> stored,
    const std::vector<QuantisedNote>& notes);

}  // namespace tarn
