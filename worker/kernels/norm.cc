#include "worker/kernels/norm.h"

#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;

// Rows whose contributions to a column sum are added one after the other; the sums of these groups
// are then added in their order, so that the number of threads does not matter.
constexpr int64_t kGroupRows = 32;

int64_t Groups(int64_t rows) { return (rows + kGroupRows - 1) / kGroupRows; }

void AddGroups(const Tensor& groups, Tensor& sums) {
  float* to = sums.mutable_data_ptr<float>();
  const int64_t columns = groups.size(1);
  for (int64_t group = 0; group < groups.size(0); ++group) {
    rows::AddTo(groups.const_data_ptr<float>() + group * columns, to, static_cast<size_t>(columns));
  }
}

// Calls body(row, partial sums [columns]) for all rows, and adds the partial sums up.
template <typename Body>
void ForRowsWithSums(int64_t rows, Tensor& sums, Arena& arena, const Body& body) {
  const ArenaScope scope(arena);
  const int64_t columns = sums.numel();
  const Tensor groups = arena.Take({Groups(rows), columns});
  float* partial = groups.mutable_data_ptr<float>();
  at::parallel_for(0, Groups(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      std::fill_n(partial + group * columns, columns, 0.0f);
      const int64_t last = std::min(rows, (group + 1) * kGroupRows);
      for (int64_t row = group * kGroupRows; row < last; ++row) {
        body(row, partial + group * columns);
      }
    }
  });
  AddGroups(groups, sums);
}

}  // namespace

void RmsNormForward(const Tensor& x, const Tensor& weight, double eps, Tensor& y, Tensor& rstd) {
  const int64_t columns = x.size(1);
  const RowReader reader(x, columns);
  const RowWriter writer(y, columns);
  float* rstds = rstd.mutable_data_ptr<float>();
  ForRows(x.size(0), columns, [&](int64_t row) {
    float* to = writer.Row(row, ScratchRow(1, columns));
    rstds[row] = rows::RmsNorm(reader.Row(row, ScratchRow(0, columns)),
                               weight.const_data_ptr<float>(), static_cast<float>(eps),
                               /*round_normalized=*/false, to, static_cast<size_t>(columns));
    writer.Finish(row, to);
  });
}

void RmsNormBackward(const RmsNormBackwardArguments& a, Tensor& dx, Tensor weight_gradient,
                     Arena& arena) {
  const int64_t columns = a.x.size(1), count = a.x.size(0);
  const RowReader reader(a.x, columns);
  const float* dy = a.dy.const_data_ptr<float>();
  const float* weight = a.weight.const_data_ptr<float>();
  const float* rstd = a.rstd.const_data_ptr<float>();
  float* to = dx.mutable_data_ptr<float>();
  const auto body = [&](int64_t row, float* sums) {
    rows::RmsNormBackward(dy + row * columns, reader.Row(row, ScratchRow(0, columns)), weight,
                          rstd[row], to + row * columns, sums, static_cast<size_t>(columns));
  };
  if (weight_gradient.defined()) {
    ForRowsWithSums(count, weight_gradient, arena, body);
  } else {
    ForRows(count, columns, [&](int64_t row) { body(row, nullptr); });
  }
}

void AddColumnSums(const Tensor& m, Tensor sums, Arena& arena) {
  const int64_t columns = m.size(1);
  const RowReader reader(m, columns);
  ForRowsWithSums(m.size(0), sums, arena, [&](int64_t row, float* partial) {
    rows::AddTo(reader.Row(row, ScratchRow(0, columns)), partial, static_cast<size_t>(columns));
  });
}

}  // namespace everstep
