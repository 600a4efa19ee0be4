#include "worker/recovery/heartbeat.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace everstep {
namespace {

constexpr std::chrono::seconds kPatience{20};

// Waits until `reader` has seen `count` beats; false when it does not happen.
bool AwaitBeats(const HeartbeatReader& reader, uint64_t count) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (reader.Read().beats >= count) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(HeartbeatTest, SilentBeforeAnybodyBeats) {
  const auto reader = HeartbeatReader::Create();
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->Read().beats, 0u);
  EXPECT_EQ(reader->Read().phase, "");
}

TEST(HeartbeatTest, BeatsWithTheTimeAndCarriesTheProgress) {
  const auto reader = HeartbeatReader::Create();
  ASSERT_TRUE(reader.has_value());
  const TimePoint before = std::chrono::steady_clock::now();
  auto writer = HeartbeatWriter::Open(dup(reader->fd()));
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  ASSERT_TRUE(AwaitBeats(*reader, 3));
  EXPECT_GE(reader->Read().time, before);
  EXPECT_LE(reader->Read().time, std::chrono::steady_clock::now());

  (*writer)->SetProgress(7, 42, "compute");
  const Beat beat = reader->Read();
  EXPECT_EQ(beat.generation, 7u);
  EXPECT_EQ(beat.step, 42);
  EXPECT_EQ(beat.phase, "compute");

  (*writer)->SetProgress(8, -1, std::string(100, 'p'));
  EXPECT_EQ(reader->Read().phase, std::string(kPhaseBytes, 'p'));
  EXPECT_EQ(reader->Read().step, -1);
}

TEST(HeartbeatTest, NeverReadsHalfOfAnUpdate) {
  const auto reader = HeartbeatReader::Create();
  ASSERT_TRUE(reader.has_value());
  auto writer = HeartbeatWriter::Open(dup(reader->fd()));
  ASSERT_TRUE(writer.has_value());
  const std::jthread updates([&] {
    for (int i = 1; i <= 20000; ++i) {
      (*writer)->SetProgress(static_cast<uint64_t>(i), i, std::to_string(i));
    }
  });
  int whole = 0;
  for (int i = 0; i < 20000; ++i) {
    const Beat beat = reader->Read();
    if (!beat.whole) continue;  // the writer was interrupted in the middle
    ++whole;
    ASSERT_EQ(beat.generation, static_cast<uint64_t>(beat.step));
    if (beat.step > 0) {
      ASSERT_EQ(beat.phase, std::to_string(beat.step));
    }
  }
  EXPECT_GT(whole, 0);
}

TEST(HeartbeatTest, ResetForgetsTheFormerProcess) {
  auto reader = HeartbeatReader::Create();
  ASSERT_TRUE(reader.has_value());
  {
    auto writer = HeartbeatWriter::Open(dup(reader->fd()));
    ASSERT_TRUE(writer.has_value());
    (*writer)->SetProgress(7, 42, "compute");
    ASSERT_TRUE(AwaitBeats(*reader, 1));
  }
  reader->Reset();
  EXPECT_EQ(reader->Read().beats, 0u);
  EXPECT_EQ(reader->Read().generation, 0u);
  // And the next process may use it.
  EXPECT_TRUE(HeartbeatWriter::Open(dup(reader->fd())).has_value());
}

TEST(HeartbeatTest, AKilledProcessFallsSilent) {
  const auto reader = HeartbeatReader::Create();
  ASSERT_TRUE(reader.has_value());
  const pid_t child = fork();
  if (child == 0) {
    auto writer = HeartbeatWriter::Open(dup(reader->fd()));
    pause();
    _exit(writer.has_value() ? 0 : 1);
  }
  ASSERT_TRUE(AwaitBeats(*reader, 2));
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // What it said last stays readable, and nothing follows.
  const Beat last = reader->Read();
  EXPECT_GE(last.beats, 2u);
  EXPECT_LE(last.time, std::chrono::steady_clock::now());
  EXPECT_EQ(reader->Read().beats, last.beats);
}

TEST(HeartbeatTest, WithoutASupervisorThereIsNone) {
  unsetenv(kHeartbeatFdVariable);
  const auto writer = HeartbeatWriter::FromEnvironment();
  ASSERT_TRUE(writer.has_value());
  EXPECT_EQ(*writer, nullptr);
}

TEST(HeartbeatTest, AWrongDescriptorIsAnError) {
  for (const char* value : {"nine", "-1", "999"}) {
    setenv(kHeartbeatFdVariable, value, 1);
    const auto writer = HeartbeatWriter::FromEnvironment();
    ASSERT_FALSE(writer.has_value()) << value;
    EXPECT_NE(writer.error().message.find(kHeartbeatFdVariable), std::string::npos);
  }
  unsetenv(kHeartbeatFdVariable);
  EXPECT_FALSE(HeartbeatWriter::Open(open("/dev/null", O_RDWR)).has_value());
  const int foreign = memfd_create("foreign", 0);
  ASSERT_EQ(ftruncate(foreign, 4096), 0);
  EXPECT_FALSE(HeartbeatWriter::Open(foreign).has_value());
}

}  // namespace
}  // namespace everstep
