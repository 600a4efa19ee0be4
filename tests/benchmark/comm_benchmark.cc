// Speed of the ordered reduction between processes of this machine: the sum of one fp32 vector per
// process, complete on every process (what others call all-reduce).
//
//   comm_benchmark --processes 4 --mebibytes 4,64 --iterations 30
//
// prints one JSON object per size: the median and the fastest time of a call over all processes
// (each call starts after a barrier and ends when the last process has its result), the processor
// time of all processes together (which a busy machine troubles less), and bytes of the vector per
// second at the median. scripts/bench-comm.py runs it beside Gloo.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "common/check.h"
#include "worker/comm/tcp_fabric.h"
#include "worker/parallel/ordered_reduce.h"

namespace everstep {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(30);
constexpr size_t kEndpointBytes = 64;

struct BenchmarkOptions {
  int processes = 4;
  std::vector<int64_t> mebibytes = {4, 64};
  int iterations = 30;
  int warmup = 3;
  bool tcp_only = false;
  int64_t round_chunks = 4;
};

// Both ends of a pipe through which the processes learn each other's endpoints.
struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe MakePipe() {
  std::array<int, 2> ends{};
  EVERSTEP_CHECK(::pipe(ends.data()) == 0);
  return {ends[0], ends[1]};
}

void WriteAll(int fd, const void* data, size_t bytes) {
  EVERSTEP_CHECK(::write(fd, data, bytes) == static_cast<ssize_t>(bytes));
}

void ReadAll(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    EVERSTEP_CHECK(got > 0);
    done += static_cast<size_t>(got);
  }
}

template <typename T>
T Must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "comm_benchmark: %s\n", result.error().message.c_str());
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The value of every member.
std::vector<double> Gather(Communicator& communicator, double mine) {
  std::vector<double> all(communicator.size());
  std::vector<MutableBytes> parts;
  for (double& value : all) parts.push_back(AsMutableBytes(std::span(&value, 1)));
  Must(communicator.AllGather(AsConstBytes(std::span<const double>(&mine, 1)), parts));
  return all;
}

double ProcessCpuSeconds() {
  timespec time{};
  EVERSTEP_CHECK(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct CallTime {
  double wall_seconds = 0;  // from the barrier to the last member's result
  double cpu_seconds = 0;   // of all members together
};

CallTime TimeOneCall(Communicator& communicator, const wire::Membership& membership,
                     OrderedReducer& reducer, const ReduceInput& input,
                     const ReduceOutput& output) {
  Must(communicator.Barrier());
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = ProcessCpuSeconds();
  Must(reducer.Reduce(communicator, membership, input, output));
  const double seconds = Seconds(std::chrono::steady_clock::now() - start);
  const double cpu_seconds = ProcessCpuSeconds() - cpu_start;
  const std::vector<double> wall = Gather(communicator, seconds);
  const std::vector<double> cpu = Gather(communicator, cpu_seconds);
  return {.wall_seconds = *std::max_element(wall.begin(), wall.end()),
          .cpu_seconds = std::accumulate(cpu.begin(), cpu.end(), 0.0)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void RunSize(const BenchmarkOptions& options, Communicator& communicator,
             const wire::Membership& membership, int64_t mebibytes) {
  const int64_t size = mebibytes * (1 << 20) / 4;
  std::vector<float> gradient(size, 1.0F + static_cast<float>(communicator.rank()));
  std::vector<float> reduced(size);
  std::vector<double> norms(NormChunks(size));
  const LogicalGradient local{.logical_rank = communicator.rank(), .values = gradient};
  const ReduceInput input{.local = {&local, 1}, .scale = 0.5F, .vote = {}};
  const ReduceOutput output{.reduced = reduced, .chunk_norms = norms, .votes = {}};
  OrderedReducer reducer({.round_elements = options.round_chunks * kNormChunk});
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int i = 0; i < options.warmup + options.iterations; ++i) {
    const CallTime took = TimeOneCall(communicator, membership, reducer, input, output);
    if (i < options.warmup) continue;
    wall.push_back(took.wall_seconds);
    cpu.push_back(took.cpu_seconds);
  }
  const int n = communicator.size();
  EVERSTEP_CHECK(reduced.front() == 0.25F * static_cast<float>(n * (n + 1)));
  EVERSTEP_CHECK(reduced.back() == reduced.front());
  if (communicator.rank() != 0) return;
  const double median = Median(wall);
  std::printf(
      "{\"backend\":\"everstep\",\"transport\":\"%s\",\"processes\":%d,\"mebibytes\":%ld,"
      "\"p50_ms\":%.3f,\"min_ms\":%.3f,\"cpu_ms\":%.3f,\"gigabytes_per_second\":%.3f}\n",
      options.tcp_only ? "tcp" : "unix", n, static_cast<long>(mebibytes), median * 1e3,
      *std::min_element(wall.begin(), wall.end()) * 1e3, Median(cpu) * 1e3,
      static_cast<double>(size) * 4 / median / 1e9);
  std::fflush(stdout);
}

void RunMember(const BenchmarkOptions& options, int rank, const Pipe& up, const Pipe& down) {
  auto fabric = Must(TcpFabric::Create({.bind_ip = "127.0.0.1",
                                        .port = 0,
                                        .job = "comm-benchmark",
                                        .token = {},
                                        .use_unix_sockets = !options.tcp_only}));
  std::array<char, kEndpointBytes> text{};
  fabric->endpoint().copy(text.data(), text.size() - 1);
  WriteAll(up.write_end, text.data(), text.size());
  wire::Membership membership{.generation = 1, .planned = false, .durable_step = -1, .members = {}};
  for (int i = 0; i < options.processes; ++i) {
    ReadAll(down.read_end, text.data(), text.size());
    membership.members.push_back(
        {.rank = i, .endpoint = text.data(), .logical_ranks = {i}, .newcomer = false});
  }
  auto communicator =
      Must(fabric->Connect(membership, rank, std::chrono::steady_clock::now() + kConnectTimeout));
  for (const int64_t size : options.mebibytes) RunSize(options, *communicator, membership, size);
}

int RunAll(const BenchmarkOptions& options) {
  std::vector<Pipe> up;
  std::vector<Pipe> down;
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.processes; ++rank) {
    up.push_back(MakePipe());
    down.push_back(MakePipe());
    const pid_t pid = ::fork();
    EVERSTEP_CHECK(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      RunMember(options, rank, up.back(), down.back());
      std::_Exit(0);
    }
    children.push_back(pid);
  }
  std::string endpoints(kEndpointBytes * children.size(), '\0');
  for (size_t i = 0; i < up.size(); ++i) {
    ReadAll(up[i].read_end, endpoints.data() + i * kEndpointBytes, kEndpointBytes);
  }
  for (const Pipe& pipe : down) WriteAll(pipe.write_end, endpoints.data(), endpoints.size());
  int failures = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) ++failures;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace everstep

int main(int argc, char** argv) {
  everstep::BenchmarkOptions options;
  CLI::App app("Speed of the ordered reduction between processes of this machine");
  app.add_option("--processes", options.processes)->check(CLI::Range(1, 64));
  app.add_option("--mebibytes", options.mebibytes)->delimiter(',');
  app.add_option("--iterations", options.iterations)->check(CLI::Range(1, 100000));
  app.add_option("--round-chunks", options.round_chunks, "Chunks of a shard per round");
  app.add_flag("--tcp-only", options.tcp_only, "No Unix-domain sockets");
  CLI11_PARSE(app, argc, argv);
  return everstep::RunAll(options);
}
