#include "operator/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace everstep {
namespace {

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<double>(std::distance(begin(files), end(files)));
}

// One page: made from nothing for each scrape, so that what is gone is not told.
class Page {
 public:
  using Labels = prometheus::Labels;

  void Gauge(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels).Set(value);
  }
  void Counter(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels).Increment(
        value);
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

 private:
  // The same family is met again for each of its labels.
  prometheus::Registry registry_{prometheus::Registry::InsertBehavior::Merge};
};

}  // namespace

std::string MetricsPage(const MetricsSnapshot& snapshot) {
  Page page;
  const Page::Labels queue{{"name", "trainingjob"}};
  page.Gauge("leader_election_master_status", "1 on the operator that leads", snapshot.leading,
             {{"name", "everstep-operator"}});
  page.Gauge("everstep_synced", "1 when all objects have been listed", snapshot.synced);
  for (const auto& [where, count] : snapshot.jobs) {
    page.Gauge("everstep_jobs", "TrainingJobs by namespace and phase", count,
               {{"namespace", where.first}, {"phase", where.second}});
  }
  page.Gauge("workqueue_depth", "Jobs that wait to be reconciled", snapshot.queue_depth, queue);
  page.Counter("workqueue_adds_total", "Jobs that were to be reconciled", snapshot.queue_added,
               queue);
  page.Counter("workqueue_retries_total", "Of these, after an error", snapshot.queue_retried,
               queue);
  page.Gauge("workqueue_unfinished_work_seconds", "Time spent so far in reconciles under way",
             snapshot.queue_unfinished_seconds, queue);
  page.Gauge("workqueue_longest_running_processor_seconds", "Of the longest of them",
             snapshot.queue_longest_seconds, queue);
  page.Gauge("process_resident_memory_bytes", "Resident memory size", ResidentBytes());
  page.Counter("process_cpu_seconds_total", "User and system processor time", CpuSeconds());
  page.Gauge("process_open_fds", "Open file descriptors", OpenDescriptors());
  return page.Text();
}

}  // namespace everstep
