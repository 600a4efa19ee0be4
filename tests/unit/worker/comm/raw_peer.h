// A peer of which every byte is under the test's control.
#ifndef EVERSTEP_TESTS_UNIT_WORKER_COMM_RAW_PEER_H_
#define EVERSTEP_TESTS_UNIT_WORKER_COMM_RAW_PEER_H_

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <string_view>

#include "worker/comm/frame.h"
#include "worker/comm/tcp_socket.h"

namespace everstep::testing {

class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint) {
    boost::system::error_code ec;
    socket_.connect(*ParseEndpoint(endpoint), ec);
    EXPECT_FALSE(ec) << ec.message();
  }

  void Say(const CommFrame& frame) {
    const FrameBytes bytes = EncodeCommFrame(frame);
    SayText({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void SayText(std::string_view text) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(text), ignored);
  }
  // The next frame, or kUnavailable when the connection has ended.
  Result<CommFrame> Hear() {
    FrameBytes bytes{};
    boost::system::error_code ec;
    boost::asio::read(socket_, boost::asio::buffer(bytes), ec);
    if (ec) return Unavailable(ec.message());
    return DecodeCommFrame(bytes);
  }
  void Close() { socket_.close(); }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_{io_};
};

}  // namespace everstep::testing

#endif  // EVERSTEP_TESTS_UNIT_WORKER_COMM_RAW_PEER_H_
