/*
 * zeropoint's C API: load a program file (.zpt) and run it. No Python, no PyTorch, no C++ in the interface.
 *
 *     zp_program* program;
 *     if (zp_program_load("model.zpt", NULL, &program) != ZP_OK) { fputs(zp_last_error(), stderr); return 1; }
 *     zp_session* session;
 *     zp_session_create(program, &session);
 *     zp_tensor input = {.data = pixels, .type = ZP_FLOAT32, .rank = 4, .sizes = {1, 3, 224, 224}}, output = {0};
 *     zp_session_run(session, &input, 1, &output, 1);   // output.data belongs to the session until its next run
 *
 * Threads: a program may be shared. A session belongs to one thread at a time: create one per thread.
 * Errors: a function that fails returns a status and leaves a message in zp_last_error(); it changes nothing else.
 * Stability: a function or a struct of one ABI version never changes; new ones are added. See docs/c_api.md.
 */
#ifndef ZEROPOINT_ZEROPOINT_H
#define ZEROPOINT_ZEROPOINT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(ZP_BUILDING_LIBRARY)
#define ZP_API __declspec(dllexport)
#elif defined(__GNUC__) && !defined(_WIN32)
#define ZP_API __attribute__((visibility("default")))
#else
#define ZP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI version this header describes. zp_abi_version() tells that of the library. */
#define ZP_ABI_VERSION 1
#define ZP_MAX_RANK 8

typedef enum zp_status {
    ZP_OK = 0,
    ZP_INVALID_ARGUMENT = 1, /* a null pointer, a wrong number of tensors, a type the program does not take */
    ZP_BAD_SHAPE = 2,        /* sizes the program cannot take, or that exceed its memory limit */
    ZP_BAD_FILE = 3,         /* not a program file, or a damaged one */
    ZP_IO_ERROR = 4,         /* the file cannot be read */
    ZP_OUT_OF_MEMORY = 5,
    ZP_BUSY = 6,             /* another thread is running this session */
    ZP_BUFFER_TOO_SMALL = 7, /* the caller's memory for an output; `bytes` of that output says how much it needs */
    ZP_INTERNAL_ERROR = 8
} zp_status;

typedef enum zp_type {
    ZP_UINT8 = 0,
    ZP_INT8 = 1,
    ZP_INT16 = 2,
    ZP_INT32 = 3,
    ZP_INT64 = 4,
    ZP_FLOAT32 = 5,
    ZP_FLOAT16 = 6,
    ZP_BOOL = 7
} zp_type;

typedef struct zp_program zp_program;
typedef struct zp_session zp_session;

/*
 * A tensor in memory. As an input: `strides` (in elements) of all zeros mean contiguous; other layouts are copied
 * unless they are channels last. `bytes` is not read.
 * As an output, before a run: data NULL lets the session own the memory, else data has room for `bytes` bytes.
 * After it: everything is filled in. Outputs may be channels last, so look at the strides.
 */
typedef struct zp_tensor {
    void* data;
    size_t bytes;
    int32_t type; /* zp_type */
    int32_t rank;
    int64_t sizes[ZP_MAX_RANK];
    int64_t strides[ZP_MAX_RANK];
} zp_tensor;

/* What a program takes. Strings live as long as the program. */
typedef struct zp_input {
    const char* name;
    int32_t type; /* zp_type */
    int32_t rank;
    int64_t sizes[ZP_MAX_RANK];    /* -1 is free */
    int64_t example[ZP_MAX_RANK];  /* the sizes the program was compiled with */
    const char* axes[ZP_MAX_RANK]; /* the name of a free size, or "": sizes of one name are equal; NULL: fixed */
} zp_input;

/* Options of zp_program_load. Fill with zeros for the defaults. */
typedef struct zp_options {
    int64_t memory_limit; /* the most bytes for the values of one run; 0 is 8 GiB */
    int64_t reserved[7];  /* zeros */
} zp_options;

/* What one step took. Strings live as long as the program. */
typedef struct zp_step {
    const char* op;
    const char* name; /* of its first output */
    double seconds;
    double macs;        /* multiplications */
    const char* kernel; /* the heaviest one, or "" */
} zp_step;

ZP_API int32_t zp_abi_version(void);
ZP_API const char* zp_version(void);
/* The message of the last error in this thread; "" if there was none. */
ZP_API const char* zp_last_error(void);
/* "avx2", "vnni", ...: the instruction set the kernels use. */
ZP_API const char* zp_isa(void);
/* Threads of the process that all runs share. The default is ZEROPOINT_NUM_THREADS, or the CPUs it may use. */
ZP_API int32_t zp_num_threads(void);
ZP_API zp_status zp_set_num_threads(int32_t threads);

/* Reads and checks a file, and packs its weights for this CPU. The path is in UTF-8. `options` may be NULL. */
ZP_API zp_status zp_program_load(const char* path, const zp_options* options, zp_program** program);
/* The same from memory, which is copied. */
ZP_API zp_status zp_program_load_memory(const void* data, size_t bytes, const zp_options* options,
                                        zp_program** program);
/* Sessions of the program stay usable: it goes when the last of them does. NULL is allowed. */
ZP_API void zp_program_free(zp_program* program);
ZP_API size_t zp_program_input_count(const zp_program* program);
ZP_API size_t zp_program_output_count(const zp_program* program);
ZP_API size_t zp_program_step_count(const zp_program* program);
ZP_API zp_status zp_program_input(const zp_program* program, size_t index, zp_input* input);
/* How the outputs make up what the model returned, as JSON; "" if it is one tensor. */
ZP_API const char* zp_program_result(const zp_program* program);

ZP_API zp_status zp_session_create(zp_program* program, zp_session** session);
ZP_API void zp_session_free(zp_session* session);
/* Gives the state of the program (a decoder's cache, say) its first values again. */
ZP_API zp_status zp_session_reset(zp_session* session);
/* Fills in type, sizes, strides and bytes of each output for inputs of these sizes; their data may be NULL. */
ZP_API zp_status zp_session_describe_outputs(zp_session* session, const zp_tensor* inputs, size_t input_count,
                                             zp_tensor* outputs, size_t output_count);
ZP_API zp_status zp_session_run(zp_session* session, const zp_tensor* inputs, size_t input_count, zp_tensor* outputs,
                                size_t output_count);
/*
 * Runs once with a new state and times each step. `steps` has room for `*count` rows; `*count` becomes the number of
 * rows there are, which may be larger.
 */
ZP_API zp_status zp_session_profile(zp_session* session, const zp_tensor* inputs, size_t input_count, zp_step* steps,
                                    size_t* count);

#ifdef __cplusplus
}
#endif

#endif
