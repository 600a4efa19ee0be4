#include "operator/rendezvous/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace everstep {
namespace {

constexpr std::chrono::seconds kDrainTimeout{1};

}  // namespace

Connection::Connection(Stream stream, size_t max_queued_bytes)
    : stream_(std::move(stream)),
      drain_timer_(stream_.get_executor()),
      max_queued_bytes_(max_queued_bytes) {}

void Connection::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  boost::system::error_code ignored;
  stream_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  Read();
}

void Connection::Read() {
  stream_.async_read_some(boost::asio::buffer(input_), [self = shared_from_this()](auto error,
                                                                                   size_t size) {
    if (self->state_ != State::kOpen) return;
    if (error)
      return self->Fail(error == boost::asio::error::eof ? "closed by the peer" : error.message());
    self->Decode(size);
    if (self->state_ == State::kOpen) self->Read();
  });
}

void Connection::Decode(size_t size) {
  decoder_.Append({input_.data(), size});
  while (state_ == State::kOpen) {
    Result<wire::Message> message = decoder_.Next();
    if (!message && message.error().code == ErrorCode::kNotFound) return;
    if (!message) return Fail("malformed input: " + message.error().message);
    handlers_.on_message(std::move(*message));
  }
}

void Connection::Send(const wire::Message& message) {
  if (state_ != State::kOpen) return;
  queued_ += wire::EncodeFrame(message);
  if (queued_.size() + writing_.size() > max_queued_bytes_) {
    return Fail("the peer does not read what it is sent");
  }
  if (writing_.empty()) Write();
}

void Connection::Write() {
  if (queued_.empty()) {
    if (state_ == State::kDraining) Abort();
    return;
  }
  writing_.swap(queued_);
  boost::asio::async_write(stream_, boost::asio::buffer(writing_),
                           [self = shared_from_this()](auto error, size_t) {
                             self->writing_.clear();
                             if (self->state_ == State::kClosed) return;
                             if (error) return self->Fail(error.message());
                             self->Write();
                           });
}

void Connection::CloseWhenSent() {
  if (state_ != State::kOpen) return;
  state_ = State::kDraining;
  if (writing_.empty()) return Write();
  drain_timer_.expires_after(kDrainTimeout);
  drain_timer_.async_wait([self = shared_from_this()](auto) { self->Abort(); });
}

void Connection::Abort() {
  state_ = State::kClosed;
  drain_timer_.cancel();
  boost::system::error_code ignored;
  stream_.shutdown(Stream::shutdown_both, ignored);
  stream_.close(ignored);
}

void Connection::Fail(const std::string& reason) {
  const bool tell = state_ == State::kOpen;
  Abort();
  if (!tell) return;
  // Later, since the caller may be in the middle of acting on something else.
  boost::asio::post(stream_.get_executor(),
                    [self = shared_from_this(), reason] { self->handlers_.on_closed(reason); });
}

}  // namespace everstep
