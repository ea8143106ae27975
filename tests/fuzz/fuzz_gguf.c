/* fuzz_gguf.c - any bytes as a GGUF file: everything that an accepted file offers is read, and its tokenizer encodes and
 * decodes. */
#include "base/utf8.h"
#include "fuzz.h"
#include "tok/tok.h"
#include "walk_fmt.h"

static void use_tokenizer(const struct gguf *g)
{
    static const char text[] = " ab aab\xC3\xA9<0x0A>\xE2\x96\x81 1234 <s></s>\n";
    struct tok *t = NULL;
    struct ids v = {0};
    struct buf b;
    if (tok_open_gguf(g, &t) < 0) {
        WALK_MUST(t == NULL && err_last()[0]);
        return;
    }
    buf_init(&b, (size_t)1 << 26);
    for (unsigned flags = 0; flags < 4; flags++) {
        v.n = 0;
        if (tok_encode(t, text, sizeof text - 1, flags, NULL, 0, &v) < 0) continue;
        for (size_t i = 0; i < v.n; i++)
            WALK_MUST(v.id[i] >= 0 && (uint32_t)v.id[i] < tok_size(t));
        buf_clear(&b);
        if (tok_decode(t, v.id, v.n, false, &b) == 0 && b.len) WALK_MUST(utf8_valid(b.data, b.len));
    }
    buf_done(&b);
    ids_done(&v);
    tok_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    if (gguf_parse(data, size, "fuzz", &g) < 0) {
        WALK_MUST(g == NULL && err_last()[0]);
        return 0;
    }
    walk_gguf(g, data, size);
    use_tokenizer(g);
    gguf_close(g);
    return 0;
}
