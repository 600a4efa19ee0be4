// A file that is written front to back, hashed on the way and synced at the end.
#ifndef EVERSTEP_WORKER_CHECKPOINT_FILE_WRITER_H_
#define EVERSTEP_WORKER_CHECKPOINT_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

namespace everstep {

// "xxh3_128:" and 32 hexadecimal digits, computed piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string ChecksumOf(std::string_view text);
// Reads the file in bounded pieces.
Result<std::string> ChecksumOfFile(const std::string& path);

class FileWriter {
 public:
  // Creates `path`, or empties it.
  static Result<FileWriter> Create(const std::string& path);
  // A file that was not finished is removed.
  ~FileWriter();
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;

  // kResourceExhausted when the disk is full.
  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  // Syncs and closes.
  Status Finish();

  uint64_t bytes() const { return bytes_; }
  std::string checksum() const { return checksum_.Text(); }

 private:
  explicit FileWriter(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  Checksum checksum_;
};

}  // namespace everstep

#endif  // EVERSTEP_WORKER_CHECKPOINT_FILE_WRITER_H_
