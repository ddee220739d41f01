#include "text/template/ordered_json.h"

#include <utility>
#include <vector>

#include "core/json.h"

namespace tarn {
namespace {

using KeptOrder = nlohmann::ordered_json;

// Builds the values of a text that ParseStrictJson has accepted: no key comes
// twice, so that members are appended without a search.
class OrderedBuilder final : public nlohmann::json_sax<KeptOrder> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(KeptOrder::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(KeptOrder::object()); }
  bool start_array(size_t) override { return Open(KeptOrder::array()); }
  bool end_object() override { return CloseLevel(); }
  bool end_array() override { return CloseLevel(); }
  bool key(std::string& name) override {
    levels_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&,
                   const KeptOrder::exception&) override {
    return false;
  }

  KeptOrder& root() { return root_; }

 private:
  struct Level {
    KeptOrder value;  // an array or an object under construction
    std::string key;  // of the member being read, in an object
  };

  bool Open(KeptOrder container) {
    levels_.push_back({std::move(container), {}});
    return true;
  }

  bool CloseLevel() {
    KeptOrder value = std::move(levels_.back().value);
    levels_.pop_back();
    return Add(std::move(value));
  }

  bool Add(KeptOrder value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      level.value.get_ref<KeptOrder::object_t&>().emplace_back(
          std::move(level.key), std::move(value));
    }
    return true;
  }

  std::vector<Level> levels_;
  KeptOrder root_;
};

}  // namespace

Result<KeptOrder> ParseOrderedJson(std::string_view text,
                                   const std::string& where,
                                   uint64_t max_bytes) {
  const Result<nlohmann::json> strict = ParseStrictJson(text, where, max_bytes);
  if (!strict.ok()) return strict.error();
  OrderedBuilder builder;
  if (!KeptOrder::sax_parse(text.data(), text.data() + text.size(), &builder)) {
    return FormatError(where, "strict JSON", "something else");
  }
  return std::move(builder.root());
}

}  // namespace tarn
