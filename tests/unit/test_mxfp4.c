/* test_mxfp4.c - the four-bit experts of a Hugging Face file. After repacking they have the values
 * the format defines: two values per byte, the first in the low half; 2^(scale - 127) times the
 * E2M1 value. Experts and alternating rows land where they belong. Wrong files are refused with a
 * message. */
#include "fmt/fmt.h"
#include "model/model.h"
#include "testing.h"

#include <math.h>
#include <sys/stat.h>

enum { EXPERTS = 3, ROWS = 6, COLS = 96, BLOCKS = COLS / 32 };
static unsigned char codes[EXPERTS][ROWS][BLOCKS][16], scales[EXPERTS][ROWS][BLOCKS];
static char dir[64] = "/tmp/kvik-mxfp4-XXXXXX", path[128];

static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static float value(uint32_t e, uint32_t row, uint32_t col)
{
    unsigned char byte = codes[e][row][col / 32][col % 32 / 2];
    return ldexpf(e2m1[col % 2 ? byte >> 4 : byte & 15], scales[e][row][col / 32] - 127);
}

static int fill(void **state)
{
    (void)state;
    uint32_t x = 12345;
    for (size_t i = 0; i < sizeof codes; i++)
        ((unsigned char *)codes)[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < sizeof scales; i++)
        ((unsigned char *)scales)[i] = (unsigned char)(i < 3 ? i : 90 + i % 120);
    return mkdtemp(dir) ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Makes a model with both tensors, or with the first alone; blocks of the given type. */
static void with_file(struct model *m, enum dtype type, bool with_scales)
{
    struct tensor t[2] = {
        {"l.0.up_blocks", type, 4, {EXPERTS, ROWS, BLOCKS, 16}, codes, sizeof codes},
        {"l.0.up_scales", DT_U8, 3, {EXPERTS, ROWS, BLOCKS}, scales, sizeof scales},
    };
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(safetensors_write(path, t, with_scales ? 2 : 1), 0);
    memset(m, 0, sizeof *m);
    m->what = "here";
    assert_int_equal(checkpoint_open(dir, &m->ck), 0);
    m->config = checkpoint_config(m->ck);
}

static void done(struct model *m)
{
    for (uint32_t i = 0; i < m->n_own; i++)
        mem_free(m->own[i]);
    mem_free(m->own);
    checkpoint_close(m->ck);
}

static void check(const struct dev_weight *w, uint32_t e, uint32_t first, uint32_t step,
                  uint32_t rows)
{
    float row[COLS];
    size_t bytes;
    assert_true(w->rows == rows && w->cols == COLS && w->dtype == DT_MXFP4);
    assert_true(dtype_bytes(DT_MXFP4, COLS, &bytes));
    for (uint32_t r = 0; r < rows; r++) {
        dev_to_f32(DT_MXFP4, (const unsigned char *)w->data + r * bytes, row, COLS);
        for (uint32_t c = 0; c < COLS; c++)
            if (row[c] != value(e, first + r * step, c))
                fail_msg("expert %u row %u column %u: %g, wants %g", e, r, c, (double)row[c],
                         (double)value(e, first + r * step, c));
    }
}

static void experts(void **state)
{
    (void)state;
    struct model m;
    struct dev_weight w[EXPERTS], gate[EXPERTS], up[EXPERTS];
    with_file(&m, DT_U8, true);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS, 0, 1, w), 1);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS / 2, COLS, 0, 2, gate), 1);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS / 2, COLS, 1, 2, up), 1);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        check(&w[e], e, 0, 1, ROWS);
        check(&gate[e], e, 0, 2, ROWS / 2);
        check(&up[e], e, 1, 2, ROWS / 2);
    }
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 1, EXPERTS, ROWS, COLS, 0, 1, w), 0);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS + 1, 0, 1, w),
                     ERR_UNSUPPORTED);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS + 1, ROWS, COLS, 0, 1, w), ERR_FORMAT);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS, 0, 2, w), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "up_blocks"));
    for (int i = 0; i < 2; i++) {
        mem_fail_at(i, false);
        int e = model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS, 0, 1, w);
        mem_fail_at(-1, false);
        assert_true(e == ERR_NOMEM || e == 1);
    }
    done(&m);
}

static void lies(void **state)
{
    (void)state;
    struct model m;
    struct dev_weight w[EXPERTS];
    with_file(&m, DT_I8, true);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS, 0, 1, w), ERR_FORMAT);
    done(&m);
    with_file(&m, DT_U8, false);
    assert_int_equal(model_mxfp4(&m, "l.%u.up", 0, EXPERTS, ROWS, COLS, 0, 1, w), ERR_FORMAT);
    assert_non_null(strstr(err_last(), "up_scales"));
    done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts), cmocka_unit_test(lies)};
    return cmocka_run_group_tests(tests, fill, clean);
}
