// Prepared convolutions, and the channels' means and products of squeeze-and-excitation blocks between them, that run
// one after another in one call: what lies between them never becomes a Python object.
#pragma once
#include <optional>
#include <vector>

#include "bindings/prepared.h"
#include "cpu/channels.h"

namespace vkconv::bindings {

class PreparedChain {
 public:
  // Operands are places in the list of the call's arrays, which the results of the steps continue. Without a
  // convolution a step multiplies every channel of its input by one number of the second operand or, where there is
  // none, takes the mean of every channel.
  struct Step {
    py::object owner;
    const PreparedConvolution* convolution;
    std::size_t input;
    std::optional<std::size_t> second;   // a convolution's addend
    std::vector<std::size_t> read_last;  // places that no later step reads, and no caller
  };
  // Of the problem of a convolution, or the pixels of any other step.
  struct Work {
    std::optional<ConvProblem> problem;
    cpu::Pixels pixels;
  };
  using Operands = std::tuple<py::object, std::size_t, std::optional<std::size_t>>;

  PreparedChain(std::size_t inputs, const std::vector<Operands>& steps, std::vector<std::size_t> results);

  // All problems are checked before the first of them runs.
  py::list call(const py::args& arrays) const;

 private:
  std::vector<Array> read(const py::args& arrays) const;
  std::vector<Work> plan(std::vector<Array>& values) const;
  void run(const std::vector<Work>& works, std::vector<Array>& values) const;
  static void run(const Step& step, const Work& work, std::vector<Array>& values, Array& output);

  std::size_t inputs_;
  std::vector<Step> steps_;
  std::vector<std::size_t> results_;
};

void bind_prepared_chain(py::module_& m);

}  // namespace vkconv::bindings
