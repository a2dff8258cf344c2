// program_cover: program files that libFuzzer chooses by the branches they reach, built with ZEROPOINT_FUZZER.
// scripts/cover.sh runs it. ZEROPOINT_FUZZ_SEEDS names the folder whose programs changes are taken from,
// ZEROPOINT_FUZZ_LAYER how far files are taken: "container" (reader and JSON), "plan" (loaded and planned) or "run".
// What does less is quicker: each layer has its own share of the time.
#include "check/fuzz/fitting.h"
#include "check/fuzz/mutate.h"
#include "check/fuzz/trial.h"
#include "cpu/threads.h"
#include "engine/tensor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <unordered_map>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace zeropoint::check {
namespace {

struct Seen {
    int64_t files = 0, reached[5] = {};
    double longest_load = 0, longest_run = 0;
    int64_t load_peak = 0, run_peak = 0, load_share = 0;
};

enum class Layer { container, plan, run };

Seen g_seen;
Layer g_layer = Layer::run;
std::unique_ptr<Mutator> g_mutator;

void report() {
    const Seen& s = g_seen;
    std::fprintf(stderr,
                 "cover: files %lld container %lld program %lld unplanned %lld large %lld ran %lld load_ms %.1f "
                 "run_ms %.1f load_bytes %lld load_share %lld run_bytes %lld\n",
                 static_cast<long long>(s.files), static_cast<long long>(s.reached[0]),
                 static_cast<long long>(s.reached[1]), static_cast<long long>(s.reached[2]),
                 static_cast<long long>(s.reached[3]), static_cast<long long>(s.reached[4]), s.longest_load * 1e3,
                 s.longest_run * 1e3, static_cast<long long>(s.load_peak), static_cast<long long>(s.load_share),
                 static_cast<long long>(s.run_peak));
}

void begin() {
    const char* folder = std::getenv("ZEROPOINT_FUZZ_SEEDS");
    const char* layer = std::getenv("ZEROPOINT_FUZZ_LAYER");
    const std::string name = layer == nullptr ? "run" : layer;
    if (folder == nullptr || (name != "container" && name != "plan" && name != "run")) {
        std::fprintf(stderr, "program_cover: ZEROPOINT_FUZZ_SEEDS must name a folder of programs, and "
                             "ZEROPOINT_FUZZ_LAYER be container, plan or run\n");
        std::exit(2);
    }
    g_layer = name == "container" ? Layer::container : name == "plan" ? Layer::plan : Layer::run;
    std::vector<std::string> paths, files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".zpt") paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
        std::ifstream file(path, std::ios::binary);
        files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    g_mutator = std::make_unique<Mutator>(std::move(files));
    set_num_threads(1);
    std::atexit(report);
}

uint64_t hash_of(std::string_view file) {  // FNV-1a: what is tried depends on the file alone
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : file) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
    return hash;
}

// Whether changes of it are worth trying: of a file that is refused, most are refused for the same reason, so that few
// of these are kept.
bool try_one(std::string_view file) {
    Bounds bounds;
    bounds.macs = g_layer == Layer::run ? 2e6 : -1;  // more files instead of longer runs
    const uint64_t hash = hash_of(file);
    const Trial trial =
        g_layer == Layer::container ? try_container(file, bounds) : try_file(file, hash, bounds, [](int) {});
    if (!trial.wrong.empty()) {
        std::fprintf(stderr, "program_cover: WRONG: %s\n", trial.wrong.c_str());
        std::abort();
    }
    Seen& s = g_seen;
    ++s.files;
    ++s.reached[static_cast<size_t>(trial.stage)];
    s.longest_load = std::max(s.longest_load, trial.load_seconds);
    s.longest_run = std::max(s.longest_run, trial.run_seconds);
    s.load_peak = std::max(s.load_peak, trial.load_peak);
    s.run_peak = std::max(s.run_peak, trial.run_peak);
    s.load_share = std::max(s.load_share, trial.load_peak / std::max<int64_t>(1, static_cast<int64_t>(file.size())));
    return g_layer == Layer::container || trial.stage > Stage::program ||
           hash % (trial.stage == Stage::program ? 32 : 256) == 0;
}

std::optional<FileParts> parts_of(std::string_view file) {
    try {
        return FileParts(file);
    } catch (const FormatError&) {
        return std::nullopt;
    }
}

// The parts of a file that is changed again and again.
const std::optional<FileParts>& remembered_parts(std::string_view file) {
    constexpr size_t kMost = 4096;
    static std::unordered_map<size_t, std::optional<FileParts>> seen;
    const size_t hash = std::hash<std::string_view>()(file);
    if (const auto found = seen.find(hash); found != seen.end()) return found->second;
    if (seen.size() == kMost) seen.clear();
    return seen.emplace(hash, parts_of(file)).first->second;
}

// The header, by libFuzzer's own changes; its length is set to what it has become, for the most part.
size_t change_header(uint8_t* data, size_t size, size_t most, Random& random) {
    constexpr size_t kLength = 8;
    if (size < kLength || size >= most || random.one_in(8)) return LLVMFuzzerMutate(data, size, most);
    uint64_t length = 0;
    std::memcpy(&length, data, kLength);
    length = std::min<uint64_t>(length, size - kLength);
    const std::string rest(reinterpret_cast<const char*>(data) + kLength + length, size - kLength - length);
    length = LLVMFuzzerMutate(data + kLength, length, most - kLength - rest.size());
    std::memcpy(data, &length, kLength);
    if (!rest.empty()) std::memcpy(data + kLength + length, rest.data(), rest.size());
    return kLength + length + rest.size();
}

size_t put(const std::string& file, uint8_t* to, size_t most) {
    if (file.size() > most) return 0;
    std::memcpy(to, file.data(), file.size());
    return file.size();
}

}  // namespace
}  // namespace zeropoint::check

using namespace zeropoint::check;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    begin();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    return try_one({reinterpret_cast<const char*>(data), size}) ? 0 : -1;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
    Random random(seed, 3);
    if (g_layer == Layer::container && !random.one_in(10)) return change_header(data, size, most, random);
    const std::optional<FileParts>& parts = remembered_parts({reinterpret_cast<const char*>(data), size});
    if (!parts || random.one_in(50)) return LLVMFuzzerMutate(data, size, most);
    const size_t made = put(g_mutator->change(*parts, random), data, most);
    return made != 0 ? made : size;
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                                            uint8_t* to, size_t most, unsigned seed) {
    Random random(seed, 4);
    std::optional<FileParts> first = remembered_parts({reinterpret_cast<const char*>(a), a_size});
    std::optional<FileParts> second = remembered_parts({reinterpret_cast<const char*>(b), b_size});
    if (!first || !second) return 0;
    return put(joined(std::move(*first), std::move(*second), random).file(0), to, most);
}
