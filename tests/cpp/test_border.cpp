// The index map of borders against the sequences that define them, and the parts against the outputs they divide.
#include "core/border.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace vkconv {
namespace {

// The elements at positions [begin, end), '.' for the constant.
std::string elements(BorderMode mode, const std::string& axis, std::int64_t begin, std::int64_t end) {
  std::string read;
  std::int64_t at = begin;
  for (const Run& run : runs({mode, 1.0}, static_cast<std::int64_t>(axis.size()), begin, end)) {
    EXPECT_EQ(run.at, at);
    EXPECT_GE(run.count, 1);
    at += run.count;
    for (std::int64_t i = 0; i < run.count; ++i)
      read += run.constant ? '.' : axis.at(static_cast<std::size_t>(run.from + i * run.step));
  }
  EXPECT_EQ(at, end);
  return read;
}

TEST(Border, RepeatsTheElementsOfItsMode) {
  EXPECT_EQ(elements(BorderMode::reflect, "abcd", -8, 12), "cbabcdcbabcdcbabcdcb");
  EXPECT_EQ(elements(BorderMode::symmetric, "abcd", -6, 10), "cddcbaabcddcbaab");
  EXPECT_EQ(elements(BorderMode::edge, "abcd", -3, 6), "aaaabcddd");
  EXPECT_EQ(elements(BorderMode::circular, "abcd", -5, 9), "dabcdabcdabcda");
  EXPECT_EQ(elements(BorderMode::constant, "abcd", -2, 5), "..abcd.");
  for (BorderMode mode : {BorderMode::reflect, BorderMode::symmetric, BorderMode::edge, BorderMode::circular})
    EXPECT_EQ(elements(mode, "a", -3, 3), "aaaaaa");
}

TEST(Border, LongBordersOfOneElementAreOneRun) {
  EXPECT_EQ(runs({BorderMode::edge, 0}, 5, -(std::int64_t{1} << 40), std::int64_t{1} << 40).size(), 3u);
  EXPECT_EQ(runs({BorderMode::circular, 0}, 1, -(std::int64_t{1} << 40), 0).size(), 1u);
  EXPECT_EQ(elements(BorderMode::reflect, "ab", -3, 5), "babababa");
}

TEST(Border, PositionsBesideTheInputOnly) {
  EXPECT_EQ(elements(BorderMode::symmetric, "abcd", -3, -1), "cb");
  EXPECT_EQ(elements(BorderMode::edge, "abcd", 5, 7), "dd");
  EXPECT_EQ(elements(BorderMode::reflect, "abcd", 1, 3), "bc");
}

// How often each output is in a part.
std::map<Extent3, int> covered(const std::vector<BorderPart>& parts) {
  std::map<Extent3, int> times;
  for (const auto& [box, inside] : parts)
    for (std::int64_t d = box.begin[0]; d < box.end[0]; ++d)
      for (std::int64_t h = box.begin[1]; h < box.end[1]; ++h)
        for (std::int64_t w = box.begin[2]; w < box.end[2]; ++w) ++times[{d, h, w}];
  return times;
}

bool within_input(const ConvProblem& p, const Box& outputs) {
  const Box read = positions_read(p, outputs);
  for (int a = 0; a < 3; ++a)
    if (read.begin[a] < 0 || read.end[a] > p.input[a]) return false;
  return true;
}

TEST(Border, PartsCoverEveryOutputOnce) {
  for (const char* text :
       {"fwd_f32_n1c4o4_i20x21_k3x3_p1x1", "fwd_f32_n1c4o4_i40_k7_p3", "fwd_f32_n1c4o4_i14x14x15_k3x3x3_p1x1x1",
        "fwd_f32_n1c4o4_i40x30_k5x3_s3x2_p2x1", "fwd_f32_n1c4o4_i60_k3_d8_p8", "fwd_f32_n1c4o4_i3x3_k3x3_p1x1",
        "fwd_f32_n1c4o4_i90_k1_s3_p4", "fwd_f32_n1c4o4_i5x90_k3x3_p0x2"}) {
    const ConvProblem p = parse_problem(text);
    const auto parts = border_parts(p);
    const auto times = covered(parts);
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), p.output_pixels()) << text;
    for (const auto& [output, n] : times) EXPECT_EQ(n, 1) << text;
    for (const BorderPart& part : parts) EXPECT_EQ(part.inside, within_input(p, part.outputs)) << text;
  }
}

TEST(Border, ThinProblemsAreOnePart) {
  EXPECT_EQ(border_parts(parse_problem("fwd_f32_n1c4o4_i3x3_k3x3_p1x1")).size(), 1u);
  EXPECT_EQ(border_parts(parse_problem("fwd_f32_n1c4o4_i2_k5_p4")).size(), 1u);
  EXPECT_EQ(border_parts(parse_problem("fwd_f32_n1c4o4_i40x40_k3x3_p1x1")).size(), 5u);
}

TEST(Border, BoxesCoverThePositionsOutside) {
  const ConvProblem p = parse_problem("fwd_f32_n1c4o4_i9x8_k3x3_p2x1");
  std::int64_t outside = 0;
  for (const Box& box : border_boxes(p)) {
    const Extent3 e = box.extent();
    outside += e[0] * e[1] * e[2];
  }
  EXPECT_EQ(outside, 13 * 10 - 9 * 8);
}

}  // namespace
}  // namespace vkconv
