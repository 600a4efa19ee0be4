#include "operator/api/crd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/strings.h"
#include "operator/api/document.h"
#include "operator/api/job_rules.h"
#include "operator/api/schema.h"
#include "operator/api/training_job.h"
#include "operator/api/yaml_text.h"

namespace everstep {
namespace {

using testing::HasSubstr;

std::string ReadSource(const std::string& path) {
  return ReadFile(std::string(EVERSTEP_SOURCE_DIR) + "/" + path).value_or("");
}

const OrderedJson& Root() {
  static const OrderedJson crd = BuildCrd();
  return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
}

// The schema at "spec.env.name"; entries of a list are where the list is.
OrderedJson SchemaAt(std::string_view path) {
  OrderedJson at = Root();
  for (const std::string& word : SplitAndTrim(path, '.')) {
    if (at.contains("items")) at = OrderedJson(at["items"]);
    if (!at.contains("properties") || !at["properties"].contains(word)) return {};
    at = OrderedJson(at["properties"][word]);
  }
  return at;
}

TEST(CrdTest, TheFilesAreWhatTheTablesSay) {
  const std::string made = CrdYaml();
  for (const char* path : {"crds/everstep.dev_trainingjobs.yaml",
                           "helm/everstep/files/everstep.dev_trainingjobs.yaml"}) {
    EXPECT_EQ(ReadSource(path), made) << path << ": run make manifests";
  }
}

// A change of the API is seen in a review.
TEST(CrdTest, TheFieldsAreThoseOfTheList) {
  EXPECT_EQ(FieldListText(), ReadSource("tests/data/trainingjob_fields.txt"))
      << "if that is meant: run make manifests";
}

TEST(CrdTest, EveryFieldIsInTheSchemaWithItsRangeAndDefault) {
  for (const FieldRule& field : TrainingJobFields()) {
    const OrderedJson schema = SchemaAt(field.path);
    ASSERT_TRUE(schema.is_object()) << field.path;
    if (!field.path.starts_with("spec.")) continue;
    EXPECT_EQ(schema.value("description", ""), field.about) << field.path;
    EXPECT_EQ(schema.contains("default"), !field.preset.empty()) << field.path;
    const OrderedJson items = schema.value("items", schema);
    if (field.type == FieldType::kInteger || field.type == FieldType::kNumber) {
      EXPECT_EQ(items["minimum"].get<double>(), field.minimum) << field.path;
      EXPECT_EQ(items["maximum"].get<double>(), field.maximum) << field.path;
    }
    if (!field.choices.empty()) {
      EXPECT_EQ(items["enum"], OrderedJson(field.choices)) << field.path;
    }
  }
}

// The API server fills in what the table says; everstep run what the struct says.
TEST(CrdTest, DefaultsAreThoseOfTheSpec) {
  OrderedJson least = {{"apiVersion", "everstep.dev/v1alpha1"},
                       {"kind", "TrainingJob"},
                       {"metadata", {{"name", "job"}}},
                       {"spec", {{"command", {"x"}}}}};
  OrderedJson filled = least;
  for (const FieldRule& field : TrainingJobFields()) {
    if (field.preset.empty()) continue;
    std::string pointer = "/" + std::string(field.path);
    for (char& c : pointer) c = c == '.' ? '/' : c;
    filled[OrderedJson::json_pointer(pointer)] = OrderedJson::parse(field.preset);
  }
  const auto job = ParseTrainingJob({"job", least, {}});
  const auto with_defaults = ParseTrainingJob({"job", filled, {}});
  ASSERT_TRUE(job && with_defaults) << with_defaults.error().message;
  EXPECT_TRUE(job->spec == with_defaults->spec);
  EXPECT_GT(filled["spec"].size(), 10u);
}

// A default inside an object counts only where the object is there.
TEST(CrdTest, WhatHasDefaultsInsideHasOneItself) {
  for (const FieldRule& field : TrainingJobFields()) {
    if (field.preset.empty()) continue;
    const std::string_view parent = field.path.substr(0, field.path.rfind('.'));
    if (parent == "spec") continue;
    EXPECT_EQ(FindField(parent)->preset, "{}") << field.path;
  }
}

// Rules that no bound limits cost too much for an API server.
TEST(CrdTest, EveryTextAndListHasABound) {
  for (const FieldRule& field : TrainingJobFields()) {
    if (!field.path.starts_with("spec.")) continue;
    const OrderedJson schema = SchemaAt(field.path);
    if (field.type == FieldType::kText && field.choices.empty()) {
      EXPECT_GT(schema.value("maxLength", 0), 0) << field.path;
    }
    if (schema.value("type", "") == "array") {
      EXPECT_GT(schema.value("maxItems", 0), 0) << field.path;
    }
  }
}

TEST(CrdTest, WhatIsNotLiveCannotChange) {
  const std::string rules = DumpJson(Root()["properties"]["spec"]["x-kubernetes-validations"]);
  for (const FieldRule* field : FieldsBelow("spec")) {
    const std::string path(field->path);
    EXPECT_EQ(rules.find(path + " cannot change while the job runs") == std::string::npos,
              field->live)
        << path;
  }
}

TEST(CrdTest, RulesPointAtFieldsThatThereAre) {
  for (const JobRule& rule : JobRules()) EXPECT_NE(FindField(rule.path), nullptr) << rule.path;
}

TEST(CrdTest, ColumnsPointAtFieldsOfTheStatus) {
  const OrderedJson crd = BuildCrd();
  std::string names;
  for (const OrderedJson& column : crd["spec"]["versions"][0]["additionalPrinterColumns"]) {
    names += column["name"].get<std::string>() + (column["priority"] == 0 ? " " : "* ");
    const auto path = column["jsonPath"].get<std::string>().substr(1);
    if (path == "metadata.creationTimestamp") continue;
    EXPECT_EQ(SchemaAt(path).value("type", ""), column["type"]) << path;
  }
  EXPECT_EQ(names,
            "Phase Ready Step Checkpoint Restarts Goodput World* Generation* ETA* Reason* Age ");
}

TEST(YamlTextTest, IsReadAsWhatItWas) {
  const OrderedJson value = {
      {"plain", "two words"},
      {"list", {"a", OrderedJson::array({"nested"}), {{"key", 1}, {"other", {{"deep", true}}}}}},
      {"empty", OrderedJson::object()},
      {"none", OrderedJson::array()},
      {"odd",
       {"yes", "No", "1", "", " x", "a: b", "#c", "it's \"so\"", "~", "null", "-", "1e3", "ä"}},
      {"numbers", {1, -2, 0.5, nullptr, false}}};
  const auto read = ParseDocument(YamlText(value), "text");
  ASSERT_TRUE(read.has_value()) << read.error().message << YamlText(value);
  EXPECT_EQ(read->value, value) << YamlText(value);
}

}  // namespace
}  // namespace everstep
