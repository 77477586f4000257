// The matrix product behind implicit_gemm and unfold_gemm: how it is cut into tiles, and the kernels' parameters.
#pragma once
#include "core/algorithm.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {

inline constexpr std::uint32_t kLinearGroupSize = 64;  // of the kernels that run an output or four values an invocation

// What a workgroup and an invocation of implicit_gemm.comp compute.
struct ProductTile {
  std::uint32_t m, n, quads, reg_m, reg_n;
  std::uint32_t group_size() const { return m / reg_m * (n / reg_n); }
  std::size_t shared_bytes(DType t) const {
    return (std::size_t{m + n} * (quads + 1) * 4 + std::size_t{m} / reg_m * n) * size_bytes(accumulator(t));
  }
};

// The left factor of the product, unfolded into memory for some rows (output pixels) and groups.
struct UnfoldedRows {
  Pointer data = 0;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t first_group = 0, groups = 0;
};

// Whether the sums may be split over workgroups, which takes workspace and pays where outputs are few.
enum class SplitSums : bool { never, allowed };

// How one forward problem becomes a product of output pixels by output channels.
class MatrixProduct {
 public:
  MatrixProduct(const ConvProblem& p, const Context<Device>& c, SplitSums split);

  // The whole problem, gathering the input in the kernel.
  void run(Stream& stream, const Operands<Device>& a, Pointer workspace) const;
  // Unfolds the input under `rows` to rows.data, and the outputs of these rows from there.
  void run_unfolded(Stream& stream, const Operands<Device>& a, const UnfoldedRows& rows) const;

  bool splits() const { return split_; }
  std::int64_t workgroups() const { return workgroups_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::int64_t unfolded_columns() const;  // of one group's row, a multiple of four
  double seconds() const { return seconds_; }

 private:
  struct Params;
  Params make_params(const Operands<Device>& a) const;
  Kernel kernel(const Operands<Device>& a, bool unfolded) const;
  double estimate(const Context<Device>& c) const;

  ConvProblem p_;
  ProductTile tile_;
  bool software_;
  bool flat_ = false;        // channels of a group do not come in fours
  std::int64_t k_size_ = 0;  // fours along k, or single values when flat
  std::int64_t steps_ = 0, block_steps_ = 0, blocks_ = 0;
  std::int64_t tiles_m_ = 0, tiles_n_ = 0;
  bool split_ = false;
  std::int64_t workgroups_ = 0;
  std::size_t workspace_bytes_ = 0;
  double seconds_ = 0;
};

// What both algorithms need of a problem.
Support product_support(const ConvProblem& p, const Context<Device>& c);

}  // namespace vkconv::vulkan
