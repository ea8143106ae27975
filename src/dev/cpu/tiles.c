/* tiles.c - see tiles.h.  Tiles 0 and 1 hold sums, 2 and 3 rows or values, 4 to 7 codes of queries or weights. */
#if defined(__x86_64__)
#include "dev/cpu/tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define AMX __attribute__((target("amx-tile,amx-int8")))

bool tiles_hidden;
static _Thread_local bool configured;

/* True if the processor has tiles of bytes, and the system saves them. */
static bool processor_has(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned tile = 1u << 24, bytes = 1u << 25;
    return (d & tile) && (d & bytes);
}

/* Asks Linux for the state of tiles, of all threads. */
static bool system_gives(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

bool tiles_here(void)
{
    static atomic_int known; /* 1: no, 2: yes; threads that ask at once find the same */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (!k) {
        const char *v = getenv("KVIK_AMX");
        k = (!v || strcmp(v, "0") != 0) && processor_has() && system_gives() ? 2 : 1;
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return k == 2 && !tiles_hidden;
}

AMX static void configure(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    if (configured) return;
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = 64;
        c.rows[i] = 16;
    }
    _tile_loadconfig(&c);
    configured = true;
}

AMX void tiles_rest(void)
{
    if (configured) _tile_release();
    configured = false;
}

AMX void tiles_keys(const unsigned char *x, size_t step, uint32_t nb, uint32_t k,
                    const unsigned char *codes, size_t apart, int32_t *sum)
{
    configure();
    _tile_loadd(4, codes, apart);
    for (uint32_t b = 0; b < nb; b++, x += step, sum += 16) {
        _tile_zero(0);
        _tile_loadd(2, x, 64);
        _tile_dpbsud(0, 4, 2);
        for (uint32_t t = 1; t < k; t++) {
            _tile_loadd(5, codes + (size_t)t * 64, apart);
            _tile_loadd(3, x + (size_t)t * 1024, 64);
            _tile_dpbsud(0, 5, 3);
        }
        _tile_stored(0, sum, 512);
    }
}

AMX void tiles_values(const unsigned char *x, size_t step, uint32_t nb, const unsigned char *w,
                      int32_t *low, int32_t *high)
{
    configure();
    _tile_loadd(4, w, 256);
    _tile_loadd(5, w + 64, 256);
    _tile_loadd(6, w + 128, 256);
    _tile_loadd(7, w + 192, 256);
    for (uint32_t b = 0; b < nb; b++, x += step, low += 16, high += 16) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, x, 64);
        _tile_loadd(3, x + 1024, 64);
        _tile_dpbusd(0, 4, 2);
        _tile_dpbusd(1, 6, 2);
        _tile_dpbusd(0, 5, 3);
        _tile_dpbusd(1, 7, 3);
        _tile_stored(0, high, 256);
        _tile_stored(1, low, 256);
    }
}
#else
typedef int tiles_unused;
#endif
