#include "worker/model/elementwise.h"

#include "worker/kernels/tensor_rows.h"

namespace everstep {

using torch::Tensor;

void AddRows(const Tensor& a, const Tensor& b, Tensor& out) {
  const int64_t columns = a.size(1);
  const RowReader left(a, columns), right(b, columns);
  const RowWriter writer(out, columns);
  ForRows(a.size(0), columns, [&](int64_t row) {
    rows::Add(left.Row(row, nullptr), right.Row(row, ScratchRow(0, columns)),
              writer.Row(row, nullptr), static_cast<size_t>(columns));
  });
}

void SwiGlu(const Tensor& gate, const Tensor& up, Tensor& y) {
  const int64_t columns = gate.size(1);
  const RowReader gates(gate, columns), ups(up, columns);
  const RowWriter writer(y, columns);
  ForRows(gate.size(0), columns, [&](int64_t row) {
    float* to = writer.Row(row, ScratchRow(2, columns));
    rows::SwiGlu(gates.Row(row, ScratchRow(0, columns)), ups.Row(row, ScratchRow(1, columns)), to,
                 static_cast<size_t>(columns));
    writer.Finish(row, to);
  });
}

void SwiGluBackward(const Tensor& dy, Tensor& gate, Tensor& up) {
  const int64_t columns = gate.size(1);
  const RowReader gradients(dy, columns), gates(gate, columns), ups(up, columns);
  const RowWriter d_gates(gate, columns), d_ups(up, columns);
  ForRows(gate.size(0), columns, [&](int64_t row) {
    float* d_gate = d_gates.Row(row, ScratchRow(3, columns));
    float* d_up = d_ups.Row(row, ScratchRow(4, columns));
    rows::SwiGluBackward(
        gradients.Row(row, ScratchRow(0, columns)), gates.Row(row, ScratchRow(1, columns)),
        ups.Row(row, ScratchRow(2, columns)), d_gate, d_up, static_cast<size_t>(columns));
    d_gates.Finish(row, d_gate);
    d_ups.Finish(row, d_up);
  });
}

void Rotate(const Tensor& x, int64_t head_dim, bool inverse, const PassContext& pass, Tensor& y) {
  const int64_t columns = x.size(1), half = head_dim / 2;
  const float* cos = pass.cos.const_data_ptr<float>();
  const float* sin = pass.sin.const_data_ptr<float>();
  const RowReader reader(x, columns);
  const RowWriter writer(y, columns);
  ForRows(x.size(0), columns, [&](int64_t row) {
    const int64_t angles = pass.batch.positions[static_cast<size_t>(row)] * half;
    const float* from = reader.Row(row, ScratchRow(0, columns));
    float* to = writer.Row(row, nullptr);
    for (int64_t head = 0; head < columns; head += head_dim) {
      rows::Rope(from + head, cos + angles, sin + angles, inverse ? -1.0f : 1.0f, to + head,
                 static_cast<size_t>(half));
    }
  });
}

}  // namespace everstep
