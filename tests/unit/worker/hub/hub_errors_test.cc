// What a person is told, and whom the token is shown to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "tests/unit/worker/hub/hub_fixture.h"

namespace everstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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

}  // namespace
}  // namespace everstep
