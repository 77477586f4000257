// Sums of the weight gradient, compiled once per instruction set and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/weight_grad/weight_grad_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>

#include "algorithms/weight_grad/weight_grad_group_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pixels fetched ahead of use: they lie apart, which the hardware expects of short steps only. Those of a block out of
// memory come while the block before is multiplied.
constexpr std::int64_t pixels_ahead(bool from_memory) { return from_memory ? kBlockPixels : 12; }

// One unit over one chunk. In is the type of the operands, T that of the sums.
template <class T, class In>
class UnitSums : GroupSums<T, In> {
  using Base = GroupSums<T, In>;
  using Columns = weight_grad::HWY_NAMESPACE::Columns<T>;
  using Base::outputs_, Base::taps_, Base::line_count_, Base::p_, Base::shape_, Base::unit_, Base::row_length_;

 public:
  UnitSums(const Job& job, const Unit& unit, T* scratch)
      : Base(job, unit, scratch), size_(unit.taps.size() * unit.rows.size() * row_length_) {}

  void run(std::int64_t chunk, T* HWY_RESTRICT sums, T* HWY_RESTRICT part) {
    const Range blocks = nth_part(shape_.blocks, chunk, shape_.chunks);
    for (std::int64_t first = blocks.begin; first < blocks.end; first += kBlocksPerSum) {
      T* to = first == blocks.begin ? sums : part;
      std::fill_n(to, size_, T{0});
      for (std::int64_t block = first; block < std::min(first + kBlocksPerSum, blocks.end); ++block)
        run_block(block, [&](std::int64_t tap) {
          const std::int64_t tap_size = unit_.rows.size() * row_length_;
          return Sums{to + (tap - unit_.taps.begin) * tap_size, tap_size, row_length_};
        });
      if (to == part)
        for (std::int64_t i = 0; i < size_; ++i) sums[i] += part[i];
    }
  }

  // The sums of the only block, into the weight.
  void store(const WeightView<std::byte*>& weight) {
    stores_ = true;
    const bool out_vectors = shape_.form == Form::out_vectors;
    const std::int64_t row_step = out_vectors ? weight.in : weight.out;
    T* first = reinterpret_cast<T*>(weight.data) + unit_.group * weight.group + unit_.rows.begin * row_step;
    run_block(0, [&](std::int64_t tap) {
      return Sums{first + weight.offset(tap_at(p_.kernel, tap)), weight.tap[2], row_step};
    });
  }

 private:
  // Where the sums of the taps of a kernel row go: row r of tap k at data + k * tap + r * row.
  struct Sums {
    T* data;
    std::int64_t tap, row;
  };

  // All taps of the unit over one block, kernel row by kernel row; sums_at(tap) is where the sums from this tap on go.
  template <class At>
  void run_block(std::int64_t block, At sums_at) {
    const std::int64_t first = block / shape_.segments * shape_.lines_per_block, segment = block % shape_.segments;
    outputs_ = nth_part(p_.output[2], segment, shape_.segments);
    this->find_lines(first);
    if (shape_.patches != PatchForm::none) {
      this->collect_lines(0);
      return run_patches(sums_at(0));
    }
    if (shape_.form == Form::lanes) return run_row_groups(sums_at);
    for (std::int64_t tap = unit_.taps.begin; tap < unit_.taps.end;) {
      const std::int64_t kernel_row = tap / p_.kernel[2];
      const std::int64_t end = std::min(unit_.taps.end, (kernel_row + 1) * p_.kernel[2]);
      this->collect_lines(kernel_row);
      if (line_count_ > 0 || stores_) {
        taps_ = {tap - kernel_row * p_.kernel[2], end - kernel_row * p_.kernel[2]};
        const Sums sums = sums_at(tap);
        shape_.form == Form::groups ? this->run_groups(sums.data) : run_outer(sums);
      }
      tap = end;
    }
  }

  // The same of a depthwise problem, several kernel rows at a time.
  template <class At>
  void run_row_groups(At sums_at) {
    const std::int64_t of_depth = p_.kernel[1] * p_.kernel[2];
    for (std::int64_t kd = unit_.taps.begin / of_depth; kd < ceil_div(unit_.taps.end, of_depth); ++kd) {
      this->find_lanes(kd);
      for (std::int64_t group = 0; group < shape_.row_groups; ++group) {
        const Range rows = shape_.group_rows(group, p_.kernel[1]);
        const std::int64_t tap = (kd * p_.kernel[1] + rows.begin) * p_.kernel[2];
        if (unit_.taps.contains(tap)) this->run_lanes(rows, sums_at(tap).data);
      }
    }
  }

  // ---- products of one group

  void run_outer(const Sums& sums) {
    Columns x, dy;
    this->load(x, dy);
    Sums to = sums;
    for (std::int64_t k = taps_.begin; k < taps_.end; ++k, to.data += sums.tap) run_tap(x, dy, k, unit_.rows, to);
  }

  // Kernel row by kernel row, or all together.
  void run_patches(const Sums& sums) {
    Columns x, dy;
    this->load_outputs(dy);
    this->load_patches();
    add_beside_padding(dy, sums);
    if (shape_.patches == PatchForm::composed) {
      this->compose_patches(x);
      return run_tap(x, dy, 0, unit_.rows, sums);
    }
    const std::int64_t of_row = patch_row_channels(this->source_);
    for (std::int64_t r = this->kernel_rows_.begin; r < this->kernel_rows_.end; ++r) {
      this->find_patches(r, x);
      const Range rows = common(unit_.rows, {r * of_row, (r + 1) * of_row});
      run_tap(x, dy, 0, rows, {sums.data + (rows.begin - unit_.rows.begin) * sums.row, sums.tap, sums.row});
    }
  }

  void add_beside_padding(Columns& dy, const Sums& sums) {
    const bool out_vectors = shape_.form == Form::out_vectors;
    this->take_from_padding(dy, [&](std::int64_t out, std::int64_t in, T product) {
      const std::int64_t row = out_vectors ? in : out, channel = out_vectors ? out : in, v = channel / shape_.lanes;
      if (!unit_.rows.contains(row) || !unit_.vectors.contains(v)) return;
      const std::int64_t lane = (v - unit_.vectors.begin) * shape_.lanes + channel - shape_.channel_of(v);
      sums.data[(row - unit_.rows.begin) * sums.row + lane] += product;
    });
  }

  // One tap over the block.
  void run_tap(const Columns& x, const Columns& dy, std::int64_t k, const Range& rows, const Sums& sums) {
    const Walk w = walk(p_, 2, k, outputs_);
    if (w.count == 0 && !stores_) return;
    const bool out_vectors = shape_.form == Form::out_vectors;
    const Columns &of_rows = out_vectors ? x : dy, &of_vectors = out_vectors ? dy : x;
    OuterSlice<T> slices[kBlockPixels];
    OuterTile<T> tile;
    tile.slices = slices;
    tile.slice_count = w.count > 0 ? line_count_ : 0;
    for (std::int64_t l = 0; l < tile.slice_count; ++l) {
      const T *from_x = x.at(l, w.in), *from_dy = dy.at(l, w.out);
      slices[l] = out_vectors ? OuterSlice<T>{from_x, from_dy} : OuterSlice<T>{from_dy, from_x};
    }
    tile.count = w.count;
    tile.row_step = (out_vectors ? w.in_step : w.out_step) * of_rows.pixel;
    tile.vector_step = (out_vectors ? w.out_step : w.in_step) * of_vectors.pixel;
    tile.ahead = shape_.staged ? 0 : pixels_ahead(this->from_memory_);
    tile.row = rows.begin - of_rows.channel;
    tile.c = sums.data;
    tile.ldc = sums.row;
    tile.adds = !stores_;
    kernels_.multiply(
        tile, rows.size(), unit_.vectors, stores_,
        [&](std::int64_t v) { return shape_.channel_of(v) - of_vectors.channel; },
        [&](std::int64_t v) { return stores_ ? shape_.channel_of(v) : (v - unit_.vectors.begin) * shape_.lanes; });
  }

  const OuterKernels<T>& kernels_ = outer_kernels<T>();
  std::int64_t size_;
  bool stores_ = false;  // sums are stored in the weight, not added to others
};

// f(operand, sum) with zeros of their types.
template <class F>
void with_sum_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float{}, float{});
    case DType::f16:
      return f(hwy::float16_t{}, float{});
    case DType::bf16:
      return f(hwy::bfloat16_t{}, float{});
    case DType::f64:
      return f(double{}, double{});
  }
}

void accumulate_unit(const Job& job, const Unit& unit, std::int64_t chunk, std::byte* sums, std::byte* part,
                     std::byte* scratch) {
  with_sum_type(job.p.dtype, [&](auto in, auto sum) {
    using T = decltype(sum);
    UnitSums<T, decltype(in)>(job, unit, reinterpret_cast<T*>(scratch))
        .run(chunk, reinterpret_cast<T*>(sums), reinterpret_cast<T*>(part));
  });
}

void store_unit(const Job& job, const Unit& unit, std::byte* scratch) {
  with_sum_type(job.p.dtype, [&](auto in, auto sum) {
    using T = decltype(sum);
    UnitSums<T, decltype(in)>(job, unit, reinterpret_cast<T*>(scratch)).store(job.operands.weight);
  });
}

void round_floats(const float* sums, std::int64_t count, DType dtype, std::byte* to) {
  using cpu::HWY_NAMESPACE::load_n;
  using cpu::HWY_NAMESPACE::store;
  using cpu::HWY_NAMESPACE::store_n;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), whole = count / lanes * lanes;
  const auto rest = static_cast<std::size_t>(count - whole);
  const auto round = [&](auto zero) {
    auto* out = reinterpret_cast<decltype(zero)*>(to);
    for (std::int64_t i = 0; i < whole; i += lanes) store(hn::LoadU(d, sums + i), d, out + i);
    if (rest > 0) store_n(load_n(d, sums + whole, rest), d, out + whole, rest);
  };
  dtype == DType::f16 ? round(hwy::float16_t{}) : round(hwy::bfloat16_t{});
}

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::weight_grad {
HWY_EXPORT(accumulate_unit);
HWY_EXPORT(store_unit);
HWY_EXPORT(round_floats);

void accumulate(const Job& job, const Unit& unit, std::int64_t chunk, std::byte* sums, std::byte* part,
                std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(accumulate_unit)(job, unit, chunk, sums, part, scratch);
}

void round_sums(const float* sums, std::int64_t count, DType dtype, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(round_floats)(sums, count, dtype, to);
}

void store(const Job& job, const Unit& unit, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(store_unit)(job, unit, scratch);
}

}  // namespace vkconv::cpu::weight_grad
#endif
