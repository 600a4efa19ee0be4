#include "worker/comm/tcp_mesh.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "common/strings.h"

namespace everstep {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kFirstRetry = std::chrono::milliseconds(1);
constexpr auto kLastRetry = std::chrono::milliseconds(50);

class MeshBuilder {
 public:
  MeshBuilder(TcpLobby& lobby, const MeshRequest& request)
      : lobby_(lobby),
        request_(request),
        generation_(request.membership.generation),
        digest_(MembershipDigest(request.membership)),
        links_(request.membership.members.size()),
        missing_(2 * (links_.size() - 1)) {}

  Result<std::vector<TcpLink>> Build();

 private:
  // One connection that this member opens, through all its attempts.
  struct Dial {
    explicit Dial(asio::io_context& io) : socket(io), timer(io) {}
    size_t to = 0;
    FrameKind channel = FrameKind::kHelloData;
    StreamSocket socket;
    asio::steady_timer timer;
    std::chrono::milliseconds next_retry = kFirstRetry;
    FrameBytes answer{};
    std::string last_error = "no answer yet";
  };

  void StartDial(Dial& dial);
  void DialTcp(Dial& dial);
  void SayHello(Dial& dial);
  void OnAnswer(Dial& dial);
  void RetryLater(Dial& dial, std::string reason);
  void OnRefusal(const Dial& dial, const CommFrame& refusal);
  void OnGuest(TcpLobby::Guest guest);
  std::optional<Refusal> WhyNot(const CommFrame& hello) const;
  void Adopt(size_t position, FrameKind channel, UniqueFd socket);
  void WatchDeadlineAndStop();
  Error TimeoutError() const;
  void Fail(ErrorCode code, std::string message);
  void AbortLinks();

  int32_t RankAt(size_t position) const { return request_.membership.members[position].rank; }
  int32_t MyRank() const { return RankAt(request_.position); }
  std::string Prefix() const { return "generation " + std::to_string(generation_) + ": "; }

  TcpLobby& lobby_;
  const MeshRequest& request_;
  const uint64_t generation_;
  const uint64_t digest_;
  asio::io_context io_{1};
  asio::steady_timer deadline_{io_};
  std::vector<std::unique_ptr<Dial>> dials_;
  std::vector<TcpLink> links_;
  size_t missing_;  // connections
  std::optional<Error> error_;
};

Result<std::vector<TcpLink>> MeshBuilder::Build() {
  RETURN_IF_ERROR(lobby_.Expect(generation_, [this](TcpLobby::Guest guest) {
    asio::post(io_, [this, guest = std::move(guest)]() mutable { OnGuest(std::move(guest)); });
  }));
  for (int to = 0; to < request_.position; ++to) {
    for (const FrameKind channel : {FrameKind::kHelloData, FrameKind::kHelloControl}) {
      auto dial = std::make_unique<Dial>(io_);
      dial->to = to;
      dial->channel = channel;
      dials_.push_back(std::move(dial));
      StartDial(*dials_.back());
    }
  }
  WatchDeadlineAndStop();
  lobby_.StopExpecting();  // nothing refers to this object or its io_context after here
  if (error_) {
    AbortLinks();
    return tl::unexpected<Error>(*std::move(error_));
  }
  return std::move(links_);
}

void MeshBuilder::WatchDeadlineAndStop() {
  deadline_.expires_at(request_.deadline);
  deadline_.async_wait([this](error_code ec) {
    if (!ec) error_ = TimeoutError();
  });
  const std::stop_callback on_stop(request_.stop, [this] { asio::post(io_, [] {}); });
  while (missing_ > 0 && !error_) {
    if (request_.stop.stop_requested()) {
      return Fail(ErrorCode::kAborted, "connecting was stopped");
    }
    io_.run_one();
  }
}

void MeshBuilder::StartDial(Dial& dial) {
  if (request_.use_unix_sockets) {
    auto unix_socket = ConnectUnix(request_.endpoints[dial.to]);
    if (unix_socket) {
      AdoptSocket(dial.socket, *std::move(unix_socket));
      return SayHello(dial);
    }
    if (unix_socket.error().code == ErrorCode::kUnavailable) {
      return RetryLater(dial, unix_socket.error().message);
    }
  }
  DialTcp(dial);
}

void MeshBuilder::DialTcp(Dial& dial) {
  const TcpEndpoint& endpoint = request_.endpoints[dial.to];
  dial.socket.async_connect(endpoint, [this, &dial](error_code ec) {
    if (ec) return RetryLater(dial, ec.message());
    SayHello(dial);
  });
}

void MeshBuilder::SayHello(Dial& dial) {
  TuneSocket(dial.socket.native_handle());
  const bool sent = SendFrameNow(dial.socket.native_handle(), {.kind = dial.channel,
                                                               .job = request_.job,
                                                               .generation = generation_,
                                                               .sequence = digest_,
                                                               .sender = MyRank(),
                                                               .argument = RankAt(dial.to)});
  if (!sent) return RetryLater(dial, "connection closed");
  asio::async_read(dial.socket, asio::buffer(dial.answer), [this, &dial](error_code ec, size_t) {
    if (ec) return RetryLater(dial, ec.message());
    OnAnswer(dial);
  });
}

void MeshBuilder::OnAnswer(Dial& dial) {
  const auto answer = DecodeCommFrame(dial.answer);
  if (!answer) return RetryLater(dial, answer.error().message);
  if (answer->kind == FrameKind::kRefused) return OnRefusal(dial, *answer);
  if (answer->kind != FrameKind::kWelcome || answer->job != request_.job ||
      answer->generation != generation_ || answer->sequence != digest_) {
    return RetryLater(dial, "an answer of another job or generation");
  }
  Adopt(dial.to, dial.channel, ReleaseSocket(dial.socket));
}

void MeshBuilder::OnRefusal(const Dial& dial, const CommFrame& refusal) {
  const std::string who = "rank " + std::to_string(RankAt(dial.to)) + " ";
  switch (static_cast<Refusal>(refusal.argument)) {
    case Refusal::kOlderGeneration:
      return Fail(ErrorCode::kAborted,
                  who + "is in generation " + std::to_string(refusal.generation) + " already");
    case Refusal::kOtherJob:
      return Fail(ErrorCode::kFailedPrecondition,
                  who + "at " + FormatEndpoint(request_.endpoints[dial.to]) +
                      " belongs to another job (EVERSTEP_JOB or EVERSTEP_TOKEN differ)");
    case Refusal::kOtherMembership:
      return Fail(ErrorCode::kInternal, who + "has other members in this generation");
    case Refusal::kNotExpected:
      break;
  }
  Fail(ErrorCode::kAborted, who + "does not expect this process in this generation");
}

void MeshBuilder::RetryLater(Dial& dial, std::string reason) {
  if (error_) return;
  dial.last_error = std::move(reason);
  error_code ignored;
  dial.socket.close(ignored);
  dial.timer.expires_after(dial.next_retry);
  dial.next_retry = std::min(2 * dial.next_retry, kLastRetry);
  dial.timer.async_wait([this, &dial](error_code ec) {
    if (!ec) StartDial(dial);
  });
}

std::optional<Refusal> MeshBuilder::WhyNot(const CommFrame& hello) const {
  if (hello.sequence != digest_) return Refusal::kOtherMembership;
  if (hello.argument != MyRank()) return Refusal::kNotExpected;
  for (size_t from = request_.position + 1; from < links_.size(); ++from) {
    if (RankAt(from) == hello.sender) return std::nullopt;
  }
  return Refusal::kNotExpected;
}

void MeshBuilder::OnGuest(TcpLobby::Guest guest) {
  if (error_) return;
  CommFrame answer{.kind = FrameKind::kWelcome,
                   .job = request_.job,
                   .generation = generation_,
                   .sequence = digest_,
                   .sender = MyRank()};
  if (const auto refusal = WhyNot(guest.hello)) {
    answer.kind = FrameKind::kRefused;
    answer.argument = static_cast<int32_t>(*refusal);
    (void)SendFrameNow(guest.socket.get(), answer);
    if (*refusal == Refusal::kOtherMembership) {
      Fail(ErrorCode::kInternal,
           "rank " + std::to_string(guest.hello.sender) + " has other members in this generation");
    }
    return;
  }
  // When the answer cannot be sent, the peer has given up this attempt and dials again.
  if (!SendFrameNow(guest.socket.get(), answer)) return;
  size_t from = request_.position + 1;
  while (RankAt(from) != guest.hello.sender) ++from;
  Adopt(from, guest.hello.kind, std::move(guest.socket));
}

void MeshBuilder::Adopt(size_t position, FrameKind channel, UniqueFd socket) {
  TcpLink& link = links_[position];
  UniqueFd& place = channel == FrameKind::kHelloData ? link.data : link.control;
  if (!place) --missing_;  // else the peer dialled again: its newest connection counts
  place = std::move(socket);
}

Error MeshBuilder::TimeoutError() const {
  std::vector<std::string> absent;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (i == static_cast<size_t>(request_.position)) continue;
    if (links_[i].data && links_[i].control) continue;
    std::string text =
        "rank " + std::to_string(RankAt(i)) + " at " + FormatEndpoint(request_.endpoints[i]);
    for (const auto& dial : dials_) {
      if (dial->to == i && dial->channel == FrameKind::kHelloData) {
        text += " (" + dial->last_error + ")";
      }
    }
    absent.push_back(std::move(text));
  }
  return Error{ErrorCode::kDeadlineExceeded,
               Prefix() + "not connected in time: " + Join(absent, ", ")};
}

void MeshBuilder::Fail(ErrorCode code, std::string message) {
  if (!error_) error_ = Error{code, Prefix() + std::move(message)};
}

void MeshBuilder::AbortLinks() {
  for (const TcpLink& link : links_) {
    if (!link.control) continue;
    (void)SendFrameNow(link.control.get(), {.kind = FrameKind::kAbort,
                                            .job = request_.job,
                                            .generation = generation_,
                                            .sender = MyRank(),
                                            .argument = -1});
  }
}

}  // namespace

Result<std::vector<TcpLink>> BuildMesh(TcpLobby& lobby, const MeshRequest& request) {
  return MeshBuilder(lobby, request).Build();
}

}  // namespace everstep
