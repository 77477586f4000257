// The micro-kernels of bf16 pairs on the matrix registers of Intel's AMX: of 16 rows by 64 bytes, of which one
// instruction multiplies two. Operands lie in memory as those of bf16_dot.h do, so that rows of A are read in place. A
// core multiplies 32 times as many values a cycle as with fp32 vectors, or 16 times: what bounds it are the panels that
// come out of L2, which tiles of 32 rows read half as often as they are multiplied.
//
// Sums are fp32. An instruction adds 16 even and 16 odd terms, each addition rounded, and then both to the sums.
// Operands and sums below 2^-126 count as zero, so Precision::highest does not use it.
//
// Operands may be parts of other numbers (bf16_parts.h): kTileTerms of the first part, as many of the second, ..., both
// in rows of A and in panels.
#pragma once
#include <cstdint>

#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {

inline constexpr std::int64_t kTileTerms = 32;  // that an instruction adds: slices have a multiple
inline constexpr std::int64_t kTileRows = 16;   // of a register
inline constexpr RegisterTile kMatrixTile{16, {32, 32, 0, 32}};

// Whether the processor has such registers and the system lets this process use them.
bool bf16_tiles_available();

// A thread that is done with them calls `release`. Where there are none, emulated ones, for tests: they need
// bf16_dot_available().
const GemmKernels<hwy::bfloat16_t, float>& bf16_tile_kernels(int parts = 1);

}  // namespace vkconv::cpu
