// Ways into a JSON tree that is to be changed.
#pragma once

#include "engine/json.h"

#include <string_view>
#include <vector>

namespace zeropoint::check {

inline Json* find(Json& json, std::string_view key) { return const_cast<Json*>(json.find(key)); }

inline Json::List* list_in(Json& json, std::string_view key) {
    Json* found = find(json, key);
    return found == nullptr || found->list() == nullptr ? nullptr : &std::get<Json::List>(found->value);
}

// Every value below, itself included.
inline void collect(Json& json, std::vector<Json*>& out) {
    out.push_back(&json);
    if (json.list() != nullptr)
        for (Json& item : std::get<Json::List>(json.value)) collect(item, out);
    if (json.record() != nullptr)
        for (auto& field : std::get<Json::Record>(json.value)) collect(field.second, out);
}

}  // namespace zeropoint::check
