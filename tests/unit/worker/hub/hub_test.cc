// Downloads: what is fetched, how it goes on after an interruption, over TLS too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tests/support/test_certificate.h"
#include "tests/unit/worker/hub/hub_fixture.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The Git blob of "{}".
constexpr char kEmptyObjectBlob[] = "9e26dfeeb6e641a33dae4961196235bdb965b21b";

TEST_F(HubTest, DownloadsWhatTrainingNeedsIntoTheUsualLayout) {
  FakeHub hub;
  AddModel(&hub);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*directory, Snapshot());
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
  EXPECT_EQ(*ReadFile(*directory + "/tokenizer.json"), "{\"model\": 1}");
  EXPECT_EQ(*ReadFile(Model() + "/refs/main"), kTinyCommit);
  EXPECT_EQ(fs::read_symlink(*directory + "/config.json"),
            std::string("../../blobs/") + kEmptyObjectBlob);
  EXPECT_EQ(Blobs().size(), 3);
  EXPECT_EQ(hub.CountRequests("GET", "README.md"), 0);
  EXPECT_EQ(hub.CountRequests("GET", "pytorch_model.bin"), 0);
  EXPECT_THAT(lines_, Contains(HasSubstr("model.safetensors: 293.0 KiB done")));
}

TEST_F(HubTest, DownloadsNothingTwice) {
  FakeHub hub;
  AddModel(&hub);
  ASSERT_TRUE(ResolveModel(kTinyModel, Options(hub)).has_value());
  const size_t requests = hub.requests().size();

  ASSERT_TRUE(ResolveModel(kTinyModel, Options(hub)).has_value());

  EXPECT_EQ(hub.requests().size(), requests + 1);  // where the branch points now
}

TEST_F(HubTest, ACommitInTheCacheNeedsNoHub) {
  FakeHub hub;
  AddModel(&hub);
  HubOptions options = Options(hub);
  options.revision = kTinyCommit;
  ASSERT_TRUE(ResolveModel(kTinyModel, options).has_value());
  const size_t requests = hub.requests().size();

  ASSERT_TRUE(ResolveModel(kTinyModel, options).has_value());

  EXPECT_EQ(hub.requests().size(), requests);
  EXPECT_FALSE(fs::exists(Model() + "/refs/" + kTinyCommit));
}

TEST_F(HubTest, DownloadsTheShardsOfAnIndex) {
  FakeHub hub;
  hub.AddFile("config.json", "{}");
  hub.AddFile("model.safetensors.index.json",
              R"({"weight_map": {"a": "model-1.safetensors", "b": "parts/model-2.safetensors"}})");
  hub.AddFile("model-1.safetensors", Weights('1'), true);
  hub.AddFile("parts/model-2.safetensors", Weights('2'), true);
  hub.AddFile("model-3.safetensors", Weights('3'), true);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model-1.safetensors"), Weights('1'));
  EXPECT_EQ(*ReadFile(*directory + "/parts/model-2.safetensors"), Weights('2'));
  EXPECT_FALSE(fs::exists(*directory + "/model-3.safetensors"));
}

TEST_F(HubTest, AnIndexCannotReachOutsideItsFolder) {
  FakeHub hub;
  hub.AddFile("config.json", "{}");
  hub.AddFile("model.safetensors.index.json", R"({"weight_map": {"a": "../../evil"}})");

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_THAT(directory.error().message, HasSubstr("weight_map: 'a' is in no file of this folder"));
}

TEST_F(HubTest, DownloadsAnAdapter) {
  FakeHub hub;
  hub.AddFile("adapter_config.json", "{}");
  hub.AddFile("adapter_model.safetensors", Weights(), true);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_TRUE(fs::exists(*directory + "/adapter_model.safetensors"));
}

TEST_F(HubTest, GoesOnWhereADroppedConnectionStopped) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kDropMidway, 2);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
  std::vector<std::string> ranges;
  for (const RecordedRequest& request : hub.requests()) {
    if (request.method == "GET" && request.target == "/blob/model.safetensors") {
      ranges.push_back(request.range);
    }
  }
  EXPECT_THAT(ranges, ElementsAre("", "bytes=150000-", "bytes=225000-"));
}

TEST_F(HubTest, GoesOnWhereAKilledProcessStopped) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kDropMidway);
  HubOptions once = Options(hub);
  once.max_attempts = 1;
  ASSERT_FALSE(ResolveModel(kTinyModel, once).has_value());
  ASSERT_THAT(Blobs(), Contains(testing::EndsWith(".incomplete")));

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(hub.requests().back().range, "bytes=150000-");
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
  EXPECT_THAT(Blobs(), Not(Contains(testing::EndsWith(".incomplete"))));
}

TEST_F(HubTest, StartsOverWhereTheServerDoesNoRanges) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kDropMidway);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kIgnoreRange);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
}

TEST_F(HubTest, DropsAPartialFileThatIsTooLong) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kDropMidway);
  HubOptions once = Options(hub);
  once.max_attempts = 1;
  ASSERT_FALSE(ResolveModel(kTinyModel, once).has_value());
  for (const std::string& name : Blobs()) {
    if (name.ends_with(".incomplete")) {
      std::ofstream(Model() + "/blobs/" + name, std::ios::app) << Weights('x');
    }
  }

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
}

TEST_F(HubTest, FetchesAFileWithAWrongChecksumAnew) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kWrongBytes);
  hub.Misbehave("GET", "config.json", Fault::kWrongBytes);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
  EXPECT_EQ(*ReadFile(*directory + "/config.json"), "{}");
}

TEST_F(HubTest, NeverKeepsAFileWithAWrongChecksum) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/blob/model.safetensors", Fault::kWrongBytes, 2);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(directory.error().message,
              testing::MatchesRegex("model.safetensors: the checksum is [0-9a-f]+, but the hub's "
                                    "is [0-9a-f]+: the hub or something on the way to it sends "
                                    "wrong content; try again, or set HF_ENDPOINT to another "
                                    "hub"));
  EXPECT_EQ(Blobs().size(), 2);  // configuration and tokenizer
  EXPECT_FALSE(fs::exists(Model() + "/refs/main"));
}

TEST_F(HubTest, TriesAgainWhenTheHubIsBusy) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/api/models/", Fault::kStatus503, 2);
  hub.Misbehave("HEAD", "config.json", Fault::kStatus429);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_THAT(pauses_, ElementsAre(0.5, 1.0, 7.0));
  EXPECT_THAT(lines_, Contains(HasSubstr("HTTP status 503 for the list of files; trying again")));
}

TEST_F(HubTest, GivesUpOnAHubThatStaysBusy) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/api/models/", Fault::kStatus503, 100);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(directory.error().message,
              HasSubstr("HTTP status 503 for the list of files: check the network and HF_ENDPOINT, "
                        "or set model_name_or_path to a directory"));
  EXPECT_EQ(hub.requests().size(), 5);
}

// Ranks start at once: one of them downloads a file, the others wait for it.
TEST_F(HubTest, ProcessesThatStartAtOnceDownloadEveryFileOnce) {
  constexpr int kProcesses = 4;
  int address[2];
  ASSERT_EQ(pipe(address), 0);
  std::vector<pid_t> children;
  // Before the hub has threads, since a child gets but one of them.
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      char port[8] = {};
      if (read(address[0], port, 5) != 5) _exit(2);
      HubOptions options;
      options.endpoint = std::string("http://127.0.0.1:") + std::to_string(std::stoi(port));
      options.cache_dir = cache_;
      const auto directory = ResolveModel(kTinyModel, options);
      const bool good = directory.has_value() &&
                        ReadFile(*directory + "/model.safetensors").value_or("") == Weights();
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  FakeHub hub;
  AddModel(&hub);
  char port[8];
  std::snprintf(port, sizeof(port), "%05d", std::stoi(hub.url().substr(hub.url().rfind(':') + 1)));
  for (int i = 0; i < kProcesses; ++i) ASSERT_EQ(write(address[1], port, 5), 5);

  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  close(address[0]);
  close(address[1]);
  EXPECT_EQ(hub.CountRequests("GET", "/blob/model.safetensors"), 1);
  EXPECT_EQ(hub.CountRequests("GET", "resolve/" + std::string(kTinyCommit) + "/config.json"), 1);
}

class TlsHubTest : public HubTest {
 protected:
  void Trust(const std::string& authority_pem) {
    const std::string path = cache_ + "/authority.pem";
    std::ofstream(path) << authority_pem;
    setenv("SSL_CERT_FILE", path.c_str(), 1);
  }
  ~TlsHubTest() override { unsetenv("SSL_CERT_FILE"); }
};

TEST_F(TlsHubTest, DownloadsOverTls) {
  const TestCertificate certificate = MakeTestCertificate("127.0.0.1");
  FakeHub hub(certificate.certificate_pem);
  AddModel(&hub);
  Trust(certificate.authority_pem);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/model.safetensors"), Weights());
}

TEST_F(TlsHubTest, RefusesAnAuthorityThatIsNotTrusted) {
  FakeHub hub(MakeTestCertificate("127.0.0.1").certificate_pem);
  AddModel(&hub);
  Trust(MakeTestCertificate("127.0.0.1").authority_pem);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(directory.error().message, HasSubstr("its certificate is not trusted"));
  EXPECT_THAT(hub.requests(), IsEmpty());
}

TEST_F(TlsHubTest, RefusesACertificateOfAnotherHost) {
  const TestCertificate certificate = MakeTestCertificate("hub.example");
  FakeHub hub(certificate.certificate_pem);
  AddModel(&hub);
  Trust(certificate.authority_pem);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(hub.requests(), IsEmpty());
}

}  // namespace
}  // namespace everstep
