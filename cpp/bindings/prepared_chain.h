// Prepared convolutions that run one after another in one call: what lies between them never becomes a Python object.
#pragma once
#include <optional>
#include <vector>

#include "bindings/prepared.h"

namespace vkconv::bindings {

class PreparedChain {
 public:
  // Operands are places in the list of the call's arrays, which the results of the steps continue.
  struct Step {
    py::object owner;
    const PreparedConvolution* convolution;
    std::size_t input;
    std::optional<std::size_t> addend;
    std::vector<std::size_t> read_last;  // places that no later step reads, and no caller
  };
  using Operands = std::tuple<py::object, std::size_t, std::optional<std::size_t>>;

  PreparedChain(std::size_t inputs, const std::vector<Operands>& steps, std::vector<std::size_t> results);

  // All problems are checked before the first of them runs.
  py::list call(const py::args& arrays) const;

 private:
  std::vector<Array> read(const py::args& arrays) const;
  std::vector<ConvProblem> plan(std::vector<Array>& values) const;
  void run(const std::vector<ConvProblem>& problems, std::vector<Array>& values) const;

  std::size_t inputs_;
  std::vector<Step> steps_;
  std::vector<std::size_t> results_;
};

void bind_prepared_chain(py::module_& m);

}  // namespace vkconv::bindings
