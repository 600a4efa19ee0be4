#include "worker/hub/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "common/files.h"
#include "tests/unit/worker/hub/fake_hub.h"

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

std::string Weights(char letter = 'w') { return std::string(300000, letter); }

class HubTest : public testing::Test {
 protected:
  HubTest() {
    std::string pattern = testing::TempDir() + "everstep_hub_XXXXXX";
    cache_ = mkdtemp(pattern.data());
  }
  ~HubTest() override {
    std::error_code ignored;
    fs::remove_all(cache_, ignored);
  }

  static void AddModel(FakeHub* hub) {
    hub->AddFile("config.json", "{}");
    hub->AddFile("tokenizer.json", "{\"model\": 1}");
    hub->AddFile("model.safetensors", Weights(), true);
    hub->AddFile("README.md", "read me");
    hub->AddFile("pytorch_model.bin", "pickle", true);
  }

  HubOptions Options(const FakeHub& hub) {
    HubOptions options;
    options.endpoint = hub.url();
    options.cache_dir = cache_;
    options.progress = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    options.sleep = [this](Duration pause) {
      const std::lock_guard lock(mutex_);
      pauses_.push_back(Seconds(pause));
    };
    return options;
  }

  std::string Model() const { return cache_ + "/models--org--tiny"; }
  std::string Snapshot() const { return Model() + "/snapshots/" + kTinyCommit; }
  std::vector<std::string> Blobs() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(Model() + "/blobs")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::string cache_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<double> pauses_;
};

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

TEST_F(HubTest, ShowsTheTokenToTheHubAlone) {
  FakeHub hub;
  FakeHub cdn;
  AddModel(&hub);
  cdn.AddFile("model.safetensors", Weights(), true);
  hub.SetCdn(&cdn);
  hub.Misbehave("GET", "config.json", Fault::kRedirectToApi);
  hub.Misbehave("HEAD", "config.json", Fault::kRedirectToApi);
  HubOptions options = Options(hub);
  options.token = "hf_secret";

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*ReadFile(*directory + "/config.json"), "{}");
  for (const RecordedRequest& request : hub.requests()) {
    EXPECT_EQ(request.authorization, "Bearer hf_secret") << request.target;
  }
  ASSERT_EQ(cdn.requests().size(), 1);
  EXPECT_EQ(cdn.requests()[0].authorization, "");
  EXPECT_EQ(hub.CountRequests("GET", "/api/resolve-cache/config.json"), 1);
}

TEST_F(HubTest, SaysWhatToDoAboutAGatedModel) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("HEAD", "config.json", Fault::kGated);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(directory.error().message,
            "model 'org/tiny' is gated: accept its terms at " + hub.url() +
                "/org/tiny, and set HF_TOKEN to a token of that account");
}

TEST_F(HubTest, SaysWhenTheTokenIsRefused) {
  FakeHub hub;
  AddModel(&hub);
  hub.Misbehave("GET", "/api/models/", Fault::kTokenRefused);
  HubOptions options = Options(hub);
  options.token = "hf_wrong";

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().message,
            "model 'org/tiny': the hub refuses the token (HTTP status 403): set HF_TOKEN to one "
            "that may read this model");
}

TEST_F(HubTest, SaysWhenThereIsNoSuchModel) {
  FakeHub hub;

  const auto directory = ResolveModel("org/tinny", Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(directory.error().message,
            "model 'org/tinny' is neither a directory nor on " + hub.url() +
                ": check the name, and set HF_TOKEN if the model is private");
}

TEST_F(HubTest, SaysWhenThereIsNoSuchRevision) {
  FakeHub hub;
  AddModel(&hub);
  HubOptions options = Options(hub);
  options.revision = "v2";

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().message,
            "model 'org/tiny' has no revision 'v2': set model_revision to one that it has");
}

TEST_F(HubTest, SaysWhenThereAreNoSafetensors) {
  FakeHub hub;
  hub.AddFile("config.json", "{}");
  hub.AddFile("pytorch_model.bin", "pickle", true);

  const auto directory = ResolveModel(kTinyModel, Options(hub));

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().message,
            "model 'org/tiny' has no safetensors weights on the hub: name one that has, or convert "
            "it");
}

TEST_F(HubTest, OfflineTakesTheCacheAlone) {
  FakeHub hub;
  AddModel(&hub);
  HubOptions offline = Options(hub);
  offline.offline = true;

  const auto before = ResolveModel(kTinyModel, offline);
  ASSERT_TRUE(ResolveModel(kTinyModel, Options(hub)).has_value());
  const size_t requests = hub.requests().size();
  const auto after = ResolveModel(kTinyModel, offline);

  ASSERT_FALSE(before.has_value());
  EXPECT_EQ(before.error().message,
            "model 'org/tiny' (revision main) is not in " + cache_ +
                ", and HF_HUB_OFFLINE forbids to download it: unset it, or set model_name_or_path "
                "to a directory");
  ASSERT_TRUE(after.has_value()) << after.error().message;
  EXPECT_EQ(*after, Snapshot());
  EXPECT_EQ(hub.requests().size(), requests);
}

TEST_F(HubTest, AHubThatIsAwayDoesNotStopAJobThatHasAllItNeeds) {
  HubOptions options;
  {
    FakeHub hub;
    AddModel(&hub);
    options = Options(hub);
    ASSERT_TRUE(ResolveModel(kTinyModel, options).has_value());
  }

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_TRUE(directory.has_value()) << directory.error().message;
  EXPECT_EQ(*directory, Snapshot());
  EXPECT_THAT(lines_.back(), HasSubstr("using the copy in the cache"));
}

TEST_F(HubTest, SaysHowMuchRoomIsMissing) {
  FakeHub hub;
  AddModel(&hub);
  HubOptions options = Options(hub);
  options.free_bytes = [](const std::string&) { return 1000; };

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(directory.error().message,
              HasSubstr("has room for 1000 B: free some space, or set cache_dir or HF_HOME to "
                        "another disk"));
}

TEST_F(HubTest, SaysWhenTheCacheCannotBeWritten) {
  FakeHub hub;
  AddModel(&hub);
  HubOptions options = Options(hub);
  options.cache_dir = cache_ + "/file";
  std::ofstream(options.cache_dir) << "not a directory";

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_FALSE(directory.has_value());
  EXPECT_THAT(directory.error().message, HasSubstr(options.cache_dir));
}

TEST_F(HubTest, ADirectoryIsItself) {
  FakeHub hub;

  EXPECT_EQ(ResolveModel(cache_, Options(hub)).value_or(""), cache_);
  EXPECT_THAT(hub.requests(), IsEmpty());
}

TEST_F(HubTest, APathThatIsNoDirectoryIsNotAskedFor) {
  FakeHub hub;

  for (const char* name :
       {"/no/such/model", "./model", "../no_such_model", "a/b/c", "", "a b", "org/x.git"}) {
    const auto directory = ResolveModel(name, Options(hub));
    ASSERT_FALSE(directory.has_value()) << name;
    EXPECT_EQ(directory.error().message,
              std::string("model_name_or_path: '") + name +
                  "' is no directory, and no name on the hub (organization/name): check the path");
  }
  EXPECT_THAT(hub.requests(), IsEmpty());
}

TEST_F(HubTest, AWrongEndpointIsNamed) {
  HubOptions options;
  options.cache_dir = cache_;
  options.endpoint = "ftp://hub";

  const auto directory = ResolveModel(kTinyModel, options);

  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().message,
            "HF_ENDPOINT: 'ftp://hub' is no http:// or https:// address: set it to one such as "
            "https://huggingface.co");
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
