// The Cook-Toom matrices of F(m, r): m outputs of an r-tap correlation from a = m + r - 1 products instead of m * r.
// Both operands are evaluated as polynomials at a - 1 finite points and at infinity, multiplied there, and the
// products are combined:
//   y = output^T ((weight g) * (input x)),   y_i = sum over k of x_(i+k) g_k
// Finite points come in pairs +p, -p, with 0 added when a - 1 is odd. Row -p of every matrix is row +p with the odd
// columns negated, which halves the arithmetic of a transform.
#pragma once
#include <array>

namespace vkconv::cpu::winograd {

// Positive halves of the pairs among `kFinite` points. 5/8 and 3/2 have half the rms error of the usual 1 and 2 at the
// same cost; so has F(5, 3) at 3/8, 7/8 and 7/4.
template <int kFinite>
struct PairPoints {
  static constexpr std::array<double, 3> values = kFinite < 4    ? std::array<double, 3>{1}
                                                  : kFinite < 6  ? std::array<double, 3>{0.625, 1.5}
                                                  : kFinite == 6 ? std::array<double, 3>{0.375, 0.875, 1.75}
                                                                 : std::array<double, 3>{0.5, 1, 2};
};

template <int kRows, int kColumns>
using Matrix = std::array<std::array<double, kColumns>, kRows>;

// Row of a point: pair i has rows 2i (+p) and 2i + 1 (-p), then zero if it is a point, then infinity.
template <int kOutputs, int kTaps>
struct Points {
  static constexpr int outputs = kOutputs;
  static constexpr int taps = kTaps;
  static constexpr int count = kOutputs + kTaps - 1;
  static constexpr int pairs = (count - 1) / 2;
  static constexpr int finite = count - 1;

  static constexpr double point(int row) {
    if (row >= 2 * pairs) return 0;
    const double p = PairPoints<finite>::values[row / 2];
    return row % 2 == 0 ? p : -p;
  }

  // x -> product over the finite points other than `skip` of (x - point): coefficients, lowest first. Its leading
  // coefficient is 1; the normalisation by its value at the skipped point is in the weight matrix.
  static constexpr std::array<double, count> product_without(int skip) {
    std::array<double, count> c{1};
    for (int row = 0, degree = 0; row < finite; ++row) {
      if (row == skip) continue;
      ++degree;
      for (int k = degree; k >= 0; --k) c[k] = (k > 0 ? c[k - 1] : 0) - point(row) * c[k];
    }
    return c;
  }

  static constexpr double value(const std::array<double, count>& coefficients, double x) {
    double v = 0;
    for (int k = count - 1; k >= 0; --k) v = v * x + coefficients[k];
    return v;
  }

  static constexpr double parity_sign(int row, int column) {
    return row < 2 * pairs && row % 2 == 1 && column % 2 == 1 ? -1 : 1;
  }
  static constexpr int positive(int row) { return row < 2 * pairs ? row - row % 2 : row; }

  static constexpr Matrix<count, count> make_input() {
    Matrix<count, count> m{};
    for (int row = 0; row < count; ++row) {
      const auto c = product_without(row == count - 1 ? -1 : positive(row));
      for (int k = 0; k < count; ++k) m[row][k] = parity_sign(row, k) * c[k];
    }
    return m;
  }

  static constexpr Matrix<count, kTaps> make_weight() {
    Matrix<count, kTaps> m{};
    for (int row = 0; row < finite; ++row) {
      const double p = point(positive(row));
      double power = 1 / value(product_without(positive(row)), p);
      for (int k = 0; k < kTaps; ++k, power *= p) m[row][k] = parity_sign(row, k) * power;
    }
    m[count - 1][kTaps - 1] = 1;
    return m;
  }

  // One row a point, like the others; the combination uses its transpose.
  static constexpr Matrix<count, kOutputs> make_output() {
    Matrix<count, kOutputs> m{};
    for (int row = 0; row < finite; ++row) {
      double power = 1;
      for (int k = 0; k < kOutputs; ++k, power *= point(row)) m[row][k] = power;
    }
    m[count - 1][kOutputs - 1] = 1;
    return m;
  }

  static constexpr Matrix<count, count> input = make_input();
  static constexpr Matrix<count, kTaps> weight = make_weight();
  static constexpr Matrix<count, kOutputs> output = make_output();
};

}  // namespace vkconv::cpu::winograd
