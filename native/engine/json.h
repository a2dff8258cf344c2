// JSON as RFC 8259 has it, read strictly: no comments, no trailing commas, no repeated keys, no NaN, UTF-8 only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace zeropoint {

struct Json {
    using List = std::vector<Json>;
    using Record = std::vector<std::pair<std::string, Json>>;  // in the order of the text
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, List, Record> value = nullptr;

    bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
    const bool* boolean() const { return std::get_if<bool>(&value); }
    const int64_t* integer() const { return std::get_if<int64_t>(&value); }
    const std::string* text() const { return std::get_if<std::string>(&value); }
    const List* list() const { return std::get_if<List>(&value); }
    const Record* record() const { return std::get_if<Record>(&value); }
    // An integer or a float.
    bool number(double& out) const;
    // Of a record; null if it has no such key, or is no record.
    const Json* find(std::string_view key) const;
};

// Numbers without fraction and exponent are integers, and must fit in 64 bits. Values nest at most 32 deep.
// Throws FormatError with the place of the first mistake.
Json parse_json(std::string_view text);

}  // namespace zeropoint
