#include "algorithms/empty_sum/empty_sum.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/empty_sum/empty_sum_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>

#include "cpu/epilogue-inl.h"
#include "cpu/job.h"
#include "cpu/output_row.h"
#include "cpu/simd-inl.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::empty_sum::HWY_NAMESPACE {
namespace simd = cpu::HWY_NAMESPACE;

constexpr std::int64_t kChannels = 512;  // at a time

void Run(const ConvProblem& p, const Operands<Device>& a) {
  simd::with_types(p, [&](auto in, auto out) {
    using A = simd::Accumulator<decltype(in)>;
    static constexpr A kZeros[kChannels] = {};
    thread_pool().run(p.batch * p.output[0] * p.output[1], [&](std::int64_t r) {
      check_job();
      const OutputRow row(p, r);
      for (std::int64_t c = 0; c < p.out_channels; c += kChannels)
        simd::store_tile(kZeros, 0, p.output[2], std::min(kChannels, p.out_channels - c),
                         simd::tile_store<A, decltype(out)>(p, a, row, 0, c), p.epilogue);
    });
  });
}

}  // namespace vkconv::cpu::empty_sum::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::empty_sum {

HWY_EXPORT(Run);

void run(const ConvProblem& p, const Operands<Device>& a) { HWY_DYNAMIC_DISPATCH(Run)(p, a); }

}  // namespace vkconv::cpu::empty_sum
#endif
