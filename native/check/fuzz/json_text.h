// JSON as text: what parse_json reads, and, if a record has them, repeated keys too.
#pragma once

#include "engine/json.h"

#include <charconv>
#include <cstdio>
#include <string>

namespace zeropoint::check {

inline void write_text(const std::string& text, std::string& out) {
    out += '"';
    size_t written = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool control = static_cast<unsigned char>(c) < 0x20;
        if (!control && c != '"' && c != '\\') continue;
        out.append(text, written, i - written);
        written = i + 1;
        if (control) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
            out += escaped;
        } else {
            out += '\\';
            out += c;
        }
    }
    out.append(text, written);
    out += '"';
}

inline void write_json(const Json& json, std::string& out) {
    const char* between = "";
    if (json.is_null()) {
        out += "null";
    } else if (const bool* flag = json.boolean()) {
        out += *flag ? "true" : "false";
    } else if (const int64_t* integer = json.integer()) {
        out += std::to_string(*integer);
    } else if (const std::string* text = json.text()) {
        write_text(*text, out);
    } else if (const Json::List* list = json.list()) {
        out += '[';
        for (const Json& item : *list) {
            out += between;
            write_json(item, out);
            between = ",";
        }
        out += ']';
    } else if (const Json::Record* record = json.record()) {
        out += '{';
        for (const auto& [key, value] : *record) {
            out += between;
            write_text(key, out);
            out += ':';
            write_json(value, out);
            between = ",";
        }
        out += '}';
    } else {
        char real[40];
        const char* end = std::to_chars(real, real + sizeof real, std::get<double>(json.value)).ptr;
        const std::string_view digits(real, static_cast<size_t>(end - real));
        out += digits;
        if (digits.find_first_of(".en") == std::string_view::npos) out += ".0";
    }
}

}  // namespace zeropoint::check
