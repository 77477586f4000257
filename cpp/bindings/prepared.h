// The object `prepare` returns: one convolution with fixed weights, called for inputs of any size.
#pragma once
#include <memory>
#include <string>

#include "bindings/operations.h"

namespace vkconv::bindings {

// Holds copies of weight and bias on its device, so later changes of the caller's arrays have no effect. Safe to call
// from many threads.
class PreparedConvolution {
 public:
  // `output_padding` is null for a convolution; given, the convolution is transposed.
  PreparedConvolution(Object weight, const GeometryArguments& geometry, Object output_padding,
                      const EpilogueArguments& epilogue, const OptionArguments& options);

  py::object call(Object input, Object out, Object addend) const;
  std::string repr() const;

  const ForwardSpec& spec() const { return spec_; }
  Weights weights() const { return {nullptr, nullptr, weights_.get()}; }

 private:
  ForwardSpec spec_;
  py::dtype numpy_dtype_;
  std::shared_ptr<PreparedConv> weights_;
};

}  // namespace vkconv::bindings
