// The parts of the hub client: addresses, checksums, locks, options from the environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "worker/hub/cache_layout.h"
#include "worker/hub/digest.h"
#include "worker/hub/file_lock.h"
#include "worker/hub/hub.h"
#include "worker/hub/url.h"

namespace everstep {
namespace {

TEST(UrlTest, TakesAddressesApart) {
  const auto url = ParseUrl("https://Hub.Example/a/b?c=d#e");
  ASSERT_TRUE(url.has_value());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "hub.example");
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(url->Text(), "https://hub.example/a/b?c=d");
  EXPECT_EQ(ParseUrl("http://127.0.0.1:80")->Text(), "http://127.0.0.1/");
  EXPECT_EQ(ParseUrl("http://[::1]:8080/x")->Text(), "http://[::1]:8080/x");
  EXPECT_EQ(ParseUrl("http://h?q")->target, "/?q");
}

TEST(UrlTest, RefusesWhatIsNone) {
  for (const char* text : {"", "hub", "ftp://h/", "http://", "http://h:x/", "http://h:123456/",
                           "http://u@h/", "http://h/a b", "http://h/\r\nX: y", "http://[::1"}) {
    EXPECT_FALSE(ParseUrl(text).has_value()) << text;
  }
}

TEST(UrlTest, FollowsLocationsOfEveryKind) {
  const Url base = *ParseUrl("https://hub:8443/org/tiny/resolve?x=/y");
  const auto to = [&](const char* location) { return ResolveLocation(base, location)->Text(); };
  EXPECT_EQ(to("http://cdn/f?sig=a://b"), "http://cdn/f?sig=a://b");
  EXPECT_EQ(to("//cdn/f"), "https://cdn/f");
  EXPECT_EQ(to("/f?u=http://x"), "https://hub:8443/f?u=http://x");
  EXPECT_EQ(to("f"), "https://hub:8443/org/tiny/f");
  EXPECT_FALSE(ResolveLocation(base, "file:///etc/passwd").has_value());
}

TEST(UrlTest, EncodesRevisionsAndFileNames) {
  EXPECT_EQ(PercentEncode("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(PercentEncode("a b/c+d.json", true), "a%20b/c%2Bd.json");
}

class FileTest : public testing::Test {
 protected:
  FileTest() : path_(testing::TempDir() + "everstep_hub_part_" + std::to_string(getpid())) {}
  ~FileTest() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(FileTest, DigestsAreThoseOfSha256sumAndGit) {
  std::ofstream(path_) << "hello\n";

  EXPECT_EQ(*FileSha256(path_), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(*FileGitBlobSha1(path_), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_TRUE(CheckDigest(path_, "ce013625030ba8dba906f756967f9e9ca394464a").has_value());
  EXPECT_FALSE(CheckDigest(path_, "de013625030ba8dba906f756967f9e9ca394464a").has_value());
  EXPECT_TRUE(CheckDigest(path_, "some-other-tag").has_value());
  EXPECT_FALSE(FileSha256(path_ + ".missing").has_value());
}

TEST_F(FileTest, ALockThatMakesNoProgressIsGivenUpOn) {
  ManualClock clock;
  FileLock::Options options{.stall_timeout = std::chrono::minutes(10),
                            .clock = &clock,
                            .sleep = [&](Duration) { clock.Advance(std::chrono::minutes(1)); }};
  const auto held = FileLock::Acquire(path_, options);
  ASSERT_TRUE(held.has_value());

  const auto second = FileLock::Acquire(path_, options);

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(FileTest, ALockIsWaitedForAsLongAsItsHolderWorks) {
  ManualClock clock;
  std::optional<FileLock> held;
  int polls = 0;
  FileLock::Options options{.stall_timeout = std::chrono::minutes(10), .clock = &clock};
  options.sleep = [&](Duration) {
    clock.Advance(std::chrono::minutes(9));
    if (++polls == 20) held.reset();
  };
  options.progress = [&] { return static_cast<uint64_t>(polls); };
  held.emplace(std::move(*FileLock::Acquire(path_, options)));

  EXPECT_TRUE(FileLock::Acquire(path_, options).has_value());
  EXPECT_EQ(polls, 20);
}

TEST_F(FileTest, ADeadProcessHoldsNoLock) {
  const SystemClock clock;
  const FileLock::Options options{.clock = &clock, .sleep = [](Duration) {}};
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto held = FileLock::Acquire(path_, options);
    if (!held.has_value() || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);

  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  EXPECT_TRUE(FileLock::Acquire(path_, options).has_value());
  close(ready[0]);
  close(ready[1]);
}

TEST(CacheLayoutTest, KnowsSafePathsAndCommits) {
  EXPECT_TRUE(IsSafeRelativePath("a/b.safetensors"));
  for (const char* path : {"", "/a", "../a", "a/../b", "a/./b", "a//..", "a\nb", "a\\b", "a/"}) {
    EXPECT_FALSE(IsSafeRelativePath(path)) << path;
  }
  EXPECT_TRUE(IsCommit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(IsCommit("main"));
  EXPECT_FALSE(IsCommit("0123456789ABCDEF0123456789abcdef01234567"));
}

HubOptions OptionsFrom(std::map<std::string, std::string> variables, HubOverrides overrides = {}) {
  return HubOptionsFromEnvironment(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto it = variables.find(name);
        return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
      },
      overrides);
}

TEST(HubOptionsTest, CacheIsWhereHuggingfaceHubHasIt) {
  EXPECT_EQ(OptionsFrom({{"HOME", "/h"}}).cache_dir, "/h/.cache/huggingface/hub");
  EXPECT_EQ(OptionsFrom({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache_dir,
            "/x/huggingface/hub");
  EXPECT_EQ(OptionsFrom({{"HF_HOME", "/hf"}, {"XDG_CACHE_HOME", "/x"}}).cache_dir, "/hf/hub");
  EXPECT_EQ(OptionsFrom({{"HF_HOME", "/hf"}, {"HUGGINGFACE_HUB_CACHE", "/c"}}).cache_dir, "/c");
  EXPECT_EQ(OptionsFrom({{"HF_HUB_CACHE", "/c"}}, {.cache_dir = "/mine"}).cache_dir, "/mine");
}

TEST(HubOptionsTest, TokenComesFromTheTrainingFileTheEnvironmentOrAFile) {
  std::string pattern = testing::TempDir() + "everstep_hf_home_XXXXXX";
  const std::string home = mkdtemp(pattern.data());
  std::ofstream(home + "/token") << "hf_file\n";

  EXPECT_EQ(OptionsFrom({{"HF_HOME", home}}).token, "hf_file");
  EXPECT_EQ(OptionsFrom({{"HF_HOME", home}, {"HF_TOKEN", "hf_env"}}).token, "hf_env");
  EXPECT_EQ(OptionsFrom({{"HF_TOKEN", "hf_env"}}, {.token = "hf_mine"}).token, "hf_mine");
  EXPECT_EQ(OptionsFrom({{"HF_HOME", "/no/such/home"}}).token, "");
  std::remove((home + "/token").c_str());
  rmdir(home.c_str());
}

TEST(HubOptionsTest, OfflineIsOneOfFourWords) {
  EXPECT_TRUE(OptionsFrom({{"HF_HUB_OFFLINE", "1"}}).offline);
  EXPECT_TRUE(OptionsFrom({{"TRANSFORMERS_OFFLINE", "true"}}).offline);
  EXPECT_FALSE(OptionsFrom({{"HF_HUB_OFFLINE", "0"}}).offline);
  EXPECT_FALSE(OptionsFrom({}).offline);
}

TEST(HubOptionsTest, EndpointAndRevision) {
  EXPECT_EQ(OptionsFrom({}).endpoint, "https://huggingface.co");
  EXPECT_EQ(OptionsFrom({{"HF_ENDPOINT", "http://mirror:1"}}).endpoint, "http://mirror:1");
  EXPECT_EQ(OptionsFrom({}).revision, "main");
  EXPECT_EQ(OptionsFrom({}, {.revision = "v1"}).revision, "v1");
}

}  // namespace
}  // namespace everstep
