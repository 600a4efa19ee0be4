#include "worker/model/functions.h"

#include "worker/kernels/tensor_rows.h"

namespace everstep {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Weights are not variables of the graph: their gradients go straight into the flat vector. The
// model outlives the graph, so the graph holds plain addresses.
Weight& Saved(AutogradContext* context, const char* key) {
  return *reinterpret_cast<Weight*>(context->saved_data[key].toInt());
}

// weight.gradient += dy^T x, for dy [tokens, out] and x [tokens, in].
void AddOuterProduct(Weight& weight, const Tensor& dy, const Tensor& x) {
  if (dy.scalar_type() == torch::kFloat32) {
    weight.gradient.addmm_(dy.t(), x);
  } else {
    AddGradient(weight, at::mm(dy.t(), x));
  }
}

void AddBiasGradient(Weight& bias, const Tensor& dy) {
  if (bias.trainable) AddGradient(bias, dy.to(torch::kFloat32).sum(0));
}

// ---- RmsNorm -----------------------------------------------------------------------------------

// Rows whose weight gradients are summed together before the sums are added up in order: the
// result does not depend on the number of threads.
constexpr int64_t kNormBlockRows = 64;

struct RmsNormFunction : Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, int64_t weight_address,
                        double epsilon, int64_t type, bool input_gradient) {
    Weight& weight = *reinterpret_cast<Weight*>(weight_address);
    const Tensor x = input.contiguous();
    const int64_t columns = x.size(-1);
    const int64_t count = x.numel() / columns;
    Tensor y = torch::empty(x.sizes(), x.options().dtype(static_cast<torch::ScalarType>(type)));
    Tensor rstd = torch::empty({count}, torch::kFloat32);
    const Tensor scale = weight.value.to(torch::kFloat32);
    const bool round = x.scalar_type() == torch::kBFloat16;
    const RowReader reader(x, columns);
    const RowWriter writer(y, columns);
    ForRows(count, columns, [&](int64_t row) {
      float* out = writer.Row(row, ScratchRow(1, columns));
      rstd.mutable_data_ptr<float>()[row] =
          rows::RmsNorm(reader.Row(row, ScratchRow(0, columns)), scale.const_data_ptr<float>(),
                        static_cast<float>(epsilon), round, out, static_cast<size_t>(columns));
      writer.Finish(row, out);
    });
    context->save_for_backward({x, rstd, scale});
    context->saved_data["weight"] = weight_address;
    context->saved_data["input_gradient"] = input_gradient;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &rstd = saved[1], &scale = saved[2];
    Weight& weight = Saved(context, "weight");
    const bool input_gradient = context->saved_data["input_gradient"].toBool();
    if (!input_gradient && !weight.trainable) return variable_list(5);
    const Tensor dy = gradients[0].contiguous();
    const int64_t columns = x.size(-1);
    const int64_t count = x.numel() / columns;
    const int64_t blocks = (count + kNormBlockRows - 1) / kNormBlockRows;
    Tensor dx = torch::empty_like(x);
    Tensor partial;
    if (weight.trainable) partial = torch::zeros({blocks, columns}, torch::kFloat32);
    const RowReader x_rows(x, columns), dy_rows(dy, columns);
    const RowWriter dx_rows(dx, columns);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * kNormBlockRows; row < std::min(count, end * kNormBlockRows);
           ++row) {
        float* out = dx_rows.Row(row, ScratchRow(2, columns));
        float* sums = weight.trainable
                          ? partial.mutable_data_ptr<float>() + row / kNormBlockRows * columns
                          : nullptr;
        rows::RmsNormBackward(dy_rows.Row(row, ScratchRow(0, columns)),
                              x_rows.Row(row, ScratchRow(1, columns)),
                              scale.const_data_ptr<float>(), rstd.const_data_ptr<float>()[row], out,
                              sums, static_cast<size_t>(columns));
        dx_rows.Finish(row, out);
      }
    });
    for (int64_t block = 0; weight.trainable && block < blocks; ++block) {
      weight.gradient.add_(partial[block]);
    }
    return {input_gradient ? dx : Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// ---- Linear ------------------------------------------------------------------------------------

struct LinearFunction : Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t weight_address,
                        int64_t bias_address, bool input_gradient) {
    Weight& weight = *reinterpret_cast<Weight*>(weight_address);
    Weight& bias = *reinterpret_cast<Weight*>(bias_address);
    if (weight.trainable) context->save_for_backward({x});
    context->saved_data["weight"] = weight_address;
    context->saved_data["bias"] = bias_address;
    context->saved_data["input_gradient"] = input_gradient;
    return at::linear(x, weight.compute, bias.compute);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    Weight& weight = Saved(context, "weight");
    const Tensor dy = gradients[0].contiguous();
    if (weight.trainable) AddOuterProduct(weight, dy, context->get_saved_variables()[0]);
    AddBiasGradient(Saved(context, "bias"), dy);
    Tensor dx;
    if (context->saved_data["input_gradient"].toBool()) dx = at::mm(dy, weight.compute);
    return {dx, Tensor(), Tensor(), Tensor()};
  }
};

struct LoraLinearFunction : Function<LoraLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& side,
                        int64_t weight_address, int64_t bias_address, int64_t a_address,
                        int64_t b_address, double scaling, bool input_gradient) {
    Weight& weight = *reinterpret_cast<Weight*>(weight_address);
    Weight& bias = *reinterpret_cast<Weight*>(bias_address);
    Weight& lora_a = *reinterpret_cast<Weight*>(a_address);
    Weight& lora_b = *reinterpret_cast<Weight*>(b_address);
    const Tensor low = at::linear(side, lora_a.compute);
    Tensor y = at::linear(x, weight.compute, bias.compute);
    y.addmm_(low, lora_b.compute.t(), 1, scaling);
    context->save_for_backward({side, low});
    context->saved_data["weight"] = weight_address;
    context->saved_data["bias"] = bias_address;
    context->saved_data["a"] = a_address;
    context->saved_data["b"] = b_address;
    context->saved_data["scaling"] = scaling;
    context->saved_data["same"] = side.is_same(x);
    context->saved_data["input_gradient"] = input_gradient;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    Weight& weight = Saved(context, "weight");
    Weight& lora_a = Saved(context, "a");
    Weight& lora_b = Saved(context, "b");
    const double scaling = context->saved_data["scaling"].toDouble();
    const bool same = context->saved_data["same"].toBool();
    const Tensor dy = gradients[0].contiguous();
    const Tensor d_low = at::mm(dy, lora_b.compute).mul_(scaling);
    AddGradient(lora_b, at::mm(dy.t(), saved[1]).mul_(scaling));
    AddGradient(lora_a, at::mm(d_low.t(), saved[0]));
    AddBiasGradient(Saved(context, "bias"), dy);
    variable_list result(8);
    if (!context->saved_data["input_gradient"].toBool()) return result;
    result[0] = at::mm(dy, weight.compute);
    if (same) {
      result[0].addmm_(d_low, lora_a.compute);
    } else {
      result[1] = at::mm(d_low, lora_a.compute);
    }
    return result;
  }
};

// ---- Rope --------------------------------------------------------------------------------------

// Between [batch, seq, heads * head_dim] and [batch, heads, seq, head_dim], rotating on the way.
Tensor Rotate(const Tensor& input, const Tensor& cos, const Tensor& sin, const Tensor& positions,
              int64_t heads, bool back) {
  const int64_t batch = positions.size(0), length = positions.size(1);
  const int64_t head_dim = cos.size(1) * 2, half = cos.size(1);
  const Tensor x = input.contiguous();
  Tensor y = back ? torch::empty({batch, length, heads * head_dim}, x.options())
                  : torch::empty({batch, heads, length, head_dim}, x.options());
  const RowReader reader(x, head_dim);
  const RowWriter writer(y, head_dim);
  const int64_t* position = positions.const_data_ptr<int64_t>();
  ForRows(batch * length, heads * head_dim, [&](int64_t token) {
    const int64_t b = token / length, t = token % length;
    const float* c = cos.const_data_ptr<float>() + position[token] * half;
    const float* s = sin.const_data_ptr<float>() + position[token] * half;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t by_token = token * heads + head;
      const int64_t by_head = (b * heads + head) * length + t;
      const int64_t from = back ? by_head : by_token, to = back ? by_token : by_head;
      float* out = writer.Row(to, ScratchRow(1, head_dim));
      rows::Rope(reader.Row(from, ScratchRow(0, head_dim)), c, s, back ? -1.0f : 1.0f, out,
                 static_cast<size_t>(half));
      writer.Finish(to, out);
    }
  });
  return y;
}

struct RopeFunction : Function<RopeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t head_dim,
                        const Tensor& cos, const Tensor& sin, const Tensor& positions) {
    context->save_for_backward({cos, sin, positions});
    const int64_t heads = x.size(-1) / head_dim;
    context->saved_data["heads"] = heads;
    return Rotate(x, cos, sin, positions, heads, /*back=*/false);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {Rotate(gradients[0], saved[0], saved[1], saved[2], context->saved_data["heads"].toInt(),
                   /*back=*/true),
            Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// ---- SwiGlu ------------------------------------------------------------------------------------

struct SwiGluFunction : Function<SwiGluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    Tensor y = torch::empty_like(gate);
    const int64_t columns = gate.size(-1);
    const RowReader gate_rows(gate, columns), up_rows(up, columns);
    const RowWriter y_rows(y, columns);
    ForRows(gate.numel() / columns, columns, [&](int64_t row) {
      float* out = y_rows.Row(row, ScratchRow(2, columns));
      rows::SwiGlu(gate_rows.Row(row, ScratchRow(0, columns)),
                   up_rows.Row(row, ScratchRow(1, columns)), out, static_cast<size_t>(columns));
      y_rows.Finish(row, out);
    });
    context->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    const Tensor dy = gradients[0].contiguous();
    Tensor d_gate = torch::empty_like(gate), d_up = torch::empty_like(up);
    const int64_t columns = gate.size(-1);
    const RowReader dy_rows(dy, columns), gate_rows(gate, columns), up_rows(up, columns);
    const RowWriter d_gate_rows(d_gate, columns), d_up_rows(d_up, columns);
    ForRows(gate.numel() / columns, columns, [&](int64_t row) {
      float* d_gate_row = d_gate_rows.Row(row, ScratchRow(3, columns));
      float* d_up_row = d_up_rows.Row(row, ScratchRow(4, columns));
      rows::SwiGluBackward(dy_rows.Row(row, ScratchRow(0, columns)),
                           gate_rows.Row(row, ScratchRow(1, columns)),
                           up_rows.Row(row, ScratchRow(2, columns)), d_gate_row, d_up_row,
                           static_cast<size_t>(columns));
      d_gate_rows.Finish(row, d_gate_row);
      d_up_rows.Finish(row, d_up_row);
    });
    return {d_gate, d_up};
  }
};

// ---- Embedding ---------------------------------------------------------------------------------

struct EmbeddingFunction : Function<EmbeddingFunction> {
  // `anchor` makes the result part of the graph although no input variable leads to it.
  static Tensor forward(AutogradContext* context, const Tensor& anchor, const Tensor& ids,
                        int64_t weight_address) {
    (void)anchor;
    context->save_for_backward({ids});
    context->saved_data["weight"] = weight_address;
    return reinterpret_cast<Weight*>(weight_address)->value.index_select(0, ids);
  }

  // Every thread owns a range of columns and adds all tokens' rows to it in their order.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    Weight& weight = Saved(context, "weight");
    if (!weight.trainable) return variable_list(3);
    const Tensor ids = context->get_saved_variables()[0];
    const Tensor dy = gradients[0].to(torch::kFloat32).contiguous();
    const int64_t hidden = dy.size(1), tokens = dy.size(0);
    const int64_t* id = ids.const_data_ptr<int64_t>();
    float* sums = weight.gradient.mutable_data_ptr<float>();
    at::parallel_for(0, hidden, 64, [&](int64_t begin, int64_t end) {
      for (int64_t token = 0; token < tokens; ++token) {
        const float* from = dy.const_data_ptr<float>() + token * hidden;
        float* to = sums + id[token] * hidden;
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
    return variable_list(3);
  }
};

int64_t Address(Weight& weight) { return reinterpret_cast<int64_t>(&weight); }

}  // namespace

torch::Tensor RmsNorm(const torch::Tensor& x, Weight& weight, double epsilon,
                      torch::ScalarType type, bool input_gradient) {
  return RmsNormFunction::apply(x, Address(weight), epsilon, static_cast<int64_t>(type),
                                input_gradient);
}

torch::Tensor Linear(const torch::Tensor& x, Weight& weight, Weight& bias, bool input_gradient) {
  return LinearFunction::apply(x, Address(weight), Address(bias), input_gradient);
}

torch::Tensor LoraLinear(const torch::Tensor& x, const torch::Tensor& side, Weight& weight,
                         Weight& bias, Weight& lora_a, Weight& lora_b, double scaling,
                         bool input_gradient) {
  return LoraLinearFunction::apply(x, side, Address(weight), Address(bias), Address(lora_a),
                                   Address(lora_b), scaling, input_gradient);
}

torch::Tensor Rope(const torch::Tensor& x, int64_t head_dim, const torch::Tensor& cos,
                   const torch::Tensor& sin, const torch::Tensor& positions) {
  return RopeFunction::apply(x, head_dim, cos, sin, positions);
}

torch::Tensor SwiGlu(const torch::Tensor& gate, const torch::Tensor& up) {
  return SwiGluFunction::apply(gate, up);
}

torch::Tensor Embedding(const torch::Tensor& ids, Weight& weight) {
  const torch::Tensor anchor =
      torch::empty({0}, torch::TensorOptions().requires_grad(torch::GradMode::is_enabled()));
  return EmbeddingFunction::apply(anchor, ids, Address(weight));
}

}  // namespace everstep
