// A member dies by SIGKILL in the middle of an exchange: the survivors are told whom they lost, and
// regroup with the same fabrics.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/worker/comm/cluster.h"
#include "tests/unit/worker/comm/exchange_load.h"

namespace everstep {
namespace {

using testing::Cluster;
using testing::CodeOf;
using testing::ExpectAllOk;
using testing::MessageOf;
using testing::OnAll;

// comm_peer as a child process, with its standard input and output.
class PeerProcess {
 public:
  PeerProcess() {
    int to_child[2];
    int from_child[2];
    EXPECT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_child, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDOUT_FILENO);
      ::execl(EVERSTEP_BINARY_DIR "/bin/comm_peer", "comm_peer", nullptr);
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    input_ = ::fdopen(to_child[1], "w");
    output_ = ::fdopen(from_child[0], "r");
    endpoint_ = ReadLine();
  }
  ~PeerProcess() {
    Kill();
    std::fclose(input_);
    std::fclose(output_);
  }

  const std::string& endpoint() const { return endpoint_; }
  std::string ReadLine() {
    char line[256] = "";
    if (std::fgets(line, sizeof line, output_) == nullptr) return "end of output";
    const std::string text = line;
    return text.substr(0, text.find('\n'));
  }
  void Tell(const wire::Membership& membership, int my_rank) {
    std::fprintf(input_, "%lu %d %zu\n", static_cast<unsigned long>(membership.generation), my_rank,
                 membership.members.size());
    for (const wire::Member& member : membership.members) {
      std::fprintf(input_, "%d %s\n", member.rank, member.endpoint.c_str());
    }
    std::fflush(input_);
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  FILE* input_ = nullptr;
  FILE* output_ = nullptr;
  std::string endpoint_;
};

TEST(DeathTest, SurvivorsNameTheKilledRankAndRegroup) {
  PeerProcess victim;  // before the first thread of this process
  Cluster cluster(2);
  // The victim has rank 5 and the last position; generation 3 has only the survivors.
  wire::Membership membership = cluster.Everybody(2);
  membership.members.push_back(
      {.rank = 5, .endpoint = victim.endpoint(), .logical_ranks = {5}, .newcomer = false});
  victim.Tell(membership, 5);
  std::vector<std::unique_ptr<Communicator>> communicators(2);
  std::vector<std::thread> connecting;
  for (int rank = 0; rank < 2; ++rank) {
    connecting.emplace_back([&, rank] {
      auto connected = cluster.fabric(rank).Connect(membership, rank, testing::Deadline());
      ASSERT_TRUE(connected.has_value()) << MessageOf(connected);
      communicators[rank] = std::move(*connected);
    });
  }
  for (std::thread& thread : connecting) thread.join();
  EXPECT_EQ(victim.ReadLine(), "connected");
  std::thread killer([&] {
    EXPECT_EQ(victim.ReadLine(), "exchanging");
    victim.Kill();
  });

  const auto results = OnAll(communicators, [](Communicator& me) {
    Status status;
    while (status) status = testing::ExchangeLoad(me);
    return status;
  });
  killer.join();

  bool seen_directly = false;
  for (int i = 0; i < 2; ++i) {
    // Who sees it first aborts; the other may hear of it before it sees it.
    EXPECT_THAT(CodeOf(results[i]), ::testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kAborted));
    EXPECT_EQ(communicators[i]->lost_rank(), 5);
    EXPECT_THAT(MessageOf(results[i]), ::testing::HasSubstr("lost rank 5"));
    seen_directly |= CodeOf(results[i]) == ErrorCode::kUnavailable;
  }
  EXPECT_TRUE(seen_directly);

  auto regrouped = cluster.ConnectAll(cluster.Everybody(3));
  ExpectAllOk(OnAll(regrouped, [](Communicator& me) { return testing::ExchangeLoad(me); }));
}

}  // namespace
}  // namespace everstep
