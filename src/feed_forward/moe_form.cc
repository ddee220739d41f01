#include "feed_forward/moe_form.h"

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// Keys in the order of help and of the section.
std::vector<OwnKey> MoeKeys() {
  return {{.name = "experts",
           .help = "moe: experts of a layer",
           .type = IntegerKey{1, 4096, 8}},
          {.name = "experts_per_token",
           .help = "moe: experts that a token goes to",
           .type = IntegerKey{1, 256, 2},
           .key = "per_token"},
          {.name = "d_expert",
           .help = "moe: hidden width of an expert; 0: d_ff",
           .type = IntegerKey{0, kMaxHidden, 0}},
          {.name = "expert_part",
           .help = "moe: feed-forward part of the experts",
           .type = WordKey{{"swiglu", "geglu", "relu2"}, 0},
           .key = "part"},
          {.name = "router",
           .help = "moe: scores of the experts",
           .type = WordKey{{"softmax", "sigmoid", "biased-sigmoid"}, 0}},
          {.name = "router_normalize",
           .help = "moe: divide a token's weights by their sum",
           .type = FlagKey{true},
           .key = "normalize"},
          {.name = "router_scale",
           .help = "moe: factor of a token's weights",
           .type = RealKey{1e-6, 1e6, 1.0},
           .key = "scale"},
          {.name = "d_shared",
           .help = "moe: hidden width of the expert of all tokens; 0: none",
           .type = IntegerKey{0, kMaxHidden, 0}},
          {.name = "shared_gate",
           .help = "moe: multiply the shared expert by a gate of the token",
           .type = FlagKey{false}},
          {.name = "balance_loss",
           .help = "moe: factor of the load-balancing loss",
           .type = RealKey{0.0, 1e3, 0.01},
           .training = true}};
}

// The maps of `count` experts of one part; count 0: of a shared one.
void AddExpert(const MoeForm& form, int64_t d_model, int64_t width,
               int64_t count, const std::string& name,
               std::vector<NamedShape>& shapes) {
  const auto add = [&](const char* map, int64_t out, int64_t in) {
    if (count > 0) {
      shapes.push_back({name + map, {count, out, in}});
    } else {
      shapes.push_back({name + map + ".weight", {out, in}});
    }
  };
  add("linear1", width, d_model);
  add("linear2", d_model, width);
  if (form.gated()) add("linear3", width, d_model);
}

std::vector<NamedShape> MoeShapes(const ModelConfig& layer) {
  const MoeForm form = MoeFormOf(layer);
  std::vector<NamedShape> shapes = {
      {"router.weight", {form.experts, layer.d_model}}};
  if (form.biased()) shapes.push_back({"router_bias", {form.experts}});
  AddExpert(form, layer.d_model, form.width, form.experts, "experts.", shapes);
  if (form.shared_width > 0) {
    AddExpert(form, layer.d_model, form.shared_width, 0, "shared.", shapes);
    if (form.shared_gate) {
      shapes.push_back({"shared_gate.weight", {1, layer.d_model}});
    }
  }
  return shapes;
}

int64_t MoeUsed(const ModelConfig& layer) {
  const MoeForm form = MoeFormOf(layer);
  const int64_t expert = (form.gated() ? 3 : 2) * form.width * layer.d_model;
  return TrainedNumbers(MoeShapes(layer)) -
         (form.experts - form.per_token) * expert;
}

void CheckMoe(const ModelConfig& layer) {
  const MoeForm form = MoeFormOf(layer);
  if (form.per_token > form.experts) {
    throw ArgumentError("experts_per_token",
                        StrCat("at most experts = ", form.experts),
                        StrCat(form.per_token));
  }
  if (form.shared_gate && form.shared_width == 0) {
    throw ArgumentError("shared_gate",
                        "false without a shared expert (d_shared)", "true");
  }
}

}  // namespace

MoeForm MoeFormOf(const ModelConfig& layer) {
  MoeForm form;
  form.experts = KeyOf<int64_t>(layer, "experts");
  form.per_token = KeyOf<int64_t>(layer, "experts_per_token");
  form.width = KeyOf<int64_t>(layer, "d_expert");
  if (form.width == 0) form.width = layer.d_ff;
  form.shared_width = KeyOf<int64_t>(layer, "d_shared");
  form.part = KeyOf<ExpertPart>(layer, "expert_part");
  form.router = KeyOf<RouterKind>(layer, "router");
  form.normalize = KeyOf<bool>(layer, "router_normalize");
  form.shared_gate = KeyOf<bool>(layer, "shared_gate");
  form.scale = KeyOf<double>(layer, "router_scale");
  form.balance = KeyOf<double>(layer, "balance_loss");
  return form;
}

FeedForwardSpec MoeFeedForward() {
  return {.name = "moe",
          .weights = MoeShapes,
          .precise = {{"router.weight", Precision::kFloat},
                      {"shared_gate.weight", Precision::kFloat}},
          .check = CheckMoe,
          .used = MoeUsed,
          .seq2seq = false,
          .keys = MoeKeys()};
}

}  // namespace tarn
