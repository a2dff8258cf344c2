#include "operators/matrices.h"

#include "kernels/map/functions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace zeropoint {
namespace {

struct Matrix {
    int64_t rows, columns;
    std::vector<double> values;

    Matrix(int64_t m, int64_t n) : rows(m), columns(n), values(static_cast<size_t>(m * n)) {}
    double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
    double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

constexpr double kNothing = 1e-14;  // of what was there: what rounding leaves of zero

double size_of(double v) { return v < 0.0 ? -v : v; }

// ------------------------------------------------------------------------------------------------------------ L and U

struct Factors {
    Matrix lu;
    std::vector<int64_t> pivots;  // the row that each was exchanged with
    double sign = 1.0;
    int64_t failed = 0;

    explicit Factors(const Matrix& a) : lu(a), pivots(static_cast<size_t>(std::min(a.rows, a.columns))) {
        Matrix reach(a);  // the largest of the terms of each number
        for (double& v : reach.values) v = size_of(v);
        for (int64_t k = 0; k < static_cast<int64_t>(pivots.size()); ++k) {
            int64_t best = k;
            for (int64_t i = k + 1; i < lu.rows; ++i)
                if (size_of(lu.at(i, k)) > size_of(lu.at(best, k))) best = i;
            pivots[static_cast<size_t>(k)] = best;
            if (best != k) {
                sign = -sign;
                for (int64_t j = 0; j < lu.columns; ++j) std::swap(lu.at(k, j), lu.at(best, j));
                for (int64_t j = 0; j < lu.columns; ++j) std::swap(reach.at(k, j), reach.at(best, j));
            }
            const double size = size_of(lu.at(k, k));
            if (failed == 0 && size < exact::kInfinity && size <= kNothing * reach.at(k, k)) failed = k + 1;
            if (lu.at(k, k) == 0.0) continue;
            for (int64_t i = k + 1; i < lu.rows; ++i) {
                const double factor = lu.at(i, k) /= lu.at(k, k);
                for (int64_t j = k + 1; j < lu.columns; ++j) {
                    const double term = factor * lu.at(k, j);
                    lu.at(i, j) -= term;
                    if (size_of(term) > reach.at(i, j)) reach.at(i, j) = size_of(term);
                }
            }
        }
    }
};

void solve_triangle(const Matrix& a, Matrix& b, bool upper, bool unit) {
    for (int64_t step = 0; step < a.rows; ++step) {
        const int64_t k = upper ? a.rows - 1 - step : step;
        for (int64_t j = 0; j < b.columns; ++j) {
            if (!unit) b.at(k, j) /= a.at(k, k);
            for (int64_t i = upper ? 0 : k + 1; i < (upper ? k : a.rows); ++i) b.at(i, j) -= a.at(i, k) * b.at(k, j);
        }
    }
}

Factors checked_factors(const Matrix& a) {
    Factors f(a);
    if (f.failed != 0)
        throw std::invalid_argument("the matrix is singular: pivot " + std::to_string(f.failed) + " of " +
                                    std::to_string(f.pivots.size()) + " is zero");
    return f;
}

Matrix solved(const Matrix& a, Matrix b, bool checked) {
    const Factors f = checked ? checked_factors(a) : Factors(a);
    for (int64_t k = 0; k < a.rows; ++k)
        for (int64_t j = 0; j < b.columns; ++j) std::swap(b.at(k, j), b.at(f.pivots[static_cast<size_t>(k)], j));
    solve_triangle(f.lu, b, false, true);
    solve_triangle(f.lu, b, true, false);
    return b;
}

Matrix unit_of(int64_t n) {
    Matrix y(n, n);
    for (int64_t i = 0; i < n; ++i) y.at(i, i) = 1.0;
    return y;
}

// L, and the first order whose minor is not positive: the rest stays as it was.
std::pair<Matrix, int64_t> cholesky(const Matrix& a) {
    Matrix y(a.rows, a.rows);
    for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j <= i; ++j) y.at(i, j) = a.at(i, j);
    for (int64_t j = 0; j < a.rows; ++j) {
        for (int64_t k = 0; k < j; ++k) y.at(j, j) -= y.at(j, k) * y.at(j, k);
        if (!(y.at(j, j) > kNothing * size_of(a.at(j, j)))) return {y, j + 1};
        y.at(j, j) = std::sqrt(y.at(j, j));
        for (int64_t i = j + 1; i < a.rows; ++i) {
            for (int64_t k = 0; k < j; ++k) y.at(i, j) -= y.at(i, k) * y.at(j, k);
            y.at(i, j) /= y.at(j, j);
        }
    }
    return {y, 0};
}

// ------------------------------------------------------------------------------------------------------------ Q and R

struct Reflectors {
    Matrix packed;  // R, and below its diagonal what each reflection is made of, but its first number, which is one
    std::vector<double> factors;

    explicit Reflectors(const Matrix& a) : packed(a), factors(static_cast<size_t>(std::min(a.rows, a.columns))) {
        for (int64_t k = 0; k < static_cast<int64_t>(factors.size()); ++k) {
            double square = 0.0;
            for (int64_t i = k + 1; i < a.rows; ++i) square += packed.at(i, k) * packed.at(i, k);
            if (square == 0.0) continue;
            const double first = packed.at(k, k), length = std::sqrt(first * first + square);
            const double turned = first < 0.0 || (first == 0.0 && std::signbit(first)) ? length : -length;
            factors[static_cast<size_t>(k)] = (turned - first) / turned;
            for (int64_t i = k + 1; i < a.rows; ++i) packed.at(i, k) /= first - turned;
            packed.at(k, k) = turned;
            reflect(packed, k, k + 1);
        }
    }
    // Columns of y from `first` on, reflected by number k.
    void reflect(Matrix& y, int64_t k, int64_t first) const {
        for (int64_t j = first; j < y.columns; ++j) {
            double sum = y.at(k, j);
            for (int64_t i = k + 1; i < y.rows; ++i) sum += packed.at(i, k) * y.at(i, j);
            sum *= factors[static_cast<size_t>(k)];
            y.at(k, j) -= sum;
            for (int64_t i = k + 1; i < y.rows; ++i) y.at(i, j) -= packed.at(i, k) * sum;
        }
    }
    Matrix q(int64_t columns) const {
        Matrix y(packed.rows, columns);
        for (int64_t i = 0; i < std::min(packed.rows, columns); ++i) y.at(i, i) = 1.0;
        for (int64_t k = static_cast<int64_t>(factors.size()) - 1; k >= 0; --k) reflect(y, k, 0);
        return y;
    }
    Matrix r(int64_t rows) const {
        Matrix y(rows, packed.columns);
        for (int64_t i = 0; i < std::min(rows, packed.rows); ++i)
            for (int64_t j = i; j < y.columns; ++j) y.at(i, j) = packed.at(i, j);
        return y;
    }
};

// ---------------------------------------------------------------------------------------------------------- rotations

constexpr int kSweeps = 60;  // they end long before, unless a number is NaN

struct Rotation {
    double cosine, sine;

    // The one that makes the product `both` of two vectors zero, whose squares are `first` and `second`.
    Rotation(double first, double second, double both) {
        const double z = (second - first) / (2.0 * both), root = std::sqrt(1.0 + z * z);
        const double t = z < 0.0 ? -1.0 / (root - z) : 1.0 / (z + root);
        cosine = 1.0 / std::sqrt(1.0 + t * t);
        sine = cosine * t;
    }
    void turn(double& x, double& y) const {
        const double before = x;
        x = cosine * before - sine * y;
        y = sine * before + cosine * y;
    }
};

std::vector<double> eigenvalues(Matrix a) {
    bool turned = true;
    for (int sweep = 0; sweep < kSweeps && turned; ++sweep) {
        turned = false;
        for (int64_t i = 0; i < a.rows; ++i)
            for (int64_t j = i + 1; j < a.rows; ++j) {
                if (!(size_of(a.at(i, j)) > 1e-18 * (size_of(a.at(i, i)) + size_of(a.at(j, j))))) continue;
                turned = true;
                const Rotation r(a.at(i, i), a.at(j, j), a.at(i, j));
                for (int64_t k = 0; k < a.rows; ++k) r.turn(a.at(k, i), a.at(k, j));
                for (int64_t k = 0; k < a.rows; ++k) r.turn(a.at(i, k), a.at(j, k));
                a.at(i, j) = a.at(j, i) = 0.0;
            }
    }
    std::vector<double> found;
    for (int64_t i = 0; i < a.rows; ++i) found.push_back(a.at(i, i));
    std::sort(found.begin(), found.end());
    return found;
}

// A V = U S: the columns of A, turned until each is orthogonal to each, and the product of all rotations.
struct Turned {
    Matrix u, v;

    explicit Turned(const Matrix& a) : u(a), v(unit_of(a.columns)) {
        bool turned = true;
        for (int sweep = 0; sweep < kSweeps && turned; ++sweep) {
            turned = false;
            for (int64_t i = 0; i < u.columns; ++i)
                for (int64_t j = i + 1; j < u.columns; ++j) {
                    const double first = product(i, i), second = product(j, j), both = product(i, j);
                    if (!(size_of(both) > 1e-15 * std::sqrt(first * second))) continue;
                    turned = true;
                    const Rotation r(first, second, both);
                    for (int64_t k = 0; k < u.rows; ++k) r.turn(u.at(k, i), u.at(k, j));
                    for (int64_t k = 0; k < v.rows; ++k) r.turn(v.at(k, i), v.at(k, j));
                }
        }
    }
    double product(int64_t i, int64_t j) const {
        double sum = 0.0;
        for (int64_t k = 0; k < u.rows; ++k) sum += u.at(k, i) * u.at(k, j);
        return sum;
    }
};

Matrix transposed(const Matrix& a) {
    Matrix y(a.columns, a.rows);
    for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j < y.columns; ++j) y.at(i, j) = a.at(j, i);
    return y;
}

std::vector<double> singular_values(const Matrix& a) {
    const Turned t(a.columns > a.rows ? transposed(a) : a);
    std::vector<double> found;
    for (int64_t i = 0; i < t.u.columns; ++i) found.push_back(std::sqrt(t.product(i, i)));
    std::sort(found.begin(), found.end(), [](double x, double y) { return x > y; });
    return found;
}

// V S^-1 U', without singular values below a part of the largest.
Matrix pseudo_inverse(const Matrix& a, double part) {
    if (a.columns > a.rows) return transposed(pseudo_inverse(transposed(a), part));
    const Turned t(a);
    std::vector<double> squares;
    for (int64_t i = 0; i < t.u.columns; ++i) squares.push_back(t.product(i, i));
    double most = 0.0;
    for (const double square : squares) most = square > most ? square : most;
    Matrix y(a.columns, a.rows);
    for (int64_t k = 0; k < t.u.columns; ++k) {
        const double square = squares[static_cast<size_t>(k)];
        if (square <= most * part * part) continue;
        for (int64_t i = 0; i < y.rows; ++i)
            for (int64_t j = 0; j < y.columns; ++j) y.at(i, j) += t.v.at(i, k) * t.u.at(j, k) / square;
    }
    return y;
}
double usual_part(const Matrix& a) { return 0x1p-23 * static_cast<double>(std::max(a.rows, a.columns)); }
Matrix of_lower(Matrix a) {
    for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < i; ++j) a.at(j, i) = a.at(i, j);
    return a;
}

// ---------------------------------------------------------------------------------------------------------- the table

using Values = std::vector<double>;
// Scalars, vectors of the smaller axis, or of matrices.
enum class Shape { number, vector, a, turned, b, q, r, q_complete, r_complete };

struct Row {
    const char* name;
    MatrixTraits traits;
    Shape shape;
    Values (*compute)(const Matrix& a, const Matrix& b);
};

Values number_of(double v) { return {v}; }
Values triangle(const Matrix& a, Matrix b, bool upper, bool unit) {
    solve_triangle(a, b, upper, unit);
    return b.values;
}
Values checked_cholesky(const Matrix& a, const Matrix&) {
    auto [y, failed] = cholesky(a);
    if (failed != 0)
        throw std::invalid_argument("the matrix is not positive definite: see its minor of order " +
                                    std::to_string(failed));
    return y.values;
}
double product_of_pivots(const Factors& f) {
    double product = f.sign;
    for (int64_t i = 0; i < f.lu.rows; ++i) product *= f.lu.at(i, i);
    return product;
}
double sign_of_pivots(const Factors& f) {
    double sign = f.sign;
    for (int64_t i = 0; i < f.lu.rows; ++i) {
        const double pivot = f.lu.at(i, i);
        sign *= pivot > 0.0 ? 1.0 : pivot < 0.0 ? -1.0 : 0.0;
    }
    return sign;
}
double log_of_pivots(const Factors& f) {
    double sum = 0.0;
    for (int64_t i = 0; i < f.lu.rows; ++i) sum += exact::log(size_of(f.lu.at(i, i)));
    return sum;
}
Values pivots_of(const Factors& f) {
    Values found;
    for (const int64_t row : f.pivots) found.push_back(static_cast<double>(row + 1));
    return found;
}

// A = P L U.
Matrix permutation_of(const Factors& f) {
    Matrix y = unit_of(f.lu.rows);
    for (size_t k = f.pivots.size(); k-- > 0;)
        for (int64_t j = 0; j < y.columns; ++j) std::swap(y.at(static_cast<int64_t>(k), j), y.at(f.pivots[k], j));
    return y;
}
Matrix lower_of(const Factors& f) {
    Matrix y(f.lu.rows, static_cast<int64_t>(f.pivots.size()));
    for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j <= std::min(i, y.columns - 1); ++j) y.at(i, j) = i == j ? 1.0 : f.lu.at(i, j);
    return y;
}
Matrix upper_of(const Factors& f) {
    Matrix y(static_cast<int64_t>(f.pivots.size()), f.lu.columns);
    for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = i; j < y.columns; ++j) y.at(i, j) = f.lu.at(i, j);
    return y;
}

constexpr MatrixTraits kSolves{true, true}, kSquare{false, true}, kAny{false, false};
const Row kRows[] = {
    {"solve", kSolves, Shape::b, [](const Matrix& a, const Matrix& b) { return solved(a, b, true).values; }},
    {"solve_any", kSolves, Shape::b, [](const Matrix& a, const Matrix& b) { return solved(a, b, false).values; }},
    {"solve_lower", kSolves, Shape::b, [](const Matrix& a, const Matrix& b) { return triangle(a, b, false, false); }},
    {"solve_upper", kSolves, Shape::b, [](const Matrix& a, const Matrix& b) { return triangle(a, b, true, false); }},
    {"solve_unit_lower", kSolves, Shape::b,
     [](const Matrix& a, const Matrix& b) { return triangle(a, b, false, true); }},
    {"solve_unit_upper", kSolves, Shape::b,
     [](const Matrix& a, const Matrix& b) { return triangle(a, b, true, true); }},
    {"inverse", kSquare, Shape::a,
     [](const Matrix& a, const Matrix&) { return solved(a, unit_of(a.rows), true).values; }},
    {"inverse_any", kSquare, Shape::a,
     [](const Matrix& a, const Matrix&) { return solved(a, unit_of(a.rows), false).values; }},
    {"determinant", kSquare, Shape::number,
     [](const Matrix& a, const Matrix&) { return number_of(product_of_pivots(Factors(a))); }},
    {"sign_of_determinant", kSquare, Shape::number,
     [](const Matrix& a, const Matrix&) { return number_of(sign_of_pivots(Factors(a))); }},
    {"log_of_determinant", kSquare, Shape::number,
     [](const Matrix& a, const Matrix&) { return number_of(log_of_pivots(Factors(a))); }},
    {"lu", kAny, Shape::a, [](const Matrix& a, const Matrix&) { return checked_factors(a).lu.values; }},
    {"lu_any", kAny, Shape::a, [](const Matrix& a, const Matrix&) { return Factors(a).lu.values; }},
    {"pivots", kAny, Shape::vector, [](const Matrix& a, const Matrix&) { return pivots_of(Factors(a)); }},
    {"lu_info", kAny, Shape::number,
     [](const Matrix& a, const Matrix&) { return number_of(static_cast<double>(Factors(a).failed)); }},
    {"permutation", kAny, Shape::q_complete,
     [](const Matrix& a, const Matrix&) { return permutation_of(Factors(a)).values; }},
    {"lower", kAny, Shape::q, [](const Matrix& a, const Matrix&) { return lower_of(Factors(a)).values; }},
    {"upper", kAny, Shape::r, [](const Matrix& a, const Matrix&) { return upper_of(Factors(a)).values; }},
    {"cholesky", kSquare, Shape::a, checked_cholesky},
    {"cholesky_any", kSquare, Shape::a, [](const Matrix& a, const Matrix&) { return cholesky(a).first.values; }},
    {"cholesky_info", kSquare, Shape::number,
     [](const Matrix& a, const Matrix&) { return number_of(static_cast<double>(cholesky(a).second)); }},
    {"reflectors", kAny, Shape::a, [](const Matrix& a, const Matrix&) { return Reflectors(a).packed.values; }},
    {"factors", kAny, Shape::vector, [](const Matrix& a, const Matrix&) { return Reflectors(a).factors; }},
    {"q", kAny, Shape::q,
     [](const Matrix& a, const Matrix&) { return Reflectors(a).q(std::min(a.rows, a.columns)).values; }},
    {"r", kAny, Shape::r,
     [](const Matrix& a, const Matrix&) { return Reflectors(a).r(std::min(a.rows, a.columns)).values; }},
    {"q_complete", kAny, Shape::q_complete,
     [](const Matrix& a, const Matrix&) { return Reflectors(a).q(a.rows).values; }},
    {"r_complete", kAny, Shape::r_complete,
     [](const Matrix& a, const Matrix&) { return Reflectors(a).r(a.rows).values; }},
    {"eigenvalues", kSquare, Shape::vector, [](const Matrix& a, const Matrix&) { return eigenvalues(of_lower(a)); }},
    {"singular_values", kAny, Shape::vector, [](const Matrix& a, const Matrix&) { return singular_values(a); }},
    {"pseudo_inverse", kAny, Shape::turned,
     [](const Matrix& a, const Matrix&) { return pseudo_inverse(a, usual_part(a)).values; }},
    {"pseudo_inverse_of_lower", kSquare, Shape::turned,
     [](const Matrix& a, const Matrix&) { return pseudo_inverse(of_lower(a), usual_part(a)).values; }},
};

const Row& row_of(const std::string& function) {
    for (const Row& row : kRows)
        if (function == row.name) return row;
    throw std::invalid_argument("there is no function '" + function + "' of matrices");
}

}  // namespace

MatrixTraits matrix_traits(const std::string& function) { return row_of(function).traits; }

MatrixResult matrix_result(const std::string& function, const MatrixSizes& s) {
    const int64_t least = std::min(s.rows, s.columns);
    switch (row_of(function).shape) {
        case Shape::number: return {0, {1, 1}};
        case Shape::vector: return {1, {least, 1}};
        case Shape::a: return {2, {s.rows, s.columns}};
        case Shape::turned: return {2, {s.columns, s.rows}};
        case Shape::b: return {2, {s.rows, s.others}};
        case Shape::q: return {2, {s.rows, least}};
        case Shape::r: return {2, {least, s.columns}};
        case Shape::q_complete: return {2, {s.rows, s.rows}};
        case Shape::r_complete: return {2, {s.rows, s.columns}};
    }
    return {0, {1, 1}};
}

void matrix_function(const std::string& function, const float* a, const float* b, float* y, int64_t batch,
                     const MatrixSizes& s) {
    const Row& row = row_of(function);
    const MatrixResult result = matrix_result(function, s);
    const int64_t count = result.sizes[0] * result.sizes[1];
    for (int64_t number = 0; number < batch; ++number) {
        Matrix left(s.rows, s.columns), right(row.traits.takes_b ? s.rows : 0, row.traits.takes_b ? s.others : 0);
        std::copy_n(a + number * s.rows * s.columns, s.rows * s.columns, left.values.begin());
        if (row.traits.takes_b) std::copy_n(b + number * s.rows * s.others, s.rows * s.others, right.values.begin());
        const Values found = row.compute(left, right);
        for (int64_t i = 0; i < count; ++i) y[number * count + i] = static_cast<float>(found[static_cast<size_t>(i)]);
    }
}

}  // namespace zeropoint
