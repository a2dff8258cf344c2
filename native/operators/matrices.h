// Functions of small float32 matrices, of a batch one after the other. All are computed in float64 in one fixed order
// of operations, one element at a time, and rounded once: the same bytes on every CPU.
//
//   lu, pivots            P A = L U by columns; the pivot is the largest number of its column, the first of equal ones;
//                         an error if one is zero, not in `lu_any`
//   permutation, lower, upper   P, L and U of A = P L U
//   solve, inverse        by L and U; an error if a pivot is zero, in `_any` what the division by it gives
//   determinant           the product of the pivots; also its sign, and the logarithm of its size
//   cholesky              A = L L', of the lower triangle; an error if it is not positive, in `_any` a part
//   lu_info, cholesky_info   the first pivot that fails, counted from one; zero if none does
//   solve_lower, solve_upper   with a triangle, also with ones on its diagonal (`unit_`)
//   reflectors, factors   Householder's, as LAPACK packs them; q and r of them, also with all rows (`_complete`)
//   eigenvalues           of the lower triangle of a symmetric matrix by Jacobi's rotations, in ascending order
//   singular_values       by one-sided rotations, in descending order
//   pseudo_inverse        of those that are more than 2^-23 of the largest for each row or column, also of a symmetric
//                         matrix, of which the lower triangle is read
//
// A pivot is zero if it is less than 1e-14 of the largest of the terms that it is the sum of.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace zeropoint {

struct MatrixSizes {
    int64_t rows = 0, columns = 0;
    int64_t others = 0;  // columns of b, which has as many rows as a
};

// Whether it takes b, and whether a must be square. Throws std::invalid_argument if there is no such function.
struct MatrixTraits {
    bool takes_b, square;
};
MatrixTraits matrix_traits(const std::string& function);

// The axes of a result: how many (0, 1 or 2), and their sizes.
struct MatrixResult {
    int axes;
    std::array<int64_t, 2> sizes;
};
MatrixResult matrix_result(const std::string& function, const MatrixSizes& sizes);

// Throws std::invalid_argument if a matrix is singular, or not positive.
void matrix_function(const std::string& function, const float* a, const float* b, float* y, int64_t batch,
                     const MatrixSizes& sizes);

}  // namespace zeropoint
