// Cursors over what is still to be written to or read from one peer in one operation: a frame
// and then the caller's pieces, in place. No I/O.
#ifndef EVERSTEP_WORKER_COMM_TCP_STREAM_H_
#define EVERSTEP_WORKER_COMM_TCP_STREAM_H_

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/frame.h"

namespace everstep {

// At most this much moves in one system call, so that an abort is seen soon.
inline constexpr size_t kMaxBurstBytes = 256 << 10;

// A short list of buffers for one gathering write or scattering read; copied without allocation.
template <typename Buffer>
class BufferList {
 public:
  static constexpr size_t kMaxBuffers = 16;
  using value_type = Buffer;
  using const_iterator = const Buffer*;

  const_iterator begin() const { return buffers_.data(); }
  const_iterator end() const { return buffers_.data() + count_; }
  bool full() const { return count_ == kMaxBuffers; }
  void Add(Buffer buffer) { buffers_[count_++] = buffer; }

 private:
  std::array<Buffer, kMaxBuffers> buffers_;
  size_t count_ = 0;
};

template <typename Buffer>
class StreamCursor {
 public:
  // Starts an operation. Keeps the memory of the piece list.
  void Reset() {
    pieces_.clear();
    pieces_.push_back(boost::asio::buffer(frame_));
    next_ = offset_ = 0;
    payload_ = 0;
    remaining_ = kFrameBytes;
    active_ = false;
  }
  void Add(Buffer piece) {
    if (piece.size() == 0) return;
    pieces_.push_back(piece);
    payload_ += piece.size();
    remaining_ += piece.size();
  }
  void set_active() { active_ = true; }
  bool active() const { return active_; }

  FrameBytes& frame() { return frame_; }
  size_t payload() const { return payload_; }      // bytes after the frame
  size_t remaining() const { return remaining_; }  // bytes, the frame included
  // Bytes of the payload that have moved.
  size_t payload_done() const { return remaining_ >= payload_ ? 0 : payload_ - remaining_; }
  bool frame_done() const { return remaining_ <= payload_; }

  // What comes next, up to kMaxBurstBytes.
  BufferList<Buffer> NextBurst() const {
    BufferList<Buffer> burst;
    size_t room = kMaxBurstBytes;
    size_t skip = offset_;
    for (size_t i = next_; i < pieces_.size() && room > 0 && !burst.full(); ++i) {
      const Buffer rest = boost::asio::buffer(pieces_[i] + skip, room);
      burst.Add(rest);
      room -= rest.size();
      skip = 0;
    }
    return burst;
  }
  void Advance(size_t bytes) {
    remaining_ -= bytes;
    while (bytes > 0) {
      const size_t step = std::min(bytes, pieces_[next_].size() - offset_);
      offset_ += step;
      bytes -= step;
      if (offset_ == pieces_[next_].size()) {
        ++next_;
        offset_ = 0;
      }
    }
  }

 private:
  FrameBytes frame_{};
  std::vector<Buffer> pieces_;
  size_t next_ = 0;    // piece
  size_t offset_ = 0;  // within it
  size_t payload_ = 0;
  size_t remaining_ = 0;
  bool active_ = false;
};

inline boost::asio::const_buffer AsBuffer(ConstBytes bytes) {
  return boost::asio::const_buffer(bytes.data(), bytes.size());
}
inline boost::asio::mutable_buffer AsBuffer(MutableBytes bytes) {
  return boost::asio::mutable_buffer(bytes.data(), bytes.size());
}

using OutStream = StreamCursor<boost::asio::const_buffer>;
using InStream = StreamCursor<boost::asio::mutable_buffer>;

}  // namespace everstep

#endif  // EVERSTEP_WORKER_COMM_TCP_STREAM_H_
