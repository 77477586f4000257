// The registers' instructions in assembly, because their intrinsics do not tell the compiler that they read memory, and
// take no register from a template.
#include "cpu/bf16_tiles.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "cpu/bf16_dot.h"
#include "cpu/bf16_parts.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cpu/bf16_finish-inl.h"

HWY_PUSH_ATTRIBUTES(VKCONV_BF16_ATTRIBUTES)
namespace vkconv::cpu {
namespace {

using Kernels = GemmKernels<hwy::bfloat16_t, float>;
using Tile = Kernels::Tile;
using Terms = Kernels::Terms;
using Part = Kernels::Part;

constexpr auto kElement = static_cast<std::int64_t>(sizeof(hwy::bfloat16_t));
constexpr int kLanes = kMatrixTile.lanes, kRegisters = 8, kRegisterRows = kTileRows, kRegisterBytes = 64;

// The operand of ldtilecfg.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(Configuration) == 64);

// The processor's registers.
struct Amx {
  static void configure(const Configuration& c) { asm volatile("ldtilecfg %0" : : "m"(c)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kRegister>
  static __attribute__((always_inline)) void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
  }
  template <int kRegister>
  static __attribute__((always_inline)) void load(const void* from, std::int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(kRegister) : "memory");
  }
  template <int kRegister>
  static __attribute__((always_inline)) void store(void* to, std::int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride_bytes), "i"(kRegister) : "memory");
  }
  template <int kC, int kA, int kB>
  static __attribute__((always_inline)) void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

// The same on arrays of the thread.
struct EmulatedAmx {
  struct Register {
    std::byte row[kRegisterRows][kRegisterBytes];
  };
  static inline thread_local Configuration configuration;
  static inline thread_local Register registers[kRegisters];

  static void configure(const Configuration& c) {
    configuration = c;
    std::memset(registers, 0, sizeof registers);
  }
  static void release() { configuration = {}; }
  template <int kRegister>
  static void clear() {
    registers[kRegister] = {};
  }
  template <int kRegister>
  static void load(const void* from, std::int64_t stride_bytes) {
    for (int r = 0; r < configuration.rows[kRegister]; ++r)
      std::memcpy(registers[kRegister].row[r], static_cast<const std::byte*>(from) + r * stride_bytes,
                  configuration.row_bytes[kRegister]);
  }
  template <int kRegister>
  static void store(void* to, std::int64_t stride_bytes) {
    for (int r = 0; r < configuration.rows[kRegister]; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * stride_bytes, registers[kRegister].row[r],
                  configuration.row_bytes[kRegister]);
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    for (int r = 0; r < configuration.rows[kC]; ++r)
      for (int column = 0; column < kLanes; ++column) {
        float sum[2] = {};  // of even and odd terms
        for (int k = 0; k < kTileTerms; ++k)
          sum[k % 2] = flushed(sum[k % 2] +
                               value(registers[kA].row[r], k) * value(registers[kB].row[k / 2], 2 * column + k % 2));
        float c;
        std::memcpy(&c, registers[kC].row[r] + 4 * column, 4);
        c = flushed(c + flushed(sum[0] + sum[1]));
        std::memcpy(registers[kC].row[r] + 4 * column, &c, 4);
      }
  }

 private:
  // The i-th of a row.
  static float value(const std::byte* row, int i) {
    std::uint16_t bits;
    std::memcpy(&bits, row + 2 * i, 2);
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float v;
    std::memcpy(&v, &wide, 4);
    return flushed(v);
  }
  static float flushed(float v) { return std::abs(v) < std::numeric_limits<float>::min() ? 0 : v; }
};

// Registers of a tile of one or two (kHigh) by kWide: sums first, then A's, then one for B's vectors in turn.
template <int kHigh, int kWide>
struct Registers {
  static constexpr int kSums = kHigh * kWide, kA = kSums, kB = kA + kHigh, kBs = kRegisters - kB;
  static_assert(kBs > 0);
};

// Rows of the upper register of a tile, whose two are as even as possible.
constexpr int upper_rows(int rows) { return rows > kRegisterRows ? (rows + 1) / 2 : rows; }

template <int kRows, int kWide>
constexpr Configuration configuration_of() {
  constexpr int kHigh = kRows > kRegisterRows ? 2 : 1, kUpper = upper_rows(kRows);
  using R = Registers<kHigh, kWide>;
  Configuration c;
  for (int i = 0; i < kRegisters; ++i) {
    const int high = i < R::kSums ? i / kWide : i - R::kA;
    c.row_bytes[i] = kRegisterBytes;
    c.rows[i] = static_cast<std::uint8_t>(i >= R::kB ? kRegisterRows : high == 0 ? kUpper : kRows - kUpper);
  }
  return c;
}

// The sums of a tile, row by row.
template <int kWide>
struct alignas(64) Sums {
  float row[kMatrixTile.rows[1]][kWide][kLanes];
};

// Vectors of a panel in tiles of kWide vectors: of one panel, or of two beside each other.
template <int kWide>
constexpr int kPanelVectors = kWide < 2 ? kWide : 2;

// The rows of A that a later tile reads, fetched into L2 a few with every instruction's terms: all at once they would
// hold up the loads behind them. Every second line, whose neighbour the processor brings along.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const hwy::bfloat16_t* first, std::int64_t lda, std::int64_t rows, std::int64_t terms, std::int64_t steps)
      : next_(first), lda_(lda), left_(rows), bytes_(terms * kElement), together_(ceil_div(rows, steps)) {}
  inline __attribute__((always_inline)) void fetch() {
    for (std::int64_t i = 0; i < together_ && left_ > 0; ++i, --left_, next_ += lda_)
      for (std::int64_t byte = 0; byte < bytes_; byte += 2 * kLineBytes)
        fetch_line<kIntoL2>(reinterpret_cast<const std::byte*>(next_) + byte);
  }

 private:
  const hwy::bfloat16_t* next_ = nullptr;
  std::int64_t lda_ = 0, left_ = 0, bytes_ = 0, together_ = 0;
};

// That of tile `tile`, whose products are made panel by panel.
Ahead ahead_of(const Tile& t, const Terms& chain, const Part& part, std::int64_t tile, int rows, std::int64_t panels) {
  if (t.rows_ahead == 0 || part.first_panel > 0 || chain.slice_count != 1) return {};
  const std::int64_t first = part.first_row + tile * rows + t.rows_ahead;
  return {chain.slices->a + first * t.lda, t.lda, rows, chain.kc,
          std::max<std::int64_t>(1, panels * chain.kc / kTileTerms)};
}

// Products of the terms of an instruction, by a panel or two.
template <class Unit, int kParts, int kHigh, int kWide>
struct Step {
  using R = Registers<kHigh, kWide>;
  static constexpr int kPair = 2 * kPanelVectors<kWide> * kLanes;  // values of a pair of terms
  static constexpr int kPart = kTileTerms / 2 * kPair;             // values of a part of B

  const hwy::bfloat16_t *a, *b;
  std::int64_t lda, upper, panel_stride;

  // Of a pair of parts, one of which the registers keep of the pair before, if that is not before `kFirst`.
  template <int kFirst, int kNow>
  inline __attribute__((always_inline)) void multiply() const {
    constexpr int kBefore = kNow > kFirst ? kNow - 1 : kNow;
    constexpr int kOfA = kPartPairs<kParts>[kNow].a, kOfB = kPartPairs<kParts>[kNow].b;
    constexpr bool kLoadsA = kNow == kFirst || kOfA != kPartPairs<kParts>[kBefore].a;
    constexpr bool kLoadsB = kNow == kFirst || kOfB != kPartPairs<kParts>[kBefore].b || kWide > R::kBs;
    const auto load_b = [&](auto v) __attribute__((always_inline)) {
      Unit::template load<R::kB + v % R::kBs>(b + kOfB * kPart + v / 2 * panel_stride + v % 2 * 2 * kLanes,
                                              kPair * kElement);
    };
    if constexpr (kLoadsA)
      unroll_pairs<kHigh>([&](auto h) __attribute__((always_inline)) {
        Unit::template load<R::kA + h>(a + h * upper * lda + kOfA * kTileTerms, lda * kElement);
      });
    if constexpr (kLoadsB && kWide <= R::kBs) unroll_pairs<kWide>(load_b);
    unroll_pairs<kWide>([&](auto v) __attribute__((always_inline)) {
      if constexpr (kWide > R::kBs) load_b(v);
      unroll_pairs<kHigh>([&](auto h) __attribute__((always_inline)) {
        Unit::template multiply<h * kWide + v, R::kA + h, R::kB + v % R::kBs>();
      });
    });
  }
};

// Adds the products of the pairs of parts [kFirst, kEnd) of a tile's rows, from `row` on.
template <class Unit, int kParts, int kHigh, int kWide, int kFirst, int kEnd>
inline __attribute__((always_inline)) void add_products(const Tile& t, const Terms& terms, std::int64_t row, int upper,
                                                        std::int64_t panel, Ahead& ahead) {
  using Products = Step<Unit, kParts, kHigh, kWide>;
  for (std::int64_t s = 0; s < terms.slice_count; ++s) {
    const hwy::bfloat16_t* const a = terms.slices[s].a + row * t.lda;
    const hwy::bfloat16_t* b = terms.slices[s].b + panel * t.panel_stride;
    for (std::int64_t k = 0; k < terms.kc; k += kParts * kTileTerms, b += kParts * Products::kPart) {
      ahead.fetch();
      const Products step{a + k, b, t.lda, upper, t.panel_stride};
      unroll_pairs<kEnd - kFirst>([&](auto i)
                                      __attribute__((always_inline)) { step.template multiply<kFirst, kFirst + i>(); });
    }
  }
}

// The sums of a tile's rows: first the products that have a small factor, so that only the others' additions round to
// the size of the sums.
template <class Unit, int kParts, int kHigh, int kWide>
void multiply(const Tile& t, const Terms& terms, std::int64_t row, int rows, std::int64_t panel, Ahead& ahead,
              Sums<kWide>& sums) {
  constexpr int kSums = Registers<kHigh, kWide>::kSums, kLast = part_products(kParts) - 1;
  const int upper = upper_rows(rows);
  unroll_pairs<kSums>([](auto i) __attribute__((always_inline)) { Unit::template clear<i>(); });
  if constexpr (kLast > 0) add_products<Unit, kParts, kHigh, kWide, 0, kLast>(t, terms, row, upper, panel, ahead);
  add_products<Unit, kParts, kHigh, kWide, kLast, kLast + 1>(t, terms, row, upper, panel, ahead);
  unroll_pairs<kSums>([&](auto i) __attribute__((always_inline)) {
    Unit::template store<i>(sums.row[i / kWide * upper][i % kWide], sizeof sums.row[0]);
  });
}

template <int kWide>
void finish(const Tile& t, const Part& part, std::int64_t row, int rows, std::int64_t panel, const Sums<kWide>& sums) {
  constexpr int kVectors = kPanelVectors<kWide>;
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < kWide / kVectors; ++p) {
      __m512 sum[kVectors];
      for (int v = 0; v < kVectors; ++v) sum[v] = _mm512_load_ps(sums.row[r][p * kVectors + v]);
      finish_row<kVectors>(t, part, row + r, (panel + p) * kVectors * kLanes, sum);
    }
}

// That of the thread, which takes 80 ns to change; null: the registers are released.
thread_local const Configuration* configured = nullptr;

template <class Unit>
void configure(const Configuration* c) {
  if (configured != c) Unit::configure(*c);
  configured = c;
}
template <class Unit>
void release() {
  Unit::release();
  configured = nullptr;
}

// Tiles of two registers by two go panel by panel, those of one by four take two at a time. Sums are finished while the
// next are made: the registers wait for their last products before they can be stored.
template <class Unit, int kParts, int kHigh, int kWide>
void run_tiles(const Tile& t, const Terms& chain, const Part& part, std::int64_t panels_end, int rows) {
  Sums<kWide> sums[2];
  struct {
    std::int64_t row, panel;
    const Sums<kWide>* sums;
  } last{};
  const auto finish_last = [&] {
    if (last.sums) finish(t, part, last.row, rows, last.panel, *last.sums);
  };
  bool odd = false;
  for (std::int64_t tile = 0; tile < part.tiles; ++tile) {
    const std::int64_t row = part.first_row + tile * rows;
    Ahead ahead = ahead_of(t, chain, part, tile, rows, panels_end / panels_of(kWide));
    for (std::int64_t panel = part.first_panel; panel < panels_end; panel += panels_of(kWide), odd = !odd) {
      multiply<Unit, kParts, kHigh, kWide>(t, chain, row, rows, panel, ahead, sums[odd]);
      finish_last();
      last = {row, panel, &sums[odd]};
    }
  }
  finish_last();
}

template <class Unit, int kParts, int kRows, int kVectors>
void tile_kernel(const Tile& t, const Terms* chains, const Part& part) {
  constexpr int kHigh = kRows > kRegisterRows ? 2 : 1, kWide = kHigh == 2 && kVectors > 2 ? 2 : kVectors;
  static constexpr Configuration kConfiguration = configuration_of<kRows, kWide>();
  configure<Unit>(&kConfiguration);
  const std::int64_t rest = (part.panels_end - part.first_panel) % panels_of(kVectors);
  run_tiles<Unit, kParts, kHigh, kWide>(t, *chains, part, part.panels_end - rest, kRows);
}

template <class Unit, int kParts, int kVectors, int... i>
Kernels::Rows tile_kernels(std::integer_sequence<int, i...>) {
  return {tile_kernel<Unit, kParts, i + 1, kVectors>...};
}

template <class Unit, int kParts>
Kernels tile_kernels() {
  const std::make_integer_sequence<int, kMatrixTile.most_rows(2)> rows;
  return {kMatrixTile,
          kParts * kTileTerms,
          {tile_kernels<Unit, kParts, 1>(rows),
           tile_kernels<Unit, kParts, 2>(rows),
           {},
           tile_kernels<Unit, kParts, 4>(rows)},
          {},
          release<Unit>};
}

// Linux gives a process the registers' state when it asks for it.
bool granted() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool processor_has_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & kBf16) && (edx & kTile);
}

}  // namespace

}  // namespace vkconv::cpu
HWY_POP_ATTRIBUTES

namespace vkconv::cpu {

bool bf16_tiles_available() {
  static const bool available = bf16_dot_available() && processor_has_tiles() && granted();
  return available;
}

namespace {

template <int kParts>
const Kernels& kernels_by_parts() {
  static const Kernels made =
      bf16_tiles_available() ? tile_kernels<Amx, kParts>() : tile_kernels<EmulatedAmx, kParts>();
  return made;
}

}  // namespace

const GemmKernels<hwy::bfloat16_t, float>& bf16_tile_kernels(int parts) {
  return parts == 3 ? kernels_by_parts<3>() : parts == 2 ? kernels_by_parts<2>() : kernels_by_parts<1>();
}

}  // namespace vkconv::cpu

#endif
