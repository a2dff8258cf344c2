/* read_bandwidth BYTES THREADS ROUNDS: the seconds in which so many threads read so many bytes of memory once, in
 * large pages, one line for each round. What a decoder needs for a token at least. Compile with -O3 -march=native -pthread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LANES = 32 };

static const uint64_t* memory;
static size_t words;
static long threads;

static void* read_part(void* which) {
    const size_t part = words / (size_t)threads / LANES * LANES;
    const uint64_t* from = memory + part * (size_t)which;
    uint64_t sums[LANES] = {0};
    for (size_t i = 0; i < part; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) sums[lane] += from[i + (size_t)lane];
    uint64_t sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
    return (void*)(uintptr_t)(sum & 1);
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const size_t bytes = strtoull(argv[1], NULL, 10) / (1 << 21) * (1 << 21);
    threads = strtol(argv[2], NULL, 10);
    if (bytes == 0 || threads < 1 || threads > 64) return 2;
    uint64_t* filled = aligned_alloc(1 << 21, bytes);
    if (filled == NULL) return 1;
    madvise(filled, bytes, MADV_HUGEPAGE);
    memset(filled, 1, bytes);
    memory = filled;
    words = bytes / sizeof *filled;
    for (long round = strtol(argv[3], NULL, 10); round > 0; --round) {
        struct timespec begin, end;
        pthread_t parts[64];
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (long i = 0; i < threads; ++i)
            if (pthread_create(&parts[i], NULL, read_part, (void*)i) != 0) return 1;
        for (long i = 0; i < threads; ++i) pthread_join(parts[i], NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.9f\n", (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    }
    free(filled);
    return 0;
}
