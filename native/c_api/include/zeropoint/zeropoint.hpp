// zeropoint's C API for C++17: owners instead of free functions, exceptions instead of statuses. Header only, so the
// C++ library of the caller and that of libzeropoint need not be the same.
//
//     zeropoint::Program program("model.zpt");
//     zeropoint::Session session(program);
//     std::vector<float> pixels(3 * 224 * 224);
//     zeropoint::View scores = session.run({zeropoint::view(pixels, {1, 3, 224, 224})})[0];
//     float first = scores.data<float>()[0];
#pragma once

#include "zeropoint.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropoint {

// What went wrong, with the status of the C API.
class Error : public std::runtime_error {
public:
    Error(zp_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    zp_status status() const { return status_; }

private:
    zp_status status_;
};

inline void check(zp_status status) {
    if (status != ZP_OK) throw Error(status, zp_last_error());
}

template <class T>
constexpr zp_type type_of() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, std::uint8_t>)
        return ZP_UINT8;
    else if constexpr (std::is_same_v<U, std::int8_t>)
        return ZP_INT8;
    else if constexpr (std::is_same_v<U, std::int16_t>)
        return ZP_INT16;
    else if constexpr (std::is_same_v<U, std::int32_t>)
        return ZP_INT32;
    else if constexpr (std::is_same_v<U, std::int64_t>)
        return ZP_INT64;
    else if constexpr (std::is_same_v<U, float>)
        return ZP_FLOAT32;
    else {
        static_assert(std::is_same_v<U, bool>, "zeropoint has no such type");
        return ZP_BOOL;
    }
}

// A tensor in somebody else's memory.
struct View : zp_tensor {
    View() : zp_tensor{} {}
    explicit View(const zp_tensor& tensor) : zp_tensor(tensor) {}

    std::int64_t count() const {
        std::int64_t n = 1;
        for (int i = 0; i < rank; ++i) n *= sizes[i];
        return n;
    }
    std::vector<std::int64_t> shape() const { return {sizes, sizes + rank}; }
    // Throws Error if the elements are of another type.
    template <class T>
    T* data() const {
        if (type != type_of<T>()) throw Error(ZP_INVALID_ARGUMENT, "the tensor has elements of another type");
        return static_cast<T*>(zp_tensor::data);
    }
};

// A contiguous tensor over `elements`. Throws Error if their number is not that of the shape.
template <class Elements>
View view(Elements& elements, const std::vector<std::int64_t>& shape) {
    using T = std::remove_reference_t<decltype(*elements.data())>;
    if (shape.size() > ZP_MAX_RANK) throw Error(ZP_INVALID_ARGUMENT, "a tensor has at most 8 axes");
    View made;
    made.zp_tensor::data = const_cast<std::remove_cv_t<T>*>(elements.data());
    made.type = type_of<T>();
    made.rank = static_cast<std::int32_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) made.sizes[i] = shape[i];
    made.bytes = elements.size() * sizeof(T);
    if (made.count() != static_cast<std::int64_t>(elements.size()))
        throw Error(ZP_INVALID_ARGUMENT, "the shape has " + std::to_string(made.count()) + " elements, the memory " +
                                             std::to_string(elements.size()));
    return made;
}

class Program {
public:
    explicit Program(const std::string& path, std::int64_t memory_limit = 0) {
        const zp_options options = {memory_limit, {}};
        zp_program* made = nullptr;
        check(zp_program_load(path.c_str(), &options, &made));
        handle_.reset(made);
    }
    static Program from_memory(const void* data, std::size_t bytes, std::int64_t memory_limit = 0) {
        const zp_options options = {memory_limit, {}};
        zp_program* made = nullptr;
        check(zp_program_load_memory(data, bytes, &options, &made));
        return Program(made);
    }

    std::vector<zp_input> inputs() const {
        std::vector<zp_input> found(zp_program_input_count(handle()));
        for (std::size_t i = 0; i < found.size(); ++i) check(zp_program_input(handle(), i, &found[i]));
        return found;
    }
    std::size_t output_count() const { return zp_program_output_count(handle()); }
    std::string result() const { return zp_program_result(handle()); }
    zp_program* handle() const { return handle_.get(); }

private:
    explicit Program(zp_program* made) : handle_(made) {}

    struct Free {
        void operator()(zp_program* program) const { zp_program_free(program); }
    };
    std::unique_ptr<zp_program, Free> handle_;
};

// One per thread. Outputs belong to it until its next run.
class Session {
public:
    explicit Session(const Program& program) : outputs_(program.output_count()) {
        zp_session* made = nullptr;
        check(zp_session_create(program.handle(), &made));
        handle_.reset(made);
    }

    const std::vector<View>& run(const std::vector<View>& inputs) {
        const std::vector<zp_tensor> given(inputs.begin(), inputs.end());
        std::vector<zp_tensor> made(outputs_.size());
        check(zp_session_run(handle(), given.data(), given.size(), made.data(), made.size()));
        for (std::size_t i = 0; i < made.size(); ++i) outputs_[i] = View(made[i]);
        return outputs_;
    }
    void reset() { check(zp_session_reset(handle())); }
    std::vector<zp_step> profile(const std::vector<View>& inputs) {
        const std::vector<zp_tensor> given(inputs.begin(), inputs.end());
        std::size_t count = 0;
        check(zp_session_profile(handle(), given.data(), given.size(), nullptr, &count));
        std::vector<zp_step> steps(count);
        check(zp_session_profile(handle(), given.data(), given.size(), steps.data(), &count));
        return steps;
    }
    zp_session* handle() const { return handle_.get(); }

private:
    struct Free {
        void operator()(zp_session* session) const { zp_session_free(session); }
    };
    std::unique_ptr<zp_session, Free> handle_;
    std::vector<View> outputs_;
};

}  // namespace zeropoint
