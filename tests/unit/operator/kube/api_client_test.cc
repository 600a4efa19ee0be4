// The client against a server over real sockets.
#include "operator/kube/api_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "operator/kube/transport_cpprest.h"
#include "tests/support/await.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/temp_dir.h"

namespace everstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using Answer = FakeApiServer::Answer;
using Seen = FakeApiServer::Seen;

OrderedJson Pod(const std::string& name) {
  return {
      {"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", name}, {"namespace", "team"}}}};
}

class ApiClientTest : public testing::Test {
 protected:
  void Connect(ClusterAccess access = {}, TransportOptions options = {}) {
    access.server = server_.url();
    transport_ = std::move(*MakeTransport(access, options, clock_));
    client_ = std::make_unique<ApiClient>(
        *transport_, ApiClient::Options{.pause = [&](Duration time) { pauses_.push_back(time); }});
  }
  void AnswerWith(const Answer& answer, int times = 1 << 30) {
    const auto left = std::make_shared<std::atomic<int>>(times);
    server_.SetIntercept([=](const Seen&) -> std::optional<Answer> {
      if ((*left)-- <= 0) return std::nullopt;
      return answer;
    });
  }
  ErrorCode CodeFor(int status, const std::string& reason = "", const std::string& message = "") {
    AnswerWith({.status = status,
                .body = DumpJson(OrderedJson{{"reason", reason}, {"message", message}})});
    const auto got = client_->Get(kPods, {"team", "a"});
    EXPECT_FALSE(got.has_value());
    return got ? ErrorCode::kInternal : got.error().code;
  }

  SystemClock clock_;
  FakeApiServer server_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<ApiClient> client_;
  std::vector<Duration> pauses_;
};

TEST_F(ApiClientTest, AnObjectsLife) {
  Connect();
  const auto created = client_->Create(kPods, Pod("a"));
  ASSERT_TRUE(created.has_value()) << created.error().message;
  EXPECT_EQ(client_->Create(kPods, Pod("a")).error().code, ErrorCode::kAlreadyExists);

  OrderedJson changed = *created;
  changed["status"] = {{"phase", "Running"}};
  changed["spec"] = {{"ignored", true}};
  const auto with_status = client_->UpdateStatus(kPods, changed);
  ASSERT_TRUE(with_status.has_value());
  EXPECT_FALSE(with_status->contains("spec"));
  EXPECT_EQ(client_->Update(kPods, changed).error().code, ErrorCode::kConflict);

  const auto patched =
      client_->Patch(kPods, {"team", "a"}, {{"metadata", {{"labels", {{"x", "y"}}}}}});
  ASSERT_TRUE(patched.has_value());
  const auto got = client_->Get(kPods, {"team", "a"});
  EXPECT_EQ((*got)["metadata"]["labels"]["x"], "y");
  EXPECT_EQ((*got)["status"]["phase"], "Running");

  const std::string uid = (*got)["metadata"]["uid"];
  EXPECT_EQ(client_->Delete(kPods, {"team", "a"}, {.uid = "other"}).error().code,
            ErrorCode::kConflict);
  EXPECT_TRUE(client_->Delete(kPods, {"team", "a"}, {.uid = uid}).has_value());
  EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kNotFound);
}

TEST_F(ApiClientTest, AnswersBecomeErrors) {
  Connect();
  EXPECT_EQ(CodeFor(400), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeFor(401), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeFor(403, "Forbidden", "no"), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeFor(403, "Forbidden", "exceeded quota: q"), ErrorCode::kResourceExhausted);
  EXPECT_EQ(CodeFor(404), ErrorCode::kNotFound);
  EXPECT_EQ(CodeFor(409, "AlreadyExists"), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeFor(409, "Conflict"), ErrorCode::kConflict);
  EXPECT_EQ(CodeFor(410, "Expired"), ErrorCode::kAborted);
  EXPECT_EQ(CodeFor(504, "Timeout", "Too large resource version: 9"), ErrorCode::kAborted);
  EXPECT_EQ(CodeFor(422), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeFor(429), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeFor(500), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeFor(503), ErrorCode::kUnavailable);
}

TEST_F(ApiClientTest, TheServersOwnWordsAreTheMessage) {
  Connect();
  AnswerWith({.status = 422, .body = R"({"message":"spec.replicas: must be 1"})"});
  EXPECT_EQ(client_->Create(kPods, Pod("a")).error().message, "spec.replicas: must be 1");
  AnswerWith({.status = 502, .body = "<html>"});
  EXPECT_EQ(client_->Create(kPods, Pod("a")).error().message, "the API server answers 502");
}

TEST_F(ApiClientTest, AnOverloadedServerIsAskedAgainWhenItSays) {
  Connect();
  AnswerWith({.status = 429, .retry_after = 2}, 3);
  EXPECT_TRUE(client_->Create(kPods, Pod("a")).has_value());
  EXPECT_THAT(pauses_, ElementsAre(seconds(2), seconds(2), seconds(2)));

  pauses_.clear();
  AnswerWith({.status = 503, .retry_after = 1});
  EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(pauses_.size(), static_cast<size_t>(ApiClient::kMaxRetries));
}

TEST_F(ApiClientTest, NobodyWaitsLongerForAnOverloadedServerThanItIsWorth) {
  Connect();
  AnswerWith({.status = 429, .retry_after = 12});
  EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(pauses_, ElementsAre(seconds(12), seconds(12)));

  pauses_.clear();
  AnswerWith({.status = 503, .retry_after = 100'000});
  EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(ApiClientTest, WhatIsNoAnswerOfAnApiServerIsAnError) {
  Connect();
  for (const char* body :
       {"", "[]", "\"x\"", "{}", R"({"metadata":7})", R"({"metadata":{"resourceVersion":7}})",
        R"({"metadata":{"resourceVersion":"7"},"items":5})",
        R"({"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]})"}) {
    AnswerWith({.body = body});
    EXPECT_FALSE(client_->List(kPods, {}).has_value()) << body;
  }
  AnswerWith({.body = "[]"});
  EXPECT_FALSE(client_->Get(kPods, {"team", "a"}).has_value());
  // As Go writes an empty list.
  AnswerWith({.body = R"({"metadata":{"resourceVersion":"7"},"items":null})"});
  EXPECT_TRUE(client_->List(kPods, {}).has_value());
}

TEST_F(ApiClientTest, AListComesInPagesWithKinds) {
  Connect();
  for (int i = 0; i < ApiClient::kPageSize + 1; ++i) {
    server_.Put("/api/v1/namespaces/team/pods/p" + std::to_string(i), Pod("p" + std::to_string(i)));
  }
  const auto first = client_->List(kPods, {});
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(first->items.size(), static_cast<size_t>(ApiClient::kPageSize));
  ASSERT_NE(first->more, "");
  const auto last = client_->List(kPods, {.more = first->more});
  ASSERT_EQ(last->items.size(), 1u);
  EXPECT_EQ(last->more, "");
  EXPECT_EQ(last->items[0]["kind"], "Pod");
  EXPECT_EQ(last->resource_version, std::to_string(server_.version()));
  EXPECT_TRUE(client_->List(kPods, {.namespace_name = "other"})->items.empty());
}

TEST_F(ApiClientTest, ASelectorIsEncoded) {
  Connect();
  OrderedJson pod = Pod("a");
  pod["metadata"]["labels"] = {{"everstep.dev/job", "j"}};
  server_.Put("/api/v1/namespaces/team/pods/a", pod);
  server_.Put("/api/v1/namespaces/team/pods/b", Pod("b"));
  EXPECT_EQ(client_->List(kPods, {.label_selector = "everstep.dev/job"})->items.size(), 1u);
  EXPECT_EQ(client_->List(kPods, {.label_selector = "everstep.dev/job=j"})->items.size(), 1u);
  EXPECT_EQ(client_->List(kPods, {.label_selector = "everstep.dev/job=k"})->items.size(), 0u);
}

TEST_F(ApiClientTest, ARefusedTokenIsReadAgain) {
  const TempDir directory;
  const std::string file = directory.path() + "/token";
  std::ofstream(file) << "old";
  Connect({.token_file = file});
  server_.SetIntercept([](const Seen& seen) -> std::optional<Answer> {
    if (seen.authorization == "Bearer new") return std::nullopt;
    return Answer{.status = 401, .body = "{}"};
  });
  EXPECT_EQ(client_->Create(kPods, Pod("a")).error().code, ErrorCode::kFailedPrecondition);
  std::ofstream(file) << "new";
  EXPECT_TRUE(client_->Create(kPods, Pod("a")).has_value());
  std::ofstream(file) << "broken";
}

TEST_F(ApiClientTest, AServerThatGoesAndComesBackIsFoundAgain) {
  auto server = std::make_unique<FakeApiServer>();
  const uint16_t port = server->port();
  transport_ = std::move(*MakeTransport({.server = server->url()}, {}, clock_));
  client_ = std::make_unique<ApiClient>(*transport_);
  ASSERT_TRUE(client_->Create(kPods, Pod("a")).has_value());
  server.reset();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kUnavailable);
  }
  server = std::make_unique<FakeApiServer>(port);
  // A pooled connection may still be the old one.
  EXPECT_TRUE(AwaitTrue([&] {
    const auto created = client_->Create(kPods, Pod("b"));
    return created.has_value() || created.error().code == ErrorCode::kAlreadyExists;
  }));
}

TEST_F(ApiClientTest, AConnectionThatBreaksIsAnError) {
  Connect();
  AnswerWith({.close_without_answer = true});
  EXPECT_EQ(client_->Get(kPods, {"team", "a"}).error().code, ErrorCode::kUnavailable);
}

TEST_F(ApiClientTest, ASilentServerIsGivenUp) {
  // Outlives the server's thread.
  const auto release = std::make_shared<std::atomic<bool>>(false);
  Connect({}, {.request_timeout = seconds(1)});
  server_.SetIntercept([release](const Seen&) -> std::optional<Answer> {
    while (!*release) std::this_thread::sleep_for(milliseconds(5));
    return Answer{.close_without_answer = true};
  });
  const auto got = client_->Get(kPods, {"team", "a"});
  EXPECT_EQ(got.error().code, ErrorCode::kDeadlineExceeded) << got.error().message;
  *release = true;
}

TEST_F(ApiClientTest, NoMoreRequestsAtATimeThanAllowed) {
  Connect({}, {.max_requests = 3});
  std::atomic<int> inside = 0, most = 0;
  server_.SetIntercept([&](const Seen&) -> std::optional<Answer> {
    const int now = ++inside;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(milliseconds(2));
    --inside;
    return std::nullopt;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back(
        [&, i] { EXPECT_TRUE(client_->Create(kPods, Pod("p" + std::to_string(i))).has_value()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
}

// ---- Streams ----

TEST_F(ApiClientTest, AWatchGivesLinesAsTheyCome) {
  Connect();
  auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
  ASSERT_TRUE(opened.has_value() && opened->stream) << opened.error().message;
  server_.Put("/api/v1/namespaces/team/pods/a", Pod("a"));
  const auto line = opened->stream->ReadLine();
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_EQ((*ParseJson(*line, "line"))["type"], "ADDED");
  // One line in two pieces.
  server_.SendRaw(R"({"type":"BOOKM)");
  server_.SendRaw("ARK\"}\n");
  EXPECT_EQ(*opened->stream->ReadLine(), R"({"type":"BOOKMARK"})");
}

TEST_F(ApiClientTest, AWatchFromAnOldVersionIsRefusedWithItsStatus) {
  Connect();
  server_.ForgetHistory();
  const auto opened = client_->Watch(kPods, {.resource_version = "1"});
  ASSERT_TRUE(opened.has_value());
  EXPECT_FALSE(opened->stream);
  EXPECT_EQ(ErrorOf(opened->response).code, ErrorCode::kAborted);
}

TEST_F(ApiClientTest, AHalfLineIsNotGiven) {
  Connect();
  auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
  ASSERT_TRUE(opened.has_value() && opened->stream);
  ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 1; }));
  server_.CutWatches();
  const auto line = opened->stream->ReadLine();
  ASSERT_FALSE(line.has_value()) << *line;
  EXPECT_EQ(line.error().code, ErrorCode::kUnavailable);
}

TEST_F(ApiClientTest, AStreamThatEndsSaysSo) {
  Connect();
  auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
  ASSERT_TRUE(opened.has_value() && opened->stream);
  ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 1; }));
  server_.EndWatches();
  EXPECT_EQ(opened->stream->ReadLine().error().code, ErrorCode::kUnavailable);
}

TEST_F(ApiClientTest, ASilentStreamIsGivenUp) {
  Connect({}, {.silence = seconds(1)});
  auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
  ASSERT_TRUE(opened.has_value() && opened->stream);
  EXPECT_FALSE(opened->stream->ReadLine().has_value());
}

TEST_F(ApiClientTest, AReaderIsCancelledFromElsewhere) {
  Connect();
  auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
  ASSERT_TRUE(opened.has_value() && opened->stream);
  std::thread cancel([&] { opened->stream->Cancel(); });
  EXPECT_EQ(opened->stream->ReadLine().error().code, ErrorCode::kAborted);
  cancel.join();
}

TEST_F(ApiClientTest, WaitingForAStreamIsCancelledFromElsewhere) {
  Connect();
  // Outlive the server's thread.
  const auto asked = std::make_shared<std::atomic<bool>>(false);
  const auto release = std::make_shared<std::atomic<bool>>(false);
  server_.SetIntercept([=](const Seen&) -> std::optional<Answer> {
    *asked = true;
    while (!*release) std::this_thread::sleep_for(milliseconds(5));
    return Answer{.close_without_answer = true};
  });
  std::stop_source stop;
  std::thread cancel([&] {
    EXPECT_TRUE(AwaitTrue([&] { return asked->load(); }));
    stop.request_stop();
  });
  const auto opened = client_->Watch(kPods, {.resource_version = "1"}, stop.get_token());
  EXPECT_EQ(opened.error().code, ErrorCode::kAborted) << opened.error().message;
  cancel.join();
  *release = true;
}

TEST_F(ApiClientTest, AnObjectOfAMebibyteComesThrough) {
  Connect();
  OrderedJson pod = Pod("a");
  pod["metadata"]["annotations"] = {{"big", std::string(1 << 20, 'x')}};
  ASSERT_TRUE(client_->Create(kPods, pod).has_value());
  EXPECT_EQ((*client_->Get(kPods, {"team", "a"}))["metadata"]["annotations"]["big"]
                .get<std::string>()
                .size(),
            size_t{1} << 20);
  auto opened = client_->Watch(kPods, {.resource_version = "1"});
  ASSERT_TRUE(opened.has_value() && opened->stream);
  const auto line = opened->stream->ReadLine();
  ASSERT_TRUE(line.has_value());
  EXPECT_GT(line->size(), size_t{1} << 20);
}

size_t EntriesOf(const char* directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST_F(ApiClientTest, ReconnectingLeavesNothingBehind) {
  Connect();
  const auto once = [&] {
    auto opened = client_->Watch(kPods, {.resource_version = std::to_string(server_.version())});
    ASSERT_TRUE(opened.has_value() && opened->stream);
    ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 1; }));
    server_.EndWatches();
    EXPECT_FALSE(opened->stream->ReadLine().has_value());
    opened->stream.reset();
    ASSERT_TRUE(AwaitTrue([&] { return server_.watches() == 0; }));
  };
  for (int i = 0; i < 10; ++i) once();
  const size_t threads = EntriesOf("/proc/self/task"), files = EntriesOf("/proc/self/fd");
  for (int i = 0; i < 200; ++i) once();
  EXPECT_LE(EntriesOf("/proc/self/task"), threads + 2);
  EXPECT_LE(EntriesOf("/proc/self/fd"), files + 4);
}

}  // namespace
}  // namespace everstep::kube
