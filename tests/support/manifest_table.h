// The rows of tests/cluster/bad_manifests/manifests.yaml as whole manifests.
#ifndef EVERSTEP_TESTS_SUPPORT_MANIFEST_TABLE_H_
#define EVERSTEP_TESTS_SUPPORT_MANIFEST_TABLE_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/files.h"
#include "operator/api/document.h"

namespace everstep {

struct ManifestRow {
  std::string name;
  std::optional<OrderedJson> before;  // what exists, where the manifest is an update
  OrderedJson manifest;
  std::string message;   // of the API server
  std::string validate;  // of everstep validate

  friend void PrintTo(const ManifestRow& row, std::ostream* out) { *out << row.name; }
};

// `part`: refused or accepted.
inline std::vector<ManifestRow> ReadManifestTable(const std::string& part) {
  const std::string path =
      std::string(EVERSTEP_SOURCE_DIR) + "/tests/cluster/bad_manifests/manifests.yaml";
  const auto table = ParseDocument(ReadFile(path).value_or(""), path);
  if (!table) {
    ADD_FAILURE() << table.error().message;
    return {};
  }
  const auto laid_over = [&](const OrderedJson& patch) {
    OrderedJson manifest = table->value["good"];
    manifest.merge_patch(patch);
    return manifest;
  };
  std::vector<ManifestRow> rows;
  for (const OrderedJson& entry : table->value[part]) {
    ManifestRow row{entry["name"], std::nullopt, laid_over(entry["patch"]),
                    entry.value("message", ""), entry.value("validate", "")};
    if (entry.contains("before")) row.before = laid_over(entry["before"]);
    rows.push_back(std::move(row));
  }
  return rows;
}

// For the names of parameterized tests.
inline std::string TestNameOf(const ::testing::TestParamInfo<ManifestRow>& info) {
  std::string name;
  for (const char c : info.param.name) name += c == '-' ? '_' : c;
  return name;
}

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_MANIFEST_TABLE_H_
