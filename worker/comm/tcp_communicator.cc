#include "worker/comm/tcp_communicator.h"

#include <boost/asio/read.hpp>
#include <utility>

#include "common/check.h"

namespace everstep {

namespace asio = boost::asio;
using boost::system::error_code;

TcpCommunicator::TcpCommunicator(const wire::Membership& membership, int position, uint64_t job,
                                 std::vector<TcpLink> links, std::stop_token stop)
    : position_(position),
      my_rank_(membership.members[position].rank),
      generation_(membership.generation),
      job_(job) {
  for (size_t i = 0; i < membership.members.size(); ++i) {
    peers_.push_back(nullptr);
    if (i == static_cast<size_t>(position)) continue;
    auto peer = std::make_unique<Peer>(io_, static_cast<int>(i), membership.members[i].rank);
    TuneSocket(links[i].data.get());
    control_fds_.push_back(links[i].control.get());
    AdoptSocket(peer->data, std::move(links[i].data));
    AdoptSocket(peer->control, std::move(links[i].control));
    peer->data.non_blocking(true);
    ReadControl(*peer);
    peers_.back() = std::move(peer);
  }
  on_stop_.emplace(std::move(stop), [this] { Abort(); });
}

TcpCommunicator::~TcpCommunicator() {
  on_stop_.reset();
  {
    const std::lock_guard lock(farewell_mutex_);
    SayFarewellLocked(FrameKind::kLeave, -1);
  }
  CloseAll();
}

// ---- One operation ---------------------------------------------------------------------------

Status TcpCommunicator::Begin(FrameKind kind) {
  if (!error_ && aborted_.load()) Fail(ErrorCode::kAborted, "aborted");
  if (error_) return tl::unexpected<Error>(*error_);
  kind_ = kind;
  pending_ = 0;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->out.Reset();
    peer->in.Reset();
  }
  return {};
}

void TcpCommunicator::StartOut(Peer& peer) {
  peer.out.frame() = EncodeCommFrame({.kind = kind_,
                                      .job = job_,
                                      .generation = generation_,
                                      .sequence = peer.frames_sent++,
                                      .sender = my_rank_,
                                      .length = peer.out.payload()});
  ++pending_;
  Write(peer);
}

void TcpCommunicator::StartIn(Peer& peer) {
  ++pending_;
  Read(peer);
}

Status TcpCommunicator::Run(const ReceiveProgress& progress) {
  progress_ = progress ? &progress : nullptr;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (peer->in.active()) StartIn(*peer);
    if (peer->out.active()) StartOut(*peer);
  }
  while (pending_ > 0 && !error_ && !aborted_.load()) io_.run_one();
  return Finish();
}

Status TcpCommunicator::Finish() {
  progress_ = nullptr;
  if (pending_ > 0 && !error_) Fail(ErrorCode::kAborted, "aborted");
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

void TcpCommunicator::Write(Peer& peer) {
  peer.data.async_write_some(peer.out.NextBurst(), [this, &peer](error_code ec, size_t bytes) {
    if (error_) return;
    if (ec) return OnDataBroken(peer);
    peer.out.Advance(bytes);
    if (peer.out.remaining() > 0) return Write(peer);
    --pending_;
  });
}

void TcpCommunicator::Read(Peer& peer) {
  peer.data.async_read_some(peer.in.NextBurst(), [this, &peer](error_code ec, size_t bytes) {
    if (error_) return;
    if (ec) return OnDataBroken(peer);
    OnRead(peer, bytes);
  });
}

void TcpCommunicator::OnRead(Peer& peer, size_t bytes) {
  const bool had_frame = peer.in.frame_done();
  peer.in.Advance(bytes);
  if (!had_frame && peer.in.frame_done() && !CheckHeader(peer)) return;
  if (progress_ != nullptr && peer.in.payload_done() > 0) {
    (*progress_)(peer.position, peer.in.payload_done());
  }
  if (peer.in.remaining() > 0) return Read(peer);
  --pending_;
}

bool TcpCommunicator::CheckHeader(Peer& peer) {
  const auto frame = DecodeCommFrame(peer.in.frame());
  const std::string who = "rank " + std::to_string(peer.rank) + " ";
  if (!frame || frame->job != job_ || frame->sender != peer.rank) {
    Fail(ErrorCode::kInternal, who + "sent bytes that are no frame of this job");
  } else if (frame->generation != generation_) {
    Fail(ErrorCode::kAborted, who + "is in generation " + std::to_string(frame->generation));
  } else if (frame->sequence != peer.frames_received++ || frame->kind != kind_ ||
             frame->length != peer.in.payload()) {
    Fail(ErrorCode::kInternal,
         who + "disagrees: it is in " + std::string(FrameKindName(frame->kind)) + " no. " +
             std::to_string(frame->sequence) + " with " + std::to_string(frame->length) +
             " bytes, here is " + std::string(FrameKindName(kind_)) + " no. " +
             std::to_string(peer.frames_received - 1) + " expecting " +
             std::to_string(peer.in.payload()));
  }
  return !error_;
}

// ---- Farewells and failures --------------------------------------------------------------------

void TcpCommunicator::ReadControl(Peer& peer) {
  asio::async_read(peer.control, asio::buffer(peer.farewell), [this, &peer](error_code ec, size_t) {
    if (error_) return;
    if (ec) return OnLost(peer);
    OnFarewell(peer);
  });
}

void TcpCommunicator::OnFarewell(Peer& peer) {
  const auto frame = DecodeCommFrame(peer.farewell);
  const std::string who = "rank " + std::to_string(peer.rank) + " ";
  if (!frame || frame->job != job_ || frame->generation != generation_) {
    return Fail(ErrorCode::kInternal, who + "sent a farewell of another job or generation");
  }
  if (frame->kind == FrameKind::kLeave) {
    peer.left = true;
    if (peer.data_broken) OnDataBroken(peer);
    return;
  }
  std::string message = who + "aborted";
  if (frame->argument >= 0) {
    lost_rank_.store(frame->argument);
    message += ": it lost rank " + std::to_string(frame->argument);
  }
  Fail(ErrorCode::kAborted, std::move(message));
}

void TcpCommunicator::OnDataBroken(Peer& peer) {
  if (peer.left) {
    return Fail(ErrorCode::kAborted,
                "rank " + std::to_string(peer.rank) + " has left this generation");
  }
  if (std::exchange(peer.data_broken, true)) return;
  peer.farewell_timer.expires_after(kFarewellTimeout);
  peer.farewell_timer.async_wait([this, &peer](error_code ec) {
    if (!ec && !error_) OnLost(peer);
  });
}

void TcpCommunicator::OnLost(Peer& peer) {
  lost_rank_.store(peer.rank);
  Fail(ErrorCode::kUnavailable,
       "lost rank " + std::to_string(peer.rank) + ": its connection ended without a farewell");
}

void TcpCommunicator::Fail(ErrorCode code, std::string message) {
  if (error_) return;
  error_ = Error{code, Prefix() + std::move(message)};
  {
    const std::lock_guard lock(farewell_mutex_);
    SayFarewellLocked(FrameKind::kAbort, lost_rank_.load());
  }
  CloseAll();
}

void TcpCommunicator::SayFarewellLocked(FrameKind kind, int lost_rank) {
  for (const int fd : control_fds_) {
    (void)SendFrameNow(fd, {.kind = kind,
                            .job = job_,
                            .generation = generation_,
                            .sender = my_rank_,
                            .argument = lost_rank});
  }
  control_fds_.clear();
}

void TcpCommunicator::CloseAll() {
  error_code ignored;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->farewell_timer.cancel();
    peer->data.close(ignored);
    peer->control.close(ignored);
  }
}

void TcpCommunicator::Abort() {
  const std::lock_guard lock(farewell_mutex_);
  if (aborted_.exchange(true)) return;
  SayFarewellLocked(FrameKind::kAbort, -1);
  io_.stop();
}

// ---- The operations ----------------------------------------------------------------------------

Status TcpCommunicator::Exchange(std::span<const SendPiece> sends,
                                 std::span<const ReceivePiece> receives,
                                 const ReceiveProgress& progress) {
  RETURN_IF_ERROR(Begin(FrameKind::kExchange));
  RETURN_IF_ERROR(CopyToSelf(sends, receives));
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->out.set_active();
    peer->in.set_active();
  }
  for (const SendPiece& piece : sends) {
    if (piece.to != position_) peers_.at(piece.to)->out.Add(AsBuffer(piece.bytes));
  }
  for (const ReceivePiece& piece : receives) {
    if (piece.from != position_) peers_.at(piece.from)->in.Add(AsBuffer(piece.bytes));
  }
  return Run(progress);
}

Status TcpCommunicator::CopyToSelf(std::span<const SendPiece> sends,
                                   std::span<const ReceivePiece> receives) {
  auto to = receives.begin();
  size_t filled = 0;  // of *to
  const auto skip_full = [&] {
    while (to != receives.end() && (to->from != position_ || filled == to->bytes.size())) {
      ++to;
      filled = 0;
    }
  };
  for (const SendPiece& piece : sends) {
    if (piece.to != position_) continue;
    for (ConstBytes rest = piece.bytes; !rest.empty();) {
      skip_full();
      if (to == receives.end()) return Internal(Prefix() + "no room for a piece to oneself");
      const size_t bytes = std::min(rest.size(), to->bytes.size() - filled);
      std::copy_n(rest.begin(), bytes, to->bytes.begin() + static_cast<ptrdiff_t>(filled));
      filled += bytes;
      rest = rest.subspan(bytes);
    }
  }
  skip_full();
  if (to != receives.end()) return Internal(Prefix() + "a piece from oneself was never sent");
  return {};
}

Status TcpCommunicator::AllGather(ConstBytes mine, std::span<const MutableBytes> parts) {
  RETURN_IF_ERROR(Begin(FrameKind::kAllGather));
  const MutableBytes own = parts[position_];
  if (parts.size() != peers_.size() || own.size() != mine.size()) {
    return Internal(Prefix() + "all-gather: parts do not fit the members");
  }
  if (own.data() != mine.data()) std::copy(mine.begin(), mine.end(), own.begin());
  for (int i = 0; i < size(); ++i) {
    if (i == position_) continue;
    peers_[i]->out.set_active();
    peers_[i]->in.set_active();
    peers_[i]->out.Add(AsBuffer(mine));
    peers_[i]->in.Add(AsBuffer(parts[i]));
  }
  return Run();
}

Status TcpCommunicator::Broadcast(int root, MutableBytes bytes) {
  if (size() > 2 && bytes.size() >= kScatterBroadcastBytes) return ScatterBroadcast(root, bytes);
  RETURN_IF_ERROR(Begin(FrameKind::kBroadcast));
  for (int i = 0; i < size(); ++i) {
    if (i == position_) continue;
    if (position_ == root) {
      peers_[i]->out.set_active();
      peers_[i]->out.Add(AsBuffer(ConstBytes(bytes)));
    } else if (i == root) {
      peers_[i]->in.set_active();
      peers_[i]->in.Add(AsBuffer(bytes));
    }
  }
  return Run();
}

// The root gives each member its slice; then every member gives its slice to all but the root.
// The root sends each byte twice instead of once per member.
Status TcpCommunicator::ScatterBroadcast(int root, MutableBytes bytes) {
  const size_t members = peers_.size();
  const auto slice = [&](size_t i) {
    const size_t begin = bytes.size() / members * i;
    const size_t end = i + 1 == members ? bytes.size() : bytes.size() / members * (i + 1);
    return bytes.subspan(begin, end - begin);
  };
  RETURN_IF_ERROR(Begin(FrameKind::kBroadcast));
  if (position_ == root) {
    for (size_t i = 0; i < members; ++i) {
      if (!peers_[i]) continue;
      peers_[i]->out.set_active();
      peers_[i]->out.Add(AsBuffer(ConstBytes(slice(i))));
    }
  } else {
    peers_[root]->in.set_active();
    peers_[root]->in.Add(AsBuffer(slice(position_)));
  }
  RETURN_IF_ERROR(Run());

  RETURN_IF_ERROR(Begin(FrameKind::kBroadcast));
  for (size_t i = 0; i < members; ++i) {
    if (!peers_[i]) continue;
    if (static_cast<int>(i) != root) {
      peers_[i]->out.set_active();
      peers_[i]->out.Add(AsBuffer(ConstBytes(slice(position_))));
    }
    if (position_ != root) {
      peers_[i]->in.set_active();
      peers_[i]->in.Add(AsBuffer(slice(i)));
    }
  }
  return Run();
}

Status TcpCommunicator::Barrier() {
  RETURN_IF_ERROR(Begin(FrameKind::kBarrier));
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->out.set_active();
    peer->in.set_active();
  }
  return Run();
}

Status TcpCommunicator::Send(int to, ConstBytes bytes) {
  RETURN_IF_ERROR(Begin(FrameKind::kPointToPoint));
  EVERSTEP_CHECK(to != position_);
  Peer& peer = *peers_.at(to);
  peer.out.set_active();
  peer.out.Add(AsBuffer(bytes));
  return Run();
}

Status TcpCommunicator::Receive(int from, MutableBytes bytes) {
  RETURN_IF_ERROR(Begin(FrameKind::kPointToPoint));
  EVERSTEP_CHECK(from != position_);
  Peer& peer = *peers_.at(from);
  peer.in.set_active();
  peer.in.Add(AsBuffer(bytes));
  return Run();
}

}  // namespace everstep
