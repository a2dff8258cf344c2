// Embedding tables for Python.
#include "operators/embedding.h"

#include "bindings/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>

namespace zeropoint {
namespace {

// (address of the table, rows, columns, bits, address of the floats)
using TableTuple = std::tuple<Address, int64_t, int64_t, int, Address>;
// (address, int64 or int32, count)
using IndexTuple = std::tuple<Address, bool, int64_t>;

EmbeddingTensor table_of(const TableTuple& t) {
    return {at<const uint8_t>(std::get<0>(t)), std::get<1>(t), std::get<2>(t), std::get<3>(t),
            at<float>(std::get<4>(t))};
}

IndexArray indices_of(const IndexTuple& t) { return {at<const void>(std::get<0>(t)), std::get<1>(t), std::get<2>(t)}; }

}  // namespace

void bind_embedding(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "embedding_bags",
        [](const std::string& op, const TableTuple& table, const IndexTuple& indices, const IndexTuple& offsets,
           bool cut, int64_t length, bool last, const IndexTuple& mapping, Address weights, int mode) {
            embedding_bags(op, table_of(table),
                           {indices_of(indices), indices_of(offsets), cut, length, last, indices_of(mapping),
                            at<const float>(weights), static_cast<BagMode>(mode)});
        },
        release());
    m.def("embedding_unpack", [](const TableTuple& table) { embedding_unpack(table_of(table)); }, release());
    m.def(
        "embedding_pack",
        [](const TableTuple& table, Address ranges, bool least_loss, int bins, float ratio) {
            const EmbeddingTensor t = table_of(table);
            return embedding_pack(t.y, t.rows, t.columns, t.bits, {at<const float>(ranges), least_loss, bins, ratio},
                                  at<uint8_t>(std::get<0>(table)));
        },
        release());
}

}  // namespace zeropoint
