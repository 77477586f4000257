// Plans of the kernels of implicit_gemm.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "algorithms/implicit_gemm/dense.h"
#include "core/algorithm.h"

namespace vkconv::cpu {

// `Kernel`: how one is planned and called. Its Layout is plain data; what that means is the kernel's business.
template <class Kernel>
class KernelPlan final : public Plan<Device> {
 public:
  explicit KernelPlan(typename Kernel::Layout layout, std::string name = "implicit_gemm")
      : layout_(std::move(layout)), name_(std::move(name)) {}

  std::string describe() const override { return name_; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }

  std::string weight_layout() const override { return Kernel::layout_name(layout_) + layout_.orientation.axes_text(); }

  std::size_t prepared_bytes() const override { return Kernel::packed_bytes(layout_); }
  PreparedWeights<Device> prepare_in(std::byte* to, Device::Stream&,
                                     const WeightView<std::byte*>& weight) const override {
    Kernel::pack(layout_, layout_.orientation.apply(weight), to);
    return {to};
  }

  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    Kernel::run(layout_, operands, workspace);
  }

 private:
  typename Kernel::Layout layout_;
  std::string name_;
};

struct DenseKernel {
  using Layout = DenseLayout;
  static void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
    if (takes_one_row(s, a)) return run_dense(*s.one_row, a, workspace);
    run_dense(s, s.orientation.apply(a), workspace);
  }
  static void pack(const Layout& s, const WeightView<std::byte*>& w, std::byte* packed) { pack_dense(s, w, packed); }
  static std::size_t packed_bytes(const Layout& s) { return s.packed_bytes(); }
  static std::string layout_name(const Layout& s) {
    if (s.parts > 1) return std::to_string(s.parts) + "parts" + std::to_string(s.columns);
    const char* names[] = {"panels", "pairs", "tiles"};  // by unit
    const std::string last = s.most_columns > s.columns ? "to" + std::to_string(s.most_columns) : "";
    return names[static_cast<int>(s.unit)] + std::to_string(s.columns) + last;
  }
};

}  // namespace vkconv::cpu
