// An execution provider of ONNX Runtime (its plugin interface, 1.23 and later): runs EPContext nodes that hold
// programs.
//
// EPContext is ONNX Runtime's own operator for compiled models. The provider takes the nodes whose source is
// "zeropoint": their ep_cache_context is a program, or the name of a file in the folder of the model (embed_mode 0).
// Everything else is left to other providers. Programs run through the C API, which checks them: files are untrusted.
#include "zeropoint/zeropoint.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <onnxruntime_c_api.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr char kName[] = "ZeropointExecutionProvider";
constexpr char kSource[] = "zeropoint";
constexpr char kThreads[] = "ep.zeropointexecutionprovider.num_threads";  // what ONNX Runtime makes of num_threads

const OrtApi* g_ort = nullptr;  // of the process: every library has one

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Calls `work`; what it throws becomes a status. Nothing is thrown into ONNX Runtime.
template <typename Work>
OrtStatus* guarded(Work work) noexcept {
    try {
        work();
        return nullptr;
    } catch (const std::exception& error) {
        return g_ort->CreateStatus(ORT_FAIL, (std::string("zeropoint: ") + error.what()).c_str());
    } catch (...) {
        return g_ort->CreateStatus(ORT_FAIL, "zeropoint: an unknown error");
    }
}

void check(OrtStatus* status) {
    if (status == nullptr) return;
    const std::string message = g_ort->GetErrorMessage(status);
    g_ort->ReleaseStatus(status);
    throw Refused(message);
}

void check(zp_status status) {
    if (status != ZP_OK) throw Refused(zp_last_error());
}

// ------------------------------------------------------------------------------------------------------------- nodes

const OrtOpAttr* attribute(const OrtNode* node, const char* name) {
    const OrtOpAttr* found = nullptr;
    OrtStatus* status = g_ort->Node_GetAttributeByName(node, name, &found);
    if (status == nullptr) return found;
    g_ort->ReleaseStatus(status);  // there is none of this name
    return nullptr;
}

std::string text(const OrtNode* node, const char* name) {
    const OrtOpAttr* found = attribute(node, name);
    if (found == nullptr) return "";
    size_t bytes = 0;
    OrtStatus* status = g_ort->ReadOpAttr(found, ORT_OP_ATTR_STRING, nullptr, 0, &bytes);
    if (status != nullptr) g_ort->ReleaseStatus(status);  // it says how long the string is
    std::string value(bytes, '\0');
    if (bytes > 0) check(g_ort->ReadOpAttr(found, ORT_OP_ATTR_STRING, value.data(), bytes, &bytes));
    return value;
}

int64_t number(const OrtNode* node, const char* name, int64_t otherwise) {
    const OrtOpAttr* found = attribute(node, name);
    if (found == nullptr) return otherwise;
    int64_t value = 0;
    size_t bytes = 0;
    check(g_ort->ReadOpAttr(found, ORT_OP_ATTR_INT, &value, sizeof value, &bytes));
    return value;
}

bool is_ours(const OrtNode* node) {
    const char *type = nullptr, *domain = nullptr;
    check(g_ort->Node_GetOperatorType(node, &type));
    check(g_ort->Node_GetDomain(node, &domain));
    return std::strcmp(type, "EPContext") == 0 && std::strcmp(domain, "com.microsoft") == 0 &&
           text(node, "source") == kSource;
}

std::vector<const OrtNode*> nodes_of(const OrtGraph* graph) {
    size_t count = 0;
    check(g_ort->Graph_GetNumNodes(graph, &count));
    std::vector<const OrtNode*> nodes(count);
    if (count > 0) check(g_ort->Graph_GetNodes(graph, nodes.data(), count));
    return nodes;
}

std::vector<std::string> names_of(const std::vector<const OrtValueInfo*>& values) {
    std::vector<std::string> names;
    for (const OrtValueInfo* value : values) {
        const char* name = "";
        if (value != nullptr) check(g_ort->GetValueInfoName(value, &name));
        names.emplace_back(name);
    }
    return names;
}

std::vector<std::string> inputs_of(const OrtNode* node) {
    size_t count = 0;
    check(g_ort->Node_GetNumInputs(node, &count));
    std::vector<const OrtValueInfo*> values(count);
    if (count > 0) check(g_ort->Node_GetInputs(node, values.data(), count));
    return names_of(values);
}

std::vector<std::string> outputs_of(const OrtNode* node) {
    size_t count = 0;
    check(g_ort->Node_GetNumOutputs(node, &count));
    std::vector<const OrtValueInfo*> values(count);
    if (count > 0) check(g_ort->Node_GetOutputs(node, values.data(), count));
    return names_of(values);
}

constexpr size_t kNowhere = static_cast<size_t>(-1);

// Where each of the names is in others; nowhere if it is not.
std::vector<size_t> places(const std::vector<std::string>& names, const std::vector<std::string>& others) {
    std::vector<size_t> found;
    for (const std::string& name : names) {
        size_t at = kNowhere;
        for (size_t i = 0; i < others.size() && at == kNowhere && !name.empty(); ++i)
            if (others[i] == name) at = i;
        found.push_back(at);
    }
    return found;
}

// ---------------------------------------------------------------------------------------------------------- programs

int32_t type_of(ONNXTensorElementDataType type) {
    switch (type) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return ZP_UINT8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: return ZP_INT8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: return ZP_INT16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return ZP_INT32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return ZP_INT64;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return ZP_FLOAT32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return ZP_FLOAT16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return ZP_BOOL;
        default: throw Refused("no program takes or gives tensors of ONNX type " + std::to_string(type));
    }
}

struct Info {
    explicit Info(const OrtValue* value) { check(g_ort->GetTensorTypeAndShape(value, &info)); }
    ~Info() { g_ort->ReleaseTensorTypeAndShapeInfo(info); }
    Info(const Info&) = delete;
    Info& operator=(const Info&) = delete;

    int32_t type() const {
        ONNXTensorElementDataType found = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        check(g_ort->GetTensorElementType(info, &found));
        return type_of(found);
    }

    OrtTensorTypeAndShapeInfo* info = nullptr;
};

zp_tensor view(const OrtValue* value, size_t index) {
    const std::string what = "input " + std::to_string(index);
    if (value == nullptr) throw Refused(what + " is missing");
    const Info info(value);
    zp_tensor made{};
    size_t rank = 0;
    check(g_ort->GetDimensionsCount(info.info, &rank));
    if (rank > ZP_MAX_RANK) throw Refused(what + " has " + std::to_string(rank) + " axes");
    made.type = info.type();
    made.rank = static_cast<int32_t>(rank);
    check(g_ort->GetDimensions(info.info, made.sizes, rank));
    int64_t stride = 1;
    for (size_t axis = rank; axis-- > 0; stride *= made.sizes[axis]) made.strides[axis] = stride;
    const void* data = nullptr;
    check(g_ort->GetTensorData(value, &data));
    made.data = const_cast<void*>(data);  // inputs are read only
    check(g_ort->GetTensorSizeInBytes(value, &made.bytes));
    return made;
}

bool is_contiguous(const zp_tensor& tensor) {
    int64_t stride = 1;
    for (int32_t axis = tensor.rank; axis-- > 0; stride *= tensor.sizes[axis])
        if (tensor.sizes[axis] != 1 && tensor.strides[axis] != stride) return false;
    return true;
}

// The elements of a tensor in the order of its axes, from `axis` on; where the next one goes.
char* copy(const zp_tensor& from, int32_t axis, const char* at, size_t element, char* to) {
    if (axis == from.rank) {
        std::memcpy(to, at, element);
        return to + element;
    }
    const int64_t step = from.strides[axis] * static_cast<int64_t>(element);
    for (int64_t i = 0; i < from.sizes[axis]; ++i) to = copy(from, axis + 1, at + i * step, element, to);
    return to;
}

size_t elements(const zp_tensor& tensor) {
    size_t count = 1;
    for (int32_t axis = 0; axis < tensor.rank; ++axis) count *= static_cast<size_t>(tensor.sizes[axis]);
    return count;
}

// What runs a node. ONNX Runtime may run a session from several threads: each run takes a session of zeropoint of its
// own. It calls a node of its own, `fused`, which has the inputs in another order, and no outputs that nothing reads.
class Compiled {
public:
    Compiled(const OrtNode* node, const OrtNode* fused, const OrtGraph* graph)
        : inputs_(places(inputs_of(node), inputs_of(fused))),
          outputs_(places(outputs_of(node), outputs_of(fused))) {
        const std::string context = text(node, "ep_cache_context");
        zp_program* made = nullptr;
        if (number(node, "embed_mode", 1) == 1)
            check(zp_program_load_memory(context.data(), context.size(), nullptr, &made));
        else
            check(zp_program_load(beside(graph, context).c_str(), nullptr, &made));
        program_.reset(made);
        require(inputs_.size(), zp_program_input_count(made), "inputs");
        require(outputs_.size(), zp_program_output_count(made), "outputs");
    }

    void run(OrtKernelContext* context) {
        const Lease lease(*this);
        std::vector<zp_tensor> inputs(zp_program_input_count(program_.get()));
        for (size_t i = 0; i < inputs.size(); ++i) {
            const OrtValue* value = nullptr;
            if (inputs_[i] != kNowhere) check(g_ort->KernelContext_GetInput(context, inputs_[i], &value));
            inputs[i] = view(value, i);
        }
        std::vector<zp_tensor> outputs(zp_program_output_count(program_.get()));
        zp_session* session = lease.session.get();
        check(zp_session_describe_outputs(session, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
        std::vector<void*> targets(outputs.size());
        for (size_t i = 0; i < outputs.size(); ++i)
            if (outputs_[i] != kNowhere)
                targets[i] = place(context, outputs_[i], outputs[i]);
            else
                outputs[i].data = nullptr;  // memory of the session
        check(zp_session_run(session, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
        for (size_t i = 0; i < outputs.size(); ++i) {
            const zp_tensor& made = outputs[i];
            if (targets[i] == nullptr || made.data == targets[i] || made.bytes == 0) continue;
            copy(made, 0, static_cast<const char*>(made.data), made.bytes / elements(made),
                 static_cast<char*>(targets[i]));
        }
    }

private:
    struct FreeProgram {
        void operator()(zp_program* program) const { zp_program_free(program); }
    };
    struct FreeSession {
        void operator()(zp_session* session) const { zp_session_free(session); }
    };
    using Session = std::unique_ptr<zp_session, FreeSession>;

    struct Lease {
        explicit Lease(Compiled& from) : owner(from), session(from.take()) {}
        ~Lease() { owner.give_back(std::move(session)); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;

        Compiled& owner;
        mutable Session session;
    };

    // Memory of ONNX Runtime for an output. Results in another order of axes are made in the session's memory, and
    // copied.
    static void* place(OrtKernelContext* context, size_t index, zp_tensor& output) {
        OrtValue* value = nullptr;
        check(g_ort->KernelContext_GetOutput(context, index, output.sizes, static_cast<size_t>(output.rank), &value));
        if (value == nullptr) throw Refused("output " + std::to_string(index) + " is missing");
        const int32_t wanted = Info(value).type();
        if (wanted != output.type)
            throw Refused("output " + std::to_string(index) + " of the program has type " +
                          std::to_string(output.type) + ", that of the model " + std::to_string(wanted));
        void* data = nullptr;
        check(g_ort->GetTensorMutableData(value, &data));
        output.data = is_contiguous(output) ? data : nullptr;
        return data;
    }

    static void require(size_t found, size_t wanted, const char* what) {
        if (found != wanted)
            throw Refused("the node has " + std::to_string(found) + " " + what + ", its program " +
                          std::to_string(wanted));
    }

    static std::string beside(const OrtGraph* graph, const std::string& name) {
        if (name.empty() || name.find('/') != std::string::npos || name.find('\\') != std::string::npos)
            throw Refused("ep_cache_context must be the name of a file in the folder of the model");
        const ORTCHAR_T* model = nullptr;
        check(g_ort->Graph_GetModelPath(graph, &model));
        const std::string path = model == nullptr ? "" : model;
        if (path.empty()) throw Refused("a model in memory has no folder: write its program into it (embed_mode 1)");
        const size_t slash = path.rfind('/');
        return (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + name;
    }

    Session take() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!idle_.empty()) {
                Session session = std::move(idle_.back());
                idle_.pop_back();
                return session;
            }
        }
        zp_session* made = nullptr;
        check(zp_session_create(program_.get(), &made));
        return Session(made);
    }

    void give_back(Session session) noexcept {
        try {
            const std::lock_guard<std::mutex> lock(mutex_);
            idle_.push_back(std::move(session));
        } catch (...) {  // it is freed
        }
    }

    std::vector<size_t> inputs_, outputs_;  // of the program, in the call
    std::unique_ptr<zp_program, FreeProgram> program_;
    std::mutex mutex_;
    std::vector<Session> idle_;
};

struct ComputeInfo : OrtNodeComputeInfo {
    ComputeInfo(const OrtNode* node, const OrtNode* fused, const OrtGraph* graph)
        : OrtNodeComputeInfo{},
          compiled(node, fused, graph) {
        ort_version_supported = ORT_API_VERSION;
        CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) noexcept -> OrtStatus* {
            *state = &static_cast<ComputeInfo*>(self)->compiled;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) noexcept {
            return guarded([&] { static_cast<Compiled*>(state)->run(context); });
        };
        ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept {};
    }

    Compiled compiled;
};

// ---------------------------------------------------------------------------------------------------------- provider

struct Provider : OrtEp {
    Provider() : OrtEp{} {
        ort_version_supported = ORT_API_VERSION;
        GetName = [](const OrtEp*) noexcept { return kName; };
        GetCapability = [](OrtEp*, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept {
            return guarded([&] {
                for (const OrtNode* node : nodes_of(graph))
                    if (is_ours(node))
                        check(g_ort->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, nullptr));
            });
        };
        Compile = [](OrtEp*, const OrtGraph** graphs, const OrtNode** fused, size_t count, OrtNodeComputeInfo** infos,
                     OrtNode**) noexcept {
            return guarded([&] {
                for (size_t i = 0; i < count; ++i)
                    infos[i] = new ComputeInfo(nodes_of(graphs[i]).at(0), fused[i], graphs[i]);
            });
        };
        ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, size_t count) noexcept {
            for (size_t i = 0; i < count; ++i) delete static_cast<ComputeInfo*>(infos[i]);
        };
    }
};

void set_threads(const OrtSessionOptions* options) {
    int has_entry = 0;
    check(g_ort->HasSessionConfigEntry(options, kThreads, &has_entry));
    if (has_entry == 0) return;
    char value[32] = {};
    size_t bytes = sizeof value;
    check(g_ort->GetSessionConfigEntry(options, kThreads, value, &bytes));
    check(zp_set_num_threads(std::stoi(value)));
}

struct Factory : OrtEpFactory {
    Factory() : OrtEpFactory{} {
        ort_version_supported = ORT_API_VERSION;
        GetName = [](const OrtEpFactory*) noexcept { return kName; };
        GetVendor = [](const OrtEpFactory*) noexcept { return kSource; };
        GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
        GetVersion = [](const OrtEpFactory*) noexcept { return zp_version(); };
        GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                                 OrtEpDevice** found, size_t most, size_t* made) noexcept {
            *made = 0;
            return guarded([&] {
                for (size_t i = 0; i < count && *made < most; ++i)
                    if (g_ort->HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) {
                        check(g_ort->GetEpApi()->CreateEpDevice(self, devices[i], nullptr, nullptr, &found[*made]));
                        ++*made;
                    }
            });
        };
        CreateEp = [](OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                      const OrtSessionOptions* options, const OrtLogger*, OrtEp** made) noexcept {
            return guarded([&] {
                set_threads(options);
                *made = new Provider();
            });
        };
        ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept { delete static_cast<Provider*>(provider); };
        CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                             OrtAllocator** allocator) noexcept -> OrtStatus* {
            *allocator = nullptr;  // tensors are in the memory of ONNX Runtime's CPU provider
            return nullptr;
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
        CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
            *transfer = nullptr;
            return nullptr;
        };
        IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
    }
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                                                    const OrtLogger*, OrtEpFactory** factories,
                                                                    size_t most, size_t* count) {
    g_ort = base->GetApi(ORT_API_VERSION);
    *count = 0;
    if (g_ort == nullptr) return base->GetApi(1)->CreateStatus(ORT_FAIL, "zeropoint: ONNX Runtime is too old");
    if (most < 1) return g_ort->CreateStatus(ORT_INVALID_ARGUMENT, "zeropoint: there is no room for a factory");
    return guarded([&] {
        factories[0] = new Factory();
        *count = 1;
    });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
    delete static_cast<Factory*>(factory);
    return nullptr;
}
}
