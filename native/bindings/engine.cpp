// Programs for Python. Arrays come in through the buffer protocol or DLPack, so that numpy is all that is needed. Those
// of libraries that have an exchange table (PyTorch) are read through it: see bindings/dlpack.h.
#include "engine/program.h"

#include "bindings/bindings.h"
#include "bindings/dlpack.h"
#include "engine/copy.h"
#include "kernels/registry.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>

namespace zeropoint {
namespace {

// The memory of a Python object while it is used.
class View {
public:
    View() = default;
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() {
        if (buffer.obj != nullptr) PyBuffer_Release(&buffer);
    }
    bool open(PyObject* object, int flags) {
        if (PyObject_GetBuffer(object, &buffer, flags) == 0) return true;
        PyErr_Clear();
        return false;
    }
    Py_buffer buffer{};
};

bool has_type(const Py_buffer& buffer, ElementType type) {
    const char* format = buffer.format == nullptr ? "B" : buffer.format;
    if (*format == '=' || *format == '@' || *format == '<') ++format;
    if (buffer.itemsize != bytes_of(type) || std::strlen(format) != 1) return false;
    switch (type) {
        case ElementType::u8: return *format == 'B';
        case ElementType::s8: return *format == 'b';
        case ElementType::f32: return *format == 'f';
        case ElementType::f16: return *format == 'e';
        case ElementType::boolean: return *format == '?';
        default: return std::strchr("hilq", *format) != nullptr;
    }
}

// The layout of an array, if steps can read it where it is.
bool layout_of(const Py_buffer& buffer, InputLayout& layout) {
    Tensor x;
    x.sizes.assign(buffer.shape, buffer.shape + buffer.ndim);
    layout.sizes = x.sizes;
    layout.channels_last = false;
    if (reinterpret_cast<uintptr_t>(buffer.buf) % static_cast<uintptr_t>(buffer.itemsize) != 0) return false;
    for (int i = 0; i < buffer.ndim; ++i) {
        if (buffer.shape[i] > 1 && buffer.strides[i] % buffer.itemsize != 0) return false;
        x.strides.push_back(buffer.strides[i] / buffer.itemsize);
    }
    if (x.is_contiguous()) return true;
    return layout.channels_last = x.is_channels_last();
}

struct Numpy {
    nb::object array, empty, copied, from_dlpack;
    std::vector<nb::object> types;  // by ElementType

    Numpy() {
        const nb::module_ numpy = nb::module_::import_("numpy");
        array = numpy.attr("ndarray");
        empty = numpy.attr("empty");
        copied = numpy.attr("array");  // contiguous and aligned
        from_dlpack = numpy.attr("from_dlpack");
        for (int i = 0; i <= static_cast<int>(ElementType::boolean); ++i)
            types.push_back(numpy.attr("dtype")(name_of(static_cast<ElementType>(i))));
    }
    static Numpy& get() {
        static Numpy* numpy = new Numpy;  // never destroyed: the interpreter may be gone by then
        return *numpy;
    }
    nb::object make(const Tensor& y) {
        const std::vector<int64_t> order = y.is_contiguous() ? std::vector<int64_t>{} : y.memory_order();
        nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(y.sizes.size())));
        for (size_t i = 0; i < y.sizes.size(); ++i) {
            const size_t axis = order.empty() ? i : static_cast<size_t>(order[i]);
            PyTuple_SetItem(shape.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(y.sizes[axis]));
        }
        nb::object made = empty(shape, types[static_cast<size_t>(y.type)]);
        if (order.empty()) return made;
        std::vector<int64_t> back(order.size());
        for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
        return made.attr("transpose")(nb::cast(back));
    }
};

// A step that Python computes: an object with the methods plan and run. Tensors cross as (dtype, sizes, strides), and
// with their address in front where they have one.
class PythonStep : public Foreign {
public:
    using Described = std::tuple<std::string, Sizes, Sizes>;

    explicit PythonStep(nb::object object) : object_(std::move(object)) {}
    ~PythonStep() override {
        Locked acquire;
        object_.reset();
    }
    std::vector<Tensor> plan(const std::vector<Tensor>& inputs, const std::vector<int64_t>& numbers) override {
        Locked acquire;
        nb::list given;
        for (const Tensor& x : inputs) given.append(nb::make_tuple(name_of(x.type), x.sizes, x.strides));
        std::vector<Tensor> made;
        for (const auto& [type, sizes, strides] :
             nb::cast<std::vector<Described>>(object_.attr("plan")(given, numbers)))
            made.push_back({type_from_name(type), sizes, strides, {}});
        return made;
    }
    void run(const std::vector<Tensor>& inputs, const std::vector<int64_t>& numbers, const std::vector<Tensor>& outputs,
             void* const* at) override {
        Locked acquire;
        const auto list = [&](const std::vector<Tensor>& tensors) {
            nb::list made;
            for (const Tensor& t : tensors)
                made.append(nb::make_tuple(reinterpret_cast<Address>(*at++), name_of(t.type), t.sizes, t.strides));
            return made;
        };
        const nb::list given = list(inputs);
        object_.attr("run")(given, numbers, list(outputs));
    }

private:
    nb::object object_;
};

struct Call {
    std::vector<nb::object> kept;
    std::vector<std::unique_ptr<uint8_t[]>> copies;
    std::unique_ptr<View[]> views;
    std::vector<InputLayout> layouts;
    std::vector<const void*> inputs;
    std::vector<std::function<void()>> to_copy;  // inputs that steps cannot read where they are
    std::vector<nb::object> results;
    std::vector<void*> outputs;
    std::shared_ptr<const Plan> plan;
};

[[noreturn]] void refuse(const ProgramInput& input, const std::string& what) {
    throw nb::type_error(
        ("input '" + input.name + "' must be an array of " + name_of(input.type) + ", got " + what).c_str());
}

// Does what PyTorch's tensors only note, before anybody looks at their memory: parameters become plain tensors, and
// signs that are to be changed are changed. Other arrays have no such methods.
void settle(nb::object& array, Call& call) {
    const auto replace = [&](const char* method) {
        array = array.attr(method)();
        call.kept.push_back(array);
    };
    if (exchange_of(Py_TYPE(array.ptr())) == nullptr && nb::hasattr(array, "detach")) replace("detach");
    static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
    const nb::object changed = nb::steal(PyObject_CallMethodObjArgs(array.ptr(), is_neg, nullptr));
    if (!changed.is_valid()) PyErr_Clear();
    if (changed.is(nb::handle(Py_True))) replace("resolve_neg");
}

// An array that has neither a buffer nor an exchange table as one of numpy's. Subclasses of tensors may have no memory:
// they say what they are as an array, or why they cannot.
nb::object as_numpy(const nb::object& array, const ProgramInput& input) {
    if (nb::hasattr(array.type(), kExchangeAttribute)) return array.attr("numpy")();
    if (!nb::hasattr(array, "__dlpack__")) return array;
    try {
        return Numpy::get().from_dlpack(array);
    } catch (const nb::python_error& error) {
        if (error.matches(PyExc_TypeError)) throw;
        const nb::object reason = nb::str(error.value());
        refuse(input, std::string("one whose memory cannot be read: ") + nb::cast<std::string>(reason));
    }
}

void read_exchanged(const Exchange& exchange, const nb::object& array, const ProgramInput& input, InputLayout& layout,
                    const void*& address, Call& call) {
    ExchangedTensor seen{};
    if (exchange.look(array.ptr(), &seen) != 0) {
        PyErr_Clear();
        refuse(input, "one whose memory cannot be read");
    }
    if (!seen.is_on_cpu()) refuse(input, "one on another device");
    if (!seen.has_type(input.type)) {
        const nb::object type = array.attr("dtype");
        refuse(input, nb::str(type).c_str());
    }
    Tensor x{input.type, {seen.sizes, seen.sizes + seen.axes}, {seen.strides, seen.strides + seen.axes}, {}};
    address = static_cast<const uint8_t*>(seen.data) + seen.offset;
    layout.sizes = x.sizes;
    const bool aligned = reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes_of(input.type)) == 0;
    if (!aligned) refuse(input, "memory that is not on a boundary of its elements");
    layout.channels_last = !x.is_contiguous() && x.is_channels_last();
    if (x.is_contiguous() || layout.channels_last) return;
    call.to_copy.emplace_back([x, &address, &call] {
        Tensor copied = x;
        copied.strides = contiguous_strides(x.sizes);
        call.copies.emplace_back(new uint8_t[static_cast<size_t>(x.bytes())]);
        StridedCopy(x, copied).run(address, call.copies.back().get());
        address = call.copies.back().get();
    });
}

void read_inputs(Program& program, nb::handle given, Call& call) {
    const size_t count = program.inputs().size();
    if (nb::len(given) != count)
        throw nb::type_error(
            ("the program takes " + std::to_string(count) + " inputs, got " + std::to_string(nb::len(given))).c_str());
    call.views.reset(new View[count]);
    call.layouts.resize(count);
    call.inputs.resize(count);
    for (size_t i = 0; i < count; ++i) {
        const ProgramInput& input = program.inputs()[i];
        nb::object array = given[i];
        View& view = call.views[i];
        if (!PyObject_CheckBuffer(array.ptr())) {
            settle(array, call);
            if (const Exchange* exchange = exchange_of(Py_TYPE(array.ptr()))) {
                read_exchanged(*exchange, array, input, call.layouts[i], call.inputs[i], call);
                continue;
            }
            array = as_numpy(array, input);
            call.kept.push_back(array);
        }
        if (!array.type().is(Numpy::get().array) && nb::hasattr(array.type(), "mask"))
            refuse(input, "a masked array: give what is to be read in masked places, with its method filled(value)");
        if (!view.open(array.ptr(), PyBUF_FORMAT | PyBUF_STRIDES)) refuse(input, nb::type_name(array.type()).c_str());
        if (!has_type(view.buffer, input.type))
            refuse(input, std::string("elements of ") + std::to_string(view.buffer.itemsize) + " bytes in format '" +
                              (view.buffer.format == nullptr ? "B" : view.buffer.format) + "'");
        call.inputs[i] = view.buffer.buf;
        if (layout_of(view.buffer, call.layouts[i])) continue;
        call.to_copy.emplace_back([array, &call, &view, &input, i] {
            call.kept.push_back(Numpy::get().copied(array, nb::arg("order") = "C"));
            PyBuffer_Release(&view.buffer);
            view.buffer.obj = nullptr;
            if (!view.open(call.kept.back().ptr(), PyBUF_FORMAT | PyBUF_STRIDES) ||
                !layout_of(view.buffer, call.layouts[i]) || call.layouts[i].channels_last)
                refuse(input, "memory that cannot be copied");
            call.inputs[i] = view.buffer.buf;
        });
    }
}

void begin(Program& program, nb::handle given, Call& call) {
    read_inputs(program, given, call);
    {
        Unlocked release;
        call.plan = program.plan(call.layouts);
    }
    for (const auto& copy : call.to_copy) copy();  // of sizes that fit
    for (const Tensor& y : call.plan->outputs) {
        call.results.push_back(Numpy::get().make(y));
        View view;
        if (!view.open(call.results.back().ptr(), PyBUF_STRIDES | PyBUF_WRITABLE)) nb::raise("no memory for a result");
        call.outputs.push_back(view.buffer.buf);
    }
}

nb::object results_of(const Call& call) {
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(call.results.size())));
    for (size_t i = 0; i < call.results.size(); ++i)
        PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), nb::object(call.results[i]).release().ptr());
    return list;
}

bool any_instance(nb::handle given, nb::handle class_) {
    for (const nb::handle array : given)
        if (PyType_IsSubtype(Py_TYPE(array.ptr()), reinterpret_cast<PyTypeObject*>(class_.ptr())) != 0) return true;
    return false;
}

// With an input of the class `tensor`, results are what `wrap` makes of numpy's arrays. Without a state it has a new
// one.
nb::object run(Program& program, nb::handle given, nb::handle tensor, nb::handle wrap, State* state) {
    Call call;
    begin(program, given, call);
    std::unique_ptr<State> made;
    if (state == nullptr) state = (made = std::make_unique<State>(program.state())).get();
    {
        Unlocked release;
        program.run(*call.plan, call.inputs.data(), call.outputs.data(), *state);
    }
    if (!tensor.is_none() && any_instance(given, tensor))
        for (nb::object& result : call.results) {
            result = nb::steal(PyObject_CallFunctionObjArgs(wrap.ptr(), result.ptr(), nullptr));
            if (!result.is_valid()) nb::raise_python_error();
        }
    return results_of(call);
}

std::vector<InputLayout> layouts_of(const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<InputLayout> layouts;
    for (const auto& shape : shapes) layouts.push_back({shape, false});
    return layouts;
}

// (op, name of its first output, number of the step, seconds, multiplications, kernel, its instruction set, types of
// the first input and output, sizes of the output, bytes of what is stored, of the other inputs and of the outputs)
nb::tuple profile_row(const Program& program, const Plan& plan, const Instruction& instruction, double seconds) {
    if (instruction.step < 0) return nb::make_tuple("copy", "", -1, seconds, 0.0, "", "", "", "", nb::tuple(), 0, 0, 0);
    const auto step = static_cast<size_t>(instruction.step);
    const StepNote& note = program.notes()[step];
    const Shown& shown = plan.shown[step];
    const bool has_kernel = shown.kernel != nullptr;
    nb::list sizes;
    for (const int64_t n : shown.sizes) sizes.append(n);
    return nb::make_tuple(note.op, note.name, instruction.step, seconds, instruction.macs,
                          has_kernel ? shown.kernel : "",
                          has_kernel ? isa_name(selected_isa(shown.kernel, active_isa())) : "", name_of(shown.from),
                          name_of(shown.to), nb::tuple(sizes), shown.stored, shown.read, shown.written);
}

}  // namespace

void bind_engine(nb::module_& m) {
    nb::exception<FormatError>(m, "FormatError", PyExc_ValueError);
    m.def("engine_steps", [] { return step_table().names(); }, "The kinds of steps that programs may have.");
    nb::class_<State>(m, "State", "What a program keeps from call to call.")
        .def("reset", &State::reset)
        .def("values",
             [](State& self) {
                 nb::list out;
                 for (const std::string& bytes : self.values()) out.append(nb::bytes(bytes.data(), bytes.size()));
                 return out;
             })
        .def("part",
             [](State& self, size_t tensor, int64_t offset, int64_t bytes) {
                 const std::string found = self.part(tensor, offset, bytes);
                 return nb::bytes(found.data(), found.size());
             })
        .def("set_part", [](State& self, size_t tensor, int64_t offset,
                            const nb::bytes& bytes) { self.set_part(tensor, offset, {bytes.c_str(), bytes.size()}); })
        .def("set_values", [](State& self, const std::vector<nb::bytes>& values) {
            std::vector<std::string_view> given;
            for (const nb::bytes& bytes : values) given.emplace_back(bytes.c_str(), bytes.size());
            self.set_values(given);
        });
    nb::class_<Program>(m, "Program", "A quantized model as a list of steps, checked and ready to run.")
        .def(
            "__init__",
            [](Program* self, nb::bytes data, int64_t memory_limit, const std::vector<nb::object>& foreign) {
                std::vector<std::shared_ptr<Foreign>> steps;
                for (const nb::object& object : foreign) steps.push_back(std::make_shared<PythonStep>(object));
                new (self) Program(Container(std::string_view(data.c_str(), data.size())), memory_limit, steps);
            },
            nb::arg("data"), nb::arg("memory_limit") = kDefaultMemoryLimit,
            nb::arg("foreign") = std::vector<nb::object>())
        .def_static(
            "read",
            [](const std::string& path, int64_t memory_limit, bool in_place) {
                try {
                    Unlocked release;
                    const Container::Chosen mapped = in_place ? tensors_in_place : Container::Chosen();
                    return Program::of_stranger(Container::read(path, mapped), memory_limit).release();
                } catch (const std::system_error& error) {
                    errno = error.code().default_error_condition().value();  // Windows numbers its errors otherwise
                    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
                    throw nb::python_error();
                }
            },
            nb::arg("path"), nb::arg("memory_limit") = kDefaultMemoryLimit, nb::arg("in_place") = true,
            nb::rv_policy::take_ownership)
        .def_prop_ro("inputs",
                     [](const Program& self) {
                         std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> out;
                         for (const ProgramInput& input : self.inputs())
                             out.emplace_back(input.name, name_of(input.type), input.axes);
                         return out;
                     })
        .def_prop_ro("result", &Program::result)
        .def_prop_ro("arguments", &Program::arguments)
        .def_prop_ro("file_bytes", &Program::file_bytes)
        .def_prop_ro("memory_limit", &Program::memory_limit)
        .def("outputs",
             [](Program& self, const std::vector<std::vector<int64_t>>& shapes) {
                 std::shared_ptr<const Plan> plan;
                 {
                     Unlocked release;
                     plan = self.plan(layouts_of(shapes));
                 }
                 const std::vector<std::string> names = self.output_names();
                 std::vector<std::tuple<std::string, std::string, Sizes>> out;
                 for (size_t i = 0; i < names.size(); ++i)
                     out.emplace_back(names[i], name_of(plan->outputs[i].type), plan->outputs[i].sizes);
                 return out;
             })
        .def_prop_ro("steps", [](const Program& self) { return self.notes().size(); })
        .def("data",
             [](Program& self) {
                 const std::string bytes = self.data();
                 return nb::bytes(bytes.data(), bytes.size());
             })
        .def_prop_ro("state",
                     [](const Program& self) {
                         std::vector<std::tuple<std::string, std::string, Sizes>> out;
                         for (const StateTensor& tensor : self.state())
                             out.emplace_back(tensor.name, name_of(tensor.type), tensor.sizes);
                         return out;
                     })
        .def(
            "new_state", [](const Program& self) { return new State(self.state()); }, nb::keep_alive<0, 1>(),
            nb::rv_policy::take_ownership)
        .def("run", &run, nb::arg("inputs"), nb::arg("tensor").none() = nb::none(), nb::arg("wrap").none() = nb::none(),
             nb::arg("state").none() = nb::none())
        .def("memory",
             [](Program& self, const std::vector<std::vector<int64_t>>& shapes) {
                 Unlocked release;
                 const auto plan = self.plan(layouts_of(shapes));
                 return std::pair(plan->arena_bytes, plan->value_bytes);
             })
        .def("layout",
             [](Program& self, const std::vector<std::vector<int64_t>>& shapes) {
                 std::shared_ptr<const Plan> plan;
                 {
                     Unlocked release;
                     plan = self.plan(layouts_of(shapes));
                 }
                 nb::list steps, instructions, buffers;
                 for (const Shown& shown : plan->shown) {
                     const bool has_kernel = shown.kernel != nullptr;
                     const char* isa = has_kernel ? isa_name(selected_isa(shown.kernel, active_isa())) : "";
                     steps.append(nb::make_tuple(has_kernel ? shown.kernel : "", isa, name_of(shown.from),
                                                 name_of(shown.to), shown.sizes, shown.stored, shown.read,
                                                 shown.written));
                 }
                 for (const Instruction& instruction : plan->instructions)
                     instructions.append(nb::make_tuple(instruction.step, instruction.macs));
                 for (const Buffer& b : plan->buffers)
                     if (b.kind == BufferKind::arena && b.first >= 0 && b.run < 0)
                         buffers.append(nb::make_tuple(b.offset, b.bytes, b.first, b.last));
                 return nb::make_tuple(steps, instructions, buffers);
             })
        .def("example_shapes",
             [](const Program& self) {
                 std::vector<std::vector<int64_t>> shapes;
                 for (const ProgramInput& input : self.inputs()) shapes.push_back(input.example);
                 return shapes;
             })
        .def("profile", [](Program& self, nb::handle given) {
            State state(self.state());
            Call call;
            begin(self, given, call);
            std::vector<double> seconds(call.plan->instructions.size());
            {
                Unlocked release;
                self.run(*call.plan, call.inputs.data(), call.outputs.data(), state, seconds.data());
            }
            nb::list rows;
            for (size_t i = 0; i < seconds.size(); ++i)
                rows.append(profile_row(self, *call.plan, call.plan->instructions[i], seconds[i]));
            return rows;
        });
}

}  // namespace zeropoint
