#include "operator/api/crd.h"

#include "common/strings.h"
#include "operator/api/job_rules.h"
#include "operator/api/names.h"
#include "operator/api/schema.h"
#include "operator/api/yaml_text.h"

namespace everstep {
namespace {

constexpr char kUnknownFields[] = "x-kubernetes-preserve-unknown-fields";
constexpr char kValidations[] = "x-kubernetes-validations";
constexpr char kListType[] = "x-kubernetes-list-type";

OrderedJson List(std::initializer_list<OrderedJson> entries) {
  return OrderedJson::array_t(entries);
}

// Whole numbers without a fraction.
OrderedJson NumberJson(double number) {
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? OrderedJson(whole) : OrderedJson(number);
}

OrderedJson Validation(std::string_view cel, std::string_view message) {
  return {{"rule", cel}, {"message", message}};
}

// ---- Spec ----

OrderedJson NumberSchema(const FieldRule& rule, const char* type) {
  OrderedJson schema = {{"type", type}};
  if (rule.type != FieldType::kNumber) schema["format"] = "int32";
  schema["minimum"] = NumberJson(rule.minimum);
  schema["maximum"] = NumberJson(rule.maximum);
  return schema;
}

OrderedJson IntegerOrAutoSchema(const FieldRule& rule) {
  const std::string least = NumberText(rule.minimum), most = NumberText(rule.maximum);
  return {{"x-kubernetes-int-or-string", true},
          {"maxLength", 4},
          {kValidations,
           List({Validation(
               "type(self) == int ? self >= " + least + " && self <= " + most + " : self == 'auto'",
               "must be a whole number from " + least + " to " + most + ", or auto")})}};
}

OrderedJson TextSchema(const FieldRule& rule) {
  OrderedJson schema = {{"type", "string"}};
  if (rule.longest > 0) schema["maxLength"] = rule.longest;
  if (!rule.choices.empty()) schema["enum"] = rule.choices;
  if (rule.form != nullptr) {
    const std::string cel = "self.matches(r'" + std::string(rule.form->pattern) + "')";
    schema[kValidations] = List({Validation(cel, rule.form->must)});
  }
  return schema;
}

OrderedJson SchemaOf(const FieldRule& rule);

OrderedJson ObjectSchema(const FieldRule& rule) {
  OrderedJson schema = {{"type", "object"}};
  OrderedJson required = OrderedJson::array();
  for (const FieldRule* field : FieldsBelow(rule.path)) {
    if (field->required) required.push_back(FieldName(*field));
    schema["properties"][std::string(FieldName(*field))] = SchemaOf(*field);
  }
  if (!required.empty()) schema["required"] = required;
  if (rule.type == FieldType::kOpen) schema[kUnknownFields] = true;
  return schema;
}

OrderedJson ListSchema(const FieldRule& rule, OrderedJson items) {
  return {{"type", "array"}, {"maxItems", rule.most}, {kListType, "atomic"}, {"items", items}};
}

OrderedJson EntryListSchema(const FieldRule& rule) {
  OrderedJson items = ObjectSchema(rule);
  for (const EnvRule& env : EnvRules()) {
    items[kValidations].push_back(Validation(env.cel, env.message));
  }
  OrderedJson schema = ListSchema(rule, items);
  schema[kListType] = "map";
  schema["x-kubernetes-list-map-keys"] = List({"name"});
  return schema;
}

OrderedJson TypeSchema(const FieldRule& rule) {
  switch (rule.type) {
    case FieldType::kObject:
    case FieldType::kOpen:
      return ObjectSchema(rule);
    case FieldType::kMapping:
    case FieldType::kFree:
      return {{"type", "object"}, {kUnknownFields, true}};
    case FieldType::kTextMap:
      return {{"type", "object"},
              {"maxProperties", rule.most},
              {"additionalProperties", TextSchema(rule)}};
    case FieldType::kInteger:
      return NumberSchema(rule, "integer");
    case FieldType::kNumber:
      return NumberSchema(rule, "number");
    case FieldType::kIntegerOrAuto:
      return IntegerOrAutoSchema(rule);
    case FieldType::kBool:
      return {{"type", "boolean"}};
    case FieldType::kText:
      return TextSchema(rule);
    case FieldType::kTextList:
      return ListSchema(rule, TextSchema(rule));
    case FieldType::kIntegerList:
      return ListSchema(rule, NumberSchema(rule, "integer"));
    case FieldType::kList:
      return EntryListSchema(rule);
  }
  return {};
}

OrderedJson SchemaOf(const FieldRule& rule) {
  OrderedJson schema = {{"description", rule.about}};
  if (!rule.preset.empty()) schema["default"] = OrderedJson::parse(rule.preset);
  schema.update(TypeSchema(rule));
  return schema;
}

// The path of a field of the spec as seen from the spec.
std::string Below(std::string_view path) {
  return std::string(path.substr(std::string_view("spec").size()));
}

OrderedJson SpecSchema() {
  OrderedJson schema = SchemaOf(*FindField("spec"));
  OrderedJson rules = OrderedJson::array();
  for (const JobRule& rule : JobRules()) {
    OrderedJson validation =
        Validation(rule.cel, std::string(rule.path) + " " + std::string(rule.message));
    validation["fieldPath"] = Below(rule.path);
    rules.push_back(validation);
  }
  for (const FieldRule* field : FieldsBelow("spec")) {
    if (field->live) continue;
    const std::string name(FieldName(*field));
    // The short form, with optional fields, counts as too expensive.
    const std::string now = "self." + name, before = "oldSelf." + name;
    OrderedJson validation = Validation(
        "oldSelf.suspend || (has(" + now + ") == has(" + before + ") && (!has(" + now + ") || " +
            now + " == " + before + "))",
        "spec." + name + " cannot change while the job runs: set spec.suspend: true first");
    validation["reason"] = "FieldValueForbidden";
    validation["fieldPath"] = "." + name;
    rules.push_back(validation);
  }
  schema[kValidations] = rules;
  return schema;
}

// ---- Status ----

OrderedJson Typed(const char* type, const char* about) {
  return {{"description", about}, {"type", type}};
}
OrderedJson Whole(const char* about) {
  OrderedJson schema = Typed("integer", about);
  schema["format"] = "int64";
  return schema;
}
OrderedJson Time(const char* about) {
  OrderedJson schema = Typed("string", about);
  schema["format"] = "date-time";
  return schema;
}

// The operator writes more than is shown.
OrderedJson Open(const char* about, OrderedJson properties) {
  OrderedJson schema = Typed("object", about);
  schema["properties"] = std::move(properties);
  schema[kUnknownFields] = true;
  return schema;
}
OrderedJson OpenList(const char* about, int most, OrderedJson properties) {
  OrderedJson items = Open("One of them.", std::move(properties));
  OrderedJson schema = Typed("array", about);
  schema["maxItems"] = most;
  schema[kListType] = "atomic";
  schema["items"] = items;
  return schema;
}

OrderedJson ConditionsSchema() {
  OrderedJson status = Typed("string", "True, False or Unknown.");
  status["enum"] = {"True", "False", "Unknown"};
  OrderedJson schema = OpenList("What tools wait for.", 32,
                                {{"type", Typed("string", "Ready, Reconciling, Stalled, ...")},
                                 {"status", status},
                                 {"reason", Typed("string", "One word.")},
                                 {"message", Typed("string", "For people.")},
                                 {"lastTransitionTime", Time("Since when.")},
                                 {"observedGeneration", Whole("Of which generation.")}});
  schema["items"]["required"] = List({"type", "status"});
  schema[kListType] = "map";
  schema["x-kubernetes-list-map-keys"] = List({"type"});
  return schema;
}

OrderedJson StatusSchema() {
  OrderedJson properties = {
      {"observedGeneration", Whole("metadata.generation that the status is about.")},
      {"phase", Typed("string", "Pending, Running, Recovering, Suspended, Succeeded or Failed.")},
      {"message", Typed("string", "What the job waits for, or why it ended.")},
      {"ready", Typed("string", "Pods that run, of those wanted: 3/4.")},
      {"selector", Typed("string", "Selects the job's pods.")},
      {"conditions", ConditionsSchema()},
      {"startTime", Time("When the job started, or was resumed.")},
      {"completionTime", Time("When it ended.")},
      {"attempt",
       Open("The membership of now.", {{"generation", Whole("Grows with each membership.")},
                                       {"worldSize", Whole("Live ranks.")}})},
      {"progress", Open("Of training.", {{"step", Whole("Completed steps.")},
                                         {"totalSteps", Whole("All there are to do.")},
                                         {"eta", Typed("string", "Time left.")}})},
      {"checkpoint", Open("The newest.", {{"step", Whole("Its step.")}})},
      {"restarts", Open("How often something was started again.",
                        {{"total", Whole("All that were charged.")},
                         {"inWindow", Whole("Charged against maxRestarts now.")}})},
      {"goodput", Open("How well time was used.",
                       {{"ratio", Typed("string", "Time in steps that count, of all.")}})},
      {"replicaStatuses",
       Open("Counts of pods.", {{"desired", Whole("Wanted.")}, {"running", Whole("Running.")}})},
      {"incidents", OpenList("The newest failures.", 32, {{"cause", Typed("string", "Why.")}})},
      {"excludedNodes",
       OpenList("Nodes that the job keeps off.", 64, {{"name", Typed("string", "The node.")}})},
  };
  OrderedJson schema = Open("What the operator has to say.", properties);
  // Tools that know only what all kinds have in common take an object without a status for done.
  schema["default"] = {{"observedGeneration", -1}};
  return schema;
}

// ---- The whole ----

OrderedJson Column(const char* name, const char* type, const char* path, const char* about,
                   int priority = 0) {
  return {{"name", name},
          {"type", type},
          {"jsonPath", path},
          {"description", about},
          {"priority", priority}};
}

OrderedJson Columns() {
  return List(
      {Column("Phase", "string", ".status.phase", "What the job is doing"),
       Column("Ready", "string", ".status.ready", "Pods that run, of those wanted"),
       Column("Step", "integer", ".status.progress.step", "Completed steps"),
       Column("Checkpoint", "integer", ".status.checkpoint.step", "Step of the newest checkpoint"),
       Column("Restarts", "integer", ".status.restarts.total", "Restarts that were charged"),
       Column("Goodput", "string", ".status.goodput.ratio", "Time in steps that count, of all"),
       Column("World", "integer", ".status.attempt.worldSize", "Live ranks", 1),
       Column("Generation", "integer", ".status.attempt.generation", "Membership", 1),
       Column("ETA", "string", ".status.progress.eta", "Time left", 1),
       Column("Reason", "string", ".status.message", "What it waits for, or why it ended", 1),
       Column("Age", "date", ".metadata.creationTimestamp", "Since its creation")});
}

OrderedJson RootSchema() {
  OrderedJson schema = {{"description", "A training job that outlives its pods and nodes."},
                        {"type", "object"},
                        {"required", List({"spec"})}};
  for (const NameRule& rule : NameRules()) {
    schema[kValidations].push_back(
        Validation(rule.cel, "metadata.name " + std::string(rule.message)));
  }
  schema["properties"] = {{"apiVersion", {{"type", "string"}}},
                          {"kind", {{"type", "string"}}},
                          {"metadata", {{"type", "object"}}},
                          {"spec", SpecSchema()},
                          {"status", StatusSchema()}};
  return schema;
}

// ---- The list of fields ----

std::string Describe(const FieldRule& field) {
  static const char* const kTypes[] = {
      "object",          "open object", "mapping", "text map",  "free",         "integer", "number",
      "integer or auto", "boolean",     "text",    "text list", "integer list", "list"};
  std::string line = std::string(field.path) + ": " + kTypes[static_cast<int>(field.type)];
  const bool ranged = field.type == FieldType::kInteger || field.type == FieldType::kNumber ||
                      field.type == FieldType::kIntegerOrAuto ||
                      field.type == FieldType::kIntegerList;
  if (ranged) line += " " + NumberText(field.minimum) + ".." + NumberText(field.maximum);
  if (!field.choices.empty()) {
    line += " " + Join({field.choices.begin(), field.choices.end()}, "|");
  }
  if (field.longest > 0) line += ", at most " + std::to_string(field.longest) + " characters";
  if (field.most > 0) line += ", at most " + std::to_string(field.most) + " entries";
  if (!field.preset.empty()) line += ", default " + std::string(field.preset);
  if (field.required) line += ", required";
  if (field.live) line += ", live";
  return line + "\n";
}

}  // namespace

std::string FieldListText() {
  std::string text;
  for (const FieldRule& field : TrainingJobFields()) text += Describe(field);
  return text;
}

OrderedJson BuildCrd() {
  OrderedJson version = {{"name", "v1alpha1"}, {"served", true}, {"storage", true}};
  version["subresources"] = {{"status", OrderedJson::object()},
                             {"scale",
                              {{"specReplicasPath", ".spec.replicas"},
                               {"statusReplicasPath", ".status.replicaStatuses.running"},
                               {"labelSelectorPath", ".status.selector"}}}};
  version["additionalPrinterColumns"] = Columns();
  version["schema"] = {{"openAPIV3Schema", RootSchema()}};
  OrderedJson crd;
  crd["apiVersion"] = "apiextensions.k8s.io/v1";
  crd["kind"] = "CustomResourceDefinition";
  crd["metadata"] = {{"name", "trainingjobs.everstep.dev"}};
  crd["spec"] = {{"group", "everstep.dev"},
                 {"scope", "Namespaced"},
                 {"names",
                  {{"kind", names::kKind},
                   {"listKind", "TrainingJobList"},
                   {"plural", "trainingjobs"},
                   {"singular", "trainingjob"},
                   {"shortNames", List({"tj"})},
                   {"categories", List({"all"})}}},
                 {"versions", List({version})}};
  return crd;
}

std::string CrdYaml() {
  return "# Made by build/bin/everstep-crd (make manifests): change operator/api/fields.cc or "
         "job_rules.cc.\n" +
         YamlText(BuildCrd());
}

}  // namespace everstep
