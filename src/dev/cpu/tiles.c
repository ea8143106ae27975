/* tiles.c - see tiles.h.  Tiles 0 to 3 hold sums of four blocks, 4 codes of queries or weights, 5 to 7 rows or values. */
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

/* Asks Linux to save the state of tiles for all threads. */
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
    /* 1: no, 2: yes; 0: not asked yet.  Threads that ask at the same time get the same answer. */
    static atomic_int known;
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
    /* The compiler knows only of the first bytes that the instruction reads. */
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
    configured = true;
}

AMX void tiles_rest(void)
{
    if (configured) _tile_release();
    configured = false;
}

AMX void tiles_awake(void)
{
    if (configured) _tile_dpbsud(7, 5, 6);
}

/* A product waits for the product before it that adds to the same tile, but not for products that add to other
 * tiles.  So up to four blocks are computed side by side.  at: the rows of one block and step. */
#define BLOCK(sum, rows, b, product, at)                                                           \
    if (nb > (b)) {                                                                                \
        _tile_loadd(rows, at, 64);                                                                 \
        product(sum, 4, rows);                                                                     \
    }
#define BLOCKS(product, x, step)                                                                   \
    BLOCK(0, 5, 0, product, (x))                                                                   \
    BLOCK(1, 6, 1, product, (x) + (step))                                                          \
    BLOCK(2, 7, 2, product, (x) + 2 * (step))                                                      \
    BLOCK(3, 5, 3, product, (x) + 3 * (step))

AMX static void clear(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

AMX static void store(uint32_t nb, int32_t *sum, size_t stride)
{
    _tile_stored(0, sum, stride);
    if (nb > 1) _tile_stored(1, sum + 16, stride);
    if (nb > 2) _tile_stored(2, sum + 32, stride);
    if (nb > 3) _tile_stored(3, sum + 48, stride);
}

AMX void tiles_keys(const unsigned char *x, size_t step, uint32_t blocks, uint32_t k,
                    const unsigned char *codes, size_t apart, int32_t *sum)
{
    configure();
    for (uint32_t nb = blocks, i = 0; i < blocks; i += 4, nb -= 4, x += 4 * step, sum += 64) {
        clear();
        for (uint32_t t = 0; t < k; t++) {
            _tile_loadd(4, codes + (size_t)t * 64, apart);
            BLOCKS(_tile_dpbsud, x + (size_t)t * 1024, step)
        }
        store(nb, sum, 512);
    }
}

/* Adds the products with the high bytes of the weights, or with their low bytes. */
AMX static void values_half(const unsigned char *x, size_t step, uint32_t nb,
                            const unsigned char *w, int32_t *sum)
{
    clear();
    _tile_loadd(4, w, 256);
    BLOCKS(_tile_dpbusd, x, step)
    _tile_loadd(4, w + 64, 256);
    BLOCKS(_tile_dpbusd, x + 1024, step)
    store(nb, sum, 256);
}

AMX void tiles_values(const unsigned char *x, size_t step, uint32_t nb, const unsigned char *w,
                      int32_t *low, int32_t *high)
{
    configure();
    values_half(x, step, nb, w, high);
    values_half(x, step, nb, w + 128, low);
}
#else
typedef int tiles_unused;
#endif
