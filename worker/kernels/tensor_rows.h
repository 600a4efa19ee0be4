// Glue between tensors and the row kernels: rows are split over the threads, and converted to fp32
// and back where a tensor is bf16.
#ifndef EVERSTEP_WORKER_KERNELS_TENSOR_ROWS_H_
#define EVERSTEP_WORKER_KERNELS_TENSOR_ROWS_H_

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "worker/kernels/row_kernels.h"

namespace everstep {

// Reads rows of a contiguous [rows, columns] tensor as fp32.
class RowReader {
 public:
  RowReader(const torch::Tensor& tensor, int64_t columns)
      : float_(tensor.scalar_type() == torch::kFloat32),
        data_(static_cast<const char*>(tensor.const_data_ptr())),
        columns_(columns) {}

  // `buffer` [columns] is used for bf16 tensors only.
  const float* Row(int64_t row, float* buffer) const {
    if (float_) return reinterpret_cast<const float*>(data_) + row * columns_;
    rows::ToFloat(reinterpret_cast<const rows::BFloat16Bits*>(data_) + row * columns_, buffer,
                  static_cast<size_t>(columns_));
    return buffer;
  }

 private:
  bool float_;
  const char* data_;
  int64_t columns_;
};

// Writes rows that were computed in fp32.
class RowWriter {
 public:
  RowWriter(const torch::Tensor& tensor, int64_t columns)
      : float_(tensor.scalar_type() == torch::kFloat32),
        data_(static_cast<char*>(tensor.data_ptr())),
        columns_(columns) {}

  // Where the row should be computed: in place, or in `buffer`; Finish then stores it.
  float* Row(int64_t row, float* buffer) const {
    return float_ ? reinterpret_cast<float*>(data_) + row * columns_ : buffer;
  }
  void Finish(int64_t row, const float* buffer) const {
    if (float_) return;
    rows::FromFloat(buffer, reinterpret_cast<rows::BFloat16Bits*>(data_) + row * columns_,
                    static_cast<size_t>(columns_));
  }

 private:
  bool float_;
  char* data_;
  int64_t columns_;
};

// Calls body(row) for every row, split over the threads.
template <typename Body>
void ForRows(int64_t rows, int64_t columns, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// A scratch row of the calling thread, 64-byte aligned; `which` tells several apart. Valid until
// the next call with the same number.
inline float* ScratchRow(int which, int64_t columns) {
  struct Buffer {
    std::unique_ptr<float, decltype(&std::free)> memory{nullptr, &std::free};
    int64_t size = 0;
  };
  thread_local Buffer buffers[6];
  Buffer& buffer = buffers[which];
  if (buffer.size < columns) {
    constexpr int64_t kUnit = 1024;
    buffer.size = (columns + kUnit - 1) / kUnit * kUnit;
    buffer.memory.reset(static_cast<float*>(
        std::aligned_alloc(64, static_cast<size_t>(buffer.size) * sizeof(float))));
    if (buffer.memory == nullptr) throw std::bad_alloc();
  }
  return buffer.memory.get();
}

}  // namespace everstep

#endif  // EVERSTEP_WORKER_KERNELS_TENSOR_ROWS_H_
