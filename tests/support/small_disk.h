// A real file system of a few MiB, to be filled. Needs the right to mount; without it, skip.
#ifndef EVERSTEP_TESTS_SUPPORT_SMALL_DISK_H_
#define EVERSTEP_TESTS_SUPPORT_SMALL_DISK_H_

#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace everstep {

class SmallDisk {
 public:
  explicit SmallDisk(int mebibytes) {
    const std::string options = "mode=0700,size=" + std::to_string(mebibytes) + "m";
    mounted_ = mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
    error_ = errno;
  }
  ~SmallDisk() {
    if (mounted_) umount2(directory_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  std::string reason() const { return std::strerror(error_); }
  std::string path() const { return directory_.path(); }
  uint64_t free_bytes() const {
    struct statvfs info {};
    statvfs(path().c_str(), &info);
    return uint64_t{info.f_bavail} * info.f_frsize;
  }

  // Until nothing more fits.
  void Fill() const {
    std::ofstream filler(directory_ / "filler");
    const std::string piece(1 << 16, 'x');
    while (filler.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
    }
  }
  void Free() const { std::filesystem::remove(directory_ / "filler"); }

 private:
  TempDir directory_;
  bool mounted_ = false;
  int error_ = 0;
};

}  // namespace everstep

#endif  // EVERSTEP_TESTS_SUPPORT_SMALL_DISK_H_
