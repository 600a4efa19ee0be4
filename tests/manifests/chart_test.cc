// The chart as helm renders it, with several values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/strings.h"
#include "operator/api/document.h"
#include "operator/api/names.h"
#include "tests/cluster/test_cluster.h"
#include "tests/support/paths.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kSource = EVERSTEP_SOURCE_DIR;

std::string Helm() { return CacheDir() + "/kubernetes-1.34.4/helm"; }

// The objects of a YAML stream; parts with comments alone are none.
std::vector<OrderedJson> ObjectsOf(const std::string& text) {
  std::vector<OrderedJson> objects;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find("\n---", at), text.size());
    const auto document = ParseDocument(text.substr(at, end - at), "manifest");
    if (document) {
      objects.push_back(document->value);
    } else {
      EXPECT_THAT(document.error().message, HasSubstr("is empty")) << text.substr(at, end - at);
    }
    at = end + 4;
  }
  return objects;
}

class ChartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(Helm())) GTEST_SKIP() << Helm() << " is not there: run make cluster-tools";
  }

  static testing::CommandResult RunHelm(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Helm());
    return testing::RunCommand(arguments);
  }

  static testing::CommandResult Template(const std::vector<std::string>& sets) {
    std::vector<std::string> arguments{"template",    "everstep", kSource + "/helm/everstep",
                                       "--namespace", "ops",      "--kube-version",
                                       "1.34.4"};
    for (const std::string& set : sets) arguments.push_back("--set-json=" + set);
    return RunHelm(arguments);
  }

  static std::vector<OrderedJson> Render(const std::vector<std::string>& sets = {}) {
    const auto rendered = Template(sets);
    EXPECT_TRUE(rendered.ok()) << rendered.Text();
    return ObjectsOf(rendered.output);
  }

  static std::vector<OrderedJson> OfKind(const std::vector<OrderedJson>& objects,
                                         const std::string& kind) {
    std::vector<OrderedJson> found;
    for (const OrderedJson& object : objects) {
      if (object["kind"] == kind) found.push_back(object);
    }
    return found;
  }

  static OrderedJson Only(const std::vector<OrderedJson>& objects, const std::string& kind) {
    const auto found = OfKind(objects, kind);
    EXPECT_EQ(found.size(), 1u) << kind;
    return found.empty() ? OrderedJson() : found.front();
  }

  static OrderedJson Named(const std::vector<OrderedJson>& objects, const std::string& kind,
                           const std::string& name) {
    for (const OrderedJson& object : OfKind(objects, kind)) {
      if (object["metadata"]["name"] == name) return object;
    }
    ADD_FAILURE() << "no " << kind << " " << name;
    return {};
  }

  // Every rule of every role, as "Role ops/everstep-operator: {...}".
  static std::vector<std::pair<std::string, OrderedJson>> Rules(
      const std::vector<OrderedJson>& objects) {
    std::vector<std::pair<std::string, OrderedJson>> rules;
    for (const char* kind : {"Role", "ClusterRole"}) {
      for (const OrderedJson& role : OfKind(objects, kind)) {
        const std::string name = std::string(kind) + " " + role["metadata"].value("namespace", "") +
                                 "/" + role["metadata"]["name"].get<std::string>();
        for (const OrderedJson& rule : role["rules"]) rules.emplace_back(name, rule);
      }
    }
    return rules;
  }

  static bool Has(const OrderedJson& list, const std::string& text) {
    return std::ranges::find(list, OrderedJson(text)) != list.end();
  }

  static OrderedJson PodSpec(const std::vector<OrderedJson>& objects) {
    return Only(objects, "Deployment")["spec"]["template"]["spec"];
  }
};

const std::vector<std::vector<std::string>> kValues{
    {},
    {R"(watchNamespaces=["team-a","team-b"])"},
    {R"(rbac={"create":true,"nodes":false})", R"(replicas=1)"},
};

TEST_F(ChartTest, LintsCleanly) {
  const auto lint = RunHelm({"lint", "--strict", kSource + "/helm/everstep"});
  EXPECT_TRUE(lint.ok()) << lint.Text();
  EXPECT_THAT(lint.output, Not(HasSubstr("[WARNING]")));
  EXPECT_THAT(lint.output, HasSubstr("0 chart(s) failed"));
}

TEST_F(ChartTest, GrantsNoWildcard) {
  for (const auto& values : kValues) {
    const auto rules = Rules(Render(values));
    EXPECT_GE(rules.size(), 8u);
    for (const auto& [role, rule] : rules) {
      EXPECT_THAT(DumpJson(rule), Not(HasSubstr("*"))) << role;
    }
  }
}

TEST_F(ChartTest, ReadsNoSecretButItsOwnAndCannotEscalate) {
  for (const auto& values : kValues) {
    for (const auto& [role, rule] : Rules(Render(values))) {
      for (const char* resource : {"serviceaccounts", "pods/exec", "roles", "clusterroles",
                                   "rolebindings", "clusterrolebindings", "namespaces"}) {
        EXPECT_FALSE(Has(rule["resources"], resource)) << role;
      }
      if (!Has(rule["resources"], "secrets")) continue;
      EXPECT_EQ(role, "Role ops/everstep-operator");
      if (rule["verbs"] == OrderedJson::array({"create"})) continue;
      EXPECT_EQ(rule["resourceNames"], OrderedJson::array({"everstep-rendezvous-ca"}));
      EXPECT_EQ(rule["verbs"], OrderedJson::array({"get", "update", "patch"}));
    }
  }
}

TEST_F(ChartTest, InSomeNamespacesOnlyTokensAreReviewedForTheCluster) {
  const auto objects = Render({R"(watchNamespaces=["team-a","team-b"])"});
  const OrderedJson role = Only(objects, "ClusterRole");
  EXPECT_EQ(DumpJson(role["rules"]),
            R"([{"apiGroups":["authentication.k8s.io"],"resources":["tokenreviews"],)"
            R"("verbs":["create"]}])");
  std::vector<std::string> namespaces;
  for (const OrderedJson& each : OfKind(objects, "Role")) {
    namespaces.push_back(each["metadata"]["namespace"]);
  }
  EXPECT_THAT(namespaces, ::testing::UnorderedElementsAre("team-a", "team-b", "ops"));
  const OrderedJson arguments = PodSpec(objects)["containers"][0]["args"];
  EXPECT_TRUE(Has(arguments, "--namespace=team-a")) << arguments;
  EXPECT_TRUE(Has(arguments, "--namespace=team-b")) << arguments;
}

TEST_F(ChartTest, InAllNamespacesJobsAreRunForTheCluster) {
  const auto objects = Render();
  EXPECT_EQ(OfKind(objects, "Role").size(), 1u);
  EXPECT_THAT(DumpJson(Only(objects, "ClusterRole")["rules"]), HasSubstr("trainingjobs/status"));
  EXPECT_THAT(DumpJson(PodSpec(objects)["containers"][0]["args"]), Not(HasSubstr("--namespace")));
}

// The "restricted" Pod Security Standard, and more.
TEST_F(ChartTest, ThePodIsRestricted) {
  const OrderedJson pod = PodSpec(Render());
  EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(pod["securityContext"]["runAsUser"], 65532);
  EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  for (const char* shared : {"hostNetwork", "hostPID", "hostIPC"})
    EXPECT_FALSE(pod.contains(shared));
  for (const OrderedJson& volume : pod["volumes"]) EXPECT_TRUE(volume.contains("emptyDir"));
  ASSERT_EQ(pod["containers"].size(), 1u);
  const OrderedJson& container = pod["containers"][0];
  EXPECT_EQ(DumpJson(container["securityContext"]),
            R"({"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,)"
            R"("capabilities":{"drop":["ALL"]}})");
  for (const OrderedJson& port : container["ports"]) EXPECT_FALSE(port.contains("hostPort"));
}

TEST_F(ChartTest, TwoReplicasAndOneMayBeTakenAway) {
  const auto objects = Render();
  EXPECT_EQ(Only(objects, "Deployment")["spec"]["replicas"], 2);
  const OrderedJson budget = Only(objects, "PodDisruptionBudget");
  EXPECT_EQ(budget["spec"]["minAvailable"], 1);
  EXPECT_THAT(OfKind(Render({"replicas=1"}), "PodDisruptionBudget"), IsEmpty());
}

// What is selected has to be there: a Service with a mistyped selector has no endpoints.
TEST_F(ChartTest, EverythingSelectsTheOperatorsPods) {
  const auto objects = Render({R"(podLabels={"team":"ml"})"});
  const OrderedJson deployment = Only(objects, "Deployment");
  const OrderedJson labels = deployment["spec"]["template"]["metadata"]["labels"];
  EXPECT_EQ(labels["team"], "ml");
  OrderedJson rendezvous = Named(objects, "Service", "everstep-rendezvous")["spec"]["selector"];
  EXPECT_EQ(rendezvous["everstep.dev/leader"], "true");
  EXPECT_FALSE(labels.contains("everstep.dev/leader"));
  rendezvous.erase("everstep.dev/leader");
  for (const OrderedJson& selector :
       {deployment["spec"]["selector"]["matchLabels"], rendezvous,
        Named(objects, "Service", "everstep-metrics")["spec"]["selector"],
        Only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        Only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]}) {
    EXPECT_FALSE(selector.empty());
    for (const auto& [key, value] : selector.items()) EXPECT_EQ(labels.value(key, ""), value);
  }
}

TEST_F(ChartTest, PortsAndProbesNameWhatThereIs) {
  const auto objects = Render();
  const OrderedJson container = PodSpec(objects)["containers"][0];
  std::map<std::string, int> ports;
  for (const OrderedJson& port : container["ports"]) ports[port["name"]] = port["containerPort"];
  EXPECT_EQ(ports, (std::map<std::string, int>{{"rendezvous", 29400}, {"health", 8081}}));
  EXPECT_EQ(container["livenessProbe"]["httpGet"]["path"], "/healthz");
  EXPECT_EQ(container["readinessProbe"]["httpGet"]["path"], "/readyz");
  EXPECT_TRUE(ports.contains(container["readinessProbe"]["httpGet"]["port"]));
  for (const OrderedJson& service : OfKind(objects, "Service")) {
    for (const OrderedJson& port : service["spec"]["ports"]) {
      EXPECT_TRUE(ports.contains(port["targetPort"])) << service["metadata"]["name"];
    }
  }
  for (const OrderedJson& ingress : Only(objects, "NetworkPolicy")["spec"]["ingress"]) {
    EXPECT_TRUE(ports.contains(ingress["ports"][0]["port"]));
  }
}

TEST_F(ChartTest, ImagesAreOfTheReleaseUnlessSaidOtherwise) {
  const auto arguments = [](const OrderedJson& pod) {
    return DumpJson(pod["containers"][0]["args"]);
  };
  const OrderedJson plain = PodSpec(Render());
  EXPECT_EQ(plain["containers"][0]["image"], "everstep-operator:0.1.0");
  EXPECT_THAT(arguments(plain), HasSubstr("--worker-image=everstep-worker:0.1.0"));
  const OrderedJson other = PodSpec(Render(
      {R"(image={"registry":"r.example/x","tag":"7"})", R"(workerImage={"repository":"w"})"}));
  EXPECT_EQ(other["containers"][0]["image"], "r.example/x/everstep-operator:7");
  EXPECT_THAT(arguments(other), HasSubstr("--worker-image=w:0.1.0"));
  EXPECT_THAT(arguments(other), HasSubstr("--supervisor-image=r.example/x/everstep-operator:7"));
}

TEST_F(ChartTest, TheDefinitionIsBroughtKeptOrLeftOut) {
  const OrderedJson kept = Only(Render(), "CustomResourceDefinition");
  EXPECT_EQ(kept["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
  const OrderedJson dropped = Only(Render({R"(crds={"keep":false})"}), "CustomResourceDefinition");
  EXPECT_FALSE(dropped["metadata"].contains("annotations"));
  EXPECT_THAT(OfKind(Render({R"(crds={"enabled":false})"}), "CustomResourceDefinition"), IsEmpty());
  const auto file = ReadFile(kSource + "/crds/everstep.dev_trainingjobs.yaml");
  EXPECT_EQ(kept["spec"], ParseDocument(file.value_or(""), "crd")->value["spec"]);
}

TEST_F(ChartTest, RightsAndAccountCanComeFromElsewhere) {
  const auto objects =
      Render({R"(rbac={"create":false})", R"(serviceAccount={"create":false,"name":"mine"})",
              R"(networkPolicy={"enabled":false})"});
  for (const char* kind : {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
                           "ServiceAccount", "NetworkPolicy"}) {
    EXPECT_THAT(OfKind(objects, kind), IsEmpty()) << kind;
  }
  EXPECT_EQ(PodSpec(objects)["serviceAccountName"], "mine");
}

TEST_F(ChartTest, PrometheusFindsWhatItSelects) {
  EXPECT_THAT(OfKind(Render(), "ServiceMonitor"), IsEmpty());
  const auto objects =
      Render({R"(metrics={"serviceMonitor":{"enabled":true,"labels":{"release":"p"}},)"
              R"("podMonitor":{"enabled":true}})"});
  const OrderedJson monitor = Only(objects, "ServiceMonitor");
  EXPECT_EQ(monitor["metadata"]["labels"]["release"], "p");
  const OrderedJson labels = Named(objects, "Service", "everstep-metrics")["metadata"]["labels"];
  for (const auto& [key, value] : monitor["spec"]["selector"]["matchLabels"].items()) {
    EXPECT_EQ(labels.value(key, ""), value);
  }
  EXPECT_EQ(Only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"], "health");
}

TEST_F(ChartTest, AMistypedValueIsNamed) {
  const std::map<std::string, std::string> wrong{
      {R"(replica=3)", "additional properties 'replica' not allowed"},
      {R"(crds={"enable":true})", "at '/crds': additional properties 'enable' not allowed"},
      {R"(replicas="two")", "at '/replicas': got string, want integer"},
      {R"(image={"pullPolicy":"always"})", "at '/image/pullPolicy': value must be one of"},
      {R"(watchNamespaces=["Team A"])", "at '/watchNamespaces/0'"},
  };
  for (const auto& [set, message] : wrong) {
    const auto rendered = Template({set});
    EXPECT_FALSE(rendered.ok()) << set;
    EXPECT_THAT(rendered.errors, HasSubstr(message));
  }
}

// A comment is above each value, and the schema knows it.
TEST_F(ChartTest, EveryValueIsInTheSchema) {
  const auto values =
      ParseDocument(ReadFile(kSource + "/helm/everstep/values.yaml").value_or(""), "values.yaml");
  const auto schema = ParseJson(
      ReadFile(kSource + "/helm/everstep/values.schema.json").value_or(""), "values.schema.json");
  ASSERT_TRUE(values && schema);
  for (const auto& [key, value] : values->value.items()) {
    EXPECT_TRUE((*schema)["properties"].contains(key)) << key;
  }
  EXPECT_EQ((*schema)["properties"].size(), values->value.size() + 1);  // and global
}

TEST_F(ChartTest, TheInstalledManifestIsTheChart) {
  const auto fresh = testing::RunCommand({kSource + "/scripts/make-manifests", "--install"});
  ASSERT_TRUE(fresh.ok()) << fresh.Text();
  EXPECT_EQ(ReadFile(kSource + "/dist/install.yaml").value_or(""), fresh.output)
      << "run make manifests";
  const auto objects = ObjectsOf(fresh.output);
  EXPECT_EQ(Only(objects, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            "restricted");
  for (const OrderedJson& object : objects) {
    const std::string place = object["metadata"].value("namespace", "everstep-system");
    EXPECT_EQ(place, "everstep-system") << object["kind"];
  }
}

}  // namespace
}  // namespace everstep
