/* fuzz_session.c - any bytes as a session file, first as they are and then with the checksums
 * bypassed. After a session is accepted, every invariant of the store must hold and the store must
 * be usable. */
#include "fuzz.h"
#include "session_store.h"

#include <stdio.h>
#include <stdlib.h>

static void must(bool fine, const char *what)
{
    if (fine) return;
    fprintf(stderr, "fuzz_session: %s: %s\n", what, err_last());
    abort();
}

static void use(struct kv *kv, const uint8_t *data, size_t size)
{
    struct session s;
    kv_seq seq[STORE_SEQS];
    struct kv_usage u;
    char *again = NULL;
    size_t n_again;
    struct store_source v = {
        .io = {.read = store_read, .size = size, .what = "fuzz"}, .data = data, .s = &s};
    if (session_read(&v.io, &s) < 0) {
        must(err_last()[0], "an error without a sentence");
        return;
    }
    must(session_encode(&s, &again, &n_again) == 0, "its manifest cannot be written");
    mem_free(again);
    uint32_t n = store_load(kv, &v, seq);
    must(kv_check(kv), "after loading");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = kv_len(kv, seq[i]), have;
        must(kv_trim(kv, seq[i], len - len / 3, &have) != ERR_ARG, "a trim");
        (void)store_step(kv, seq[i], 1 + i, false, false);
        must(kv_check(kv), "after a step");
        must(kv_drop(kv, seq[i]) == 0, "a drop");
    }
    kv_usage(kv, &u);
    must(kv_check(kv) && u.live + u.states == 0, "after dropping all");
    session_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kv *kv[2];
    for (int i = 0; i < 2; i++) {
        if (!kv[i]) kv[i] = store_open(i ? 64 : 16);
        must(kv[i] != NULL, "the store");
        for (int trust = 0; trust < 2; trust++) {
            session_trust = trust;
            use(kv[i], data, size);
        }
    }
    session_trust = false;
    return 0;
}
