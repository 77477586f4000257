#include "core/bordered_execution.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/decomposition.h"
#include "core/dispatch.h"
#include "core/orientation.h"
#include "cpu/strided_copy.h"

namespace vkconv {
namespace {

using HostView = View<std::byte*>;

struct Shape {
  std::int64_t batch;
  Extent3 extent;
  std::int64_t channels;
  std::int64_t elements() const {
    const std::int64_t plane = checked_mul(extent[1], extent[2]);
    return checked_mul(checked_mul(batch, channels), checked_mul(extent[0], plane));
  }
};

// An array that a problem reads or writes: its view, and its memory where that is a device's.
struct Place {
  HostView view;
  const ArrayMemory* memory = nullptr;
};

// Memory of this execution, which lies where the caller's arrays do.
struct Temporary {
  std::shared_ptr<ArrayMemory> memory;
  cpu::Buffer buffer;
  HostView view;
  Place place() const { return {view, memory.get()}; }
};

template <class F>
void for_each_run(const std::array<std::vector<Run>, 3>& runs, F&& f) {
  for (const Run& d : runs[0])
    for (const Run& h : runs[1])
      for (const Run& w : runs[2]) f(std::array<Run, 3>{d, h, w});
}

Extent3 counts(const std::array<Run, 3>& runs) { return {runs[0].count, runs[1].count, runs[2].count}; }

// One element a run where a run repeats one element: what is added to it is added one after another.
std::vector<Run> without_repetition(const std::vector<Run>& runs) {
  std::vector<Run> made;
  for (const Run& run : runs)
    for (std::int64_t i = 0; i < (run.step == 0 ? run.count : 1); ++i)
      made.push_back(run.step == 0 ? Run{run.at + i, 1, run.from, 1} : run);
  return made;
}

class Bordered {
 public:
  Bordered(Backend& backend, const ConvProblem& p, const Border& border, const Execution& call, const RunProblem& run)
      : backend_(backend), p_(p), sums_(accumulator(p.dtype)), border_(border), call_(call), run_(run) {
    if (p.pass == Pass::weight_grad && on_device() && !call.residents.input && p.input_elements() > 0) upload_input();
  }

  void forward() {
    for (const BorderPart& part : border_parts(p_)) {
      Execution e = call_;
      e.operands = at_outputs(part.outputs);
      const Temporary copy = read_by(part, e);
      run_part(part_problem(p_, part.outputs), e);
    }
  }

  // Sums over the parts.
  void weight_grad() {
    const Shape flat{1, {1, 1, p_.weight_elements()}, 1};
    const Temporary total = make(flat, sums_);
    Temporary sum;
    for (const BorderPart& part : border_parts(p_)) {
      const bool first = !ran_main_;
      if (!first && !sum.view.data) sum = make(flat, sums_);
      const Place to = (first ? total : sum).place();
      Execution e = call_;
      e.operands = at_outputs(part.outputs);
      const Temporary copy = read_by(part, e);
      e.operands.weight = contiguous_weight(to.view.data, p_);
      e.residents.weight = to.memory;
      ConvProblem problem = part_problem(p_, part.outputs);
      problem.output_dtype = sums_;
      run_part(problem, e);
      if (!first) add(to, total.place(), flat);
    }
    Temporary rounded;
    if (sums_ != p_.dtype) {
      rounded = make(flat, p_.dtype);
      round(total.place(), rounded.place(), flat);
    }
    const HostView& made = rounded.view.data ? rounded.view : total.view;
    copy(strided(contiguous_weight(made.data, p_), p_, p_.dtype), strided(call_.operands.weight, p_, p_.dtype));
  }

  // What falls on the input, and then what falls on the border, is added to the elements.
  void input_grad() {
    const Place result{call_.operands.input, call_.residents.input};
    Temporary kept;
    if (sums_ != p_.dtype) kept = make(input_shape(p_.input), sums_);
    const Place total = kept.view.data ? kept.place() : result;
    run_input_grad(p_, call_.operands.output, total);
    if (border_.repeats())
      for (const Box& box : border_boxes(p_)) fold(box, total.view, total.memory);
    if (kept.view.data) round(total, result, input_shape(p_.input));
  }

 private:
  // ---- memory

  bool on_device() const { return call_.residents.input || call_.residents.output; }

  // A host array beside arrays of the device goes there once for all parts.
  void upload_input() {
    input_ = backend_.upload(strided(call_.operands.input, p_.batch, p_.input, p_.in_channels, p_.dtype));
    call_.operands.input = contiguous_view(input_->address(), p_.input, p_.in_channels);
    call_.residents.input = input_.get();
  }

  // Some positions of the input.
  Shape input_shape(const Extent3& extent) const { return {p_.batch, extent, p_.in_channels}; }

  Temporary make(const Shape& shape, DType t) {
    const auto element = static_cast<std::int64_t>(size_bytes(t));
    const auto bytes = static_cast<std::size_t>(checked_mul(shape.elements(), element));
    Temporary made;
    if (on_device())
      made.memory = backend_.allocate(bytes);
    else
      made.buffer = cpu::Buffer(bytes);
    std::byte* data = on_device() ? made.memory->address() : made.buffer.pointer();
    made.view = contiguous_view(data, shape.extent, shape.channels);
    return made;
  }

  void copy(const StridedArray& from, const StridedArray& to) {
    if (on_device())
      backend_.copy(from, to, call_.residents);
    else
      cpu::copy(from, to);
  }

  // ---- parts

  HostOperands at_outputs(const Box& outputs) const {
    Slice slice;
    slice.output_start = outputs.begin;
    return sliced(call_.operands, slice, p_);
  }

  void run_part(const ConvProblem& problem, const Execution& e) { run_(problem, !std::exchange(ran_main_, true), e); }

  // Sets the input of a part. The copy it may be is returned.
  Temporary read_by(const BorderPart& part, Execution& e) {
    const Box read = positions_read(p_, part.outputs);
    if (part.inside) {
      e.operands.input = input_from(read.begin, {1, 1, 1});
      return {};
    }
    Temporary copy = make(input_shape(read.extent()), p_.dtype);
    e.operands.input = copy.view;
    e.residents.input = copy.memory.get();
    gather(read, copy.view);
    return copy;
  }

  HostView input_from(const Extent3& from, const Extent3& step) const {
    HostView v = call_.operands.input;
    for (int a = 0; a < 3; ++a) v = v.sliced(1 + a, from[a], step[a], p_.dtype);
    return v;
  }

  void gather(const Box& box, const HostView& to) {
    for_each_run(runs_of(box), [&](const std::array<Run, 3>& r) {
      HostView target = to, from = input_from({r[0].from, r[1].from, r[2].from}, {r[0].step, r[1].step, r[2].step});
      for (int a = 0; a < 3; ++a) target = target.sliced(1 + a, r[a].at - box.begin[a], 1, p_.dtype);
      if (r[0].constant || r[1].constant || r[2].constant) from = {constant(), {}};
      copy(strided(from, p_.batch, counts(r), p_.in_channels, p_.dtype),
           strided(target, p_.batch, counts(r), p_.in_channels, p_.dtype));
    });
  }

  std::array<std::vector<Run>, 3> runs_of(const Box& box) const {
    std::array<std::vector<Run>, 3> made;
    for (int a = 0; a < 3; ++a) made[a] = runs(border_, p_.input[a], box.begin[a], box.end[a]);
    return made;
  }

  std::byte* constant() {
    if (value_) return value_;
    element_ = encoded(border_.value, p_.dtype);
    value_ = element_.data();
    if (!on_device()) return value_;
    value_memory_ = backend_.upload({value_, {1, 1, 1, 1, 1, 1}, {}, size_bytes(p_.dtype)});
    return value_ = value_memory_->address();
  }

  // ---- the input gradient

  void run_input_grad(const ConvProblem& p, const HostView& grad, const Place& to) {
    ConvProblem problem = canonical(p);
    problem.output_dtype = sums_;
    Execution e = call_;
    e.operands.output = grad;
    e.operands.input = to.view;
    e.residents.input = to.memory;
    run_part(problem, e);
  }

  // Adds the gradients for the positions in `box` to those for the elements they repeat.
  void fold(const Box& box, const HostView& total, const ArrayMemory* memory) {
    const Box outputs = outputs_reading(p_, box);
    if (outputs.empty()) return;
    ConvProblem problem = p_;
    problem.input = box.extent();
    problem.output = outputs.extent();
    for (int a = 0; a < 3; ++a) problem.pad_lo[a] = p_.pad_lo[a] + box.begin[a] - outputs.begin[a] * p_.stride[a];
    const Temporary grads = make(input_shape(box.extent()), sums_);
    run_input_grad(problem, at_outputs(outputs).output, grads.place());
    std::array<std::vector<Run>, 3> pieces = runs_of(box);
    for (auto& axis : pieces) axis = without_repetition(axis);
    for_each_run(pieces, [&](const std::array<Run, 3>& r) {
      HostView from = grads.view, to = total;
      for (int a = 0; a < 3; ++a) {
        from = from.sliced(1 + a, r[a].at - box.begin[a], 1, sums_);
        to = to.sliced(1 + a, r[a].from, r[a].step, sums_);
      }
      add({from, grads.memory.get()}, {to, memory}, input_shape(counts(r)));
    });
  }

  // ---- sums

  // to += from, in the type of sums.
  void add(const Place& from, const Place& to, const Shape& shape) { add_and_round(sums_, from, to, to, shape); }
  // to = from, from the type of sums to the operands'.
  void round(const Place& from, const Place& to, const Shape& shape) {
    std::vector<std::byte> zeros(static_cast<std::size_t>(shape.channels) * size_bytes(p_.dtype));
    add_and_round(p_.dtype, {{zeros.data(), {0, 0, 0, 0, 1}}}, from, to, shape);
  }
  // to = from + addend as a convolution: every channel with a kernel that is 1.
  void add_and_round(DType t, const Place& from, const Place& addend, const Place& to, const Shape& shape) {
    ConvProblem problem;
    problem.dtype = problem.output_dtype = t;
    problem.precision = p_.precision;
    problem.batch = shape.batch;
    problem.in_channels = problem.out_channels = problem.groups = shape.channels;
    // The longest axis comes last: algorithms run along rows.
    Orientation longest_last;
    std::ranges::stable_sort(longest_last.axes, {}, [&](int axis) { return shape.extent[axis]; });
    problem.input = problem.output = shape.extent;
    problem = longest_last.apply(problem);
    problem.epilogue.addend = true;
    auto one = encoded(1, t);
    Execution e;
    e.operands.input = longest_last.apply(from.view);
    e.operands.output = longest_last.apply(to.view);
    e.operands.addend = longest_last.apply(addend.view);
    e.operands.weight.data = one.data();
    e.residents = {.input = from.memory, .output = to.memory, .addend = addend.memory};
    run_(problem, false, e);
  }

  Backend& backend_;
  const ConvProblem& p_;
  const DType sums_;
  const Border border_;
  Execution call_;
  const RunProblem& run_;
  std::shared_ptr<ArrayMemory> input_;
  bool ran_main_ = false;
  std::array<std::byte, sizeof(double)> element_{};  // the constant, encoded
  std::byte* value_ = nullptr;                       // where it lies
  std::shared_ptr<ArrayMemory> value_memory_;
};

}  // namespace

void execute_bordered(Backend& backend, const ConvProblem& p, const Border& border, const Execution& execution,
                      const RunProblem& run) {
  Bordered bordered(backend, p, border, execution, run);
  switch (p.pass) {
    case Pass::forward:
      return bordered.forward();
    case Pass::input_grad:
      return bordered.input_grad();
    case Pass::weight_grad:
      return bordered.weight_grad();
  }
}

ConvProblem main_problem(const ConvProblem& p) {
  ConvProblem main = p.pass == Pass::input_grad ? canonical(p) : part_problem(p, border_parts(p).front().outputs);
  if (p.pass != Pass::forward) main.output_dtype = accumulator(p.dtype);
  return main;
}

}  // namespace vkconv
