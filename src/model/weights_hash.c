/* weights_hash.c - the SHA-256 of all weights of a checkpoint.  Tensors are hashed in pieces, which threads share.
 * The result is the digest of the descriptions of all tensors and of the digests of their pieces, in order.  So it
 * depends neither on the number of threads nor on how tensors are spread over files. */
#include "base/thread.h"
#include "model/weights_digest.h"

#define PIECE ((size_t)1 << 20)

struct hashing {
    const struct checkpoint *ck;
    uint64_t *first; /* [n_tensors + 1] number of the first piece of a tensor */
    uint8_t (*piece)[DIGEST_BYTES];
};

static void hash_piece(void *ctx, uint32_t task, uint32_t thread)
{
    struct hashing *h = ctx;
    uint32_t lo = 0, hi = checkpoint_n_tensors(h->ck);
    (void)thread;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (h->first[mid] <= task)
            lo = mid;
        else
            hi = mid;
    }
    const struct tensor *t = checkpoint_tensor_at(h->ck, lo);
    size_t at = (size_t)(task - h->first[lo]) * PIECE;
    digest_of((const uint8_t *)t->data + at, MIN(t->bytes - at, PIECE), h->piece[task]);
}

static int count_pieces(struct hashing *h, uint32_t *n)
{
    uint64_t pieces = 0;
    uint32_t n_tensors = checkpoint_n_tensors(h->ck);
    for (uint32_t i = 0; i < n_tensors; i++) {
        h->first[i] = pieces;
        pieces += (checkpoint_tensor_at(h->ck, i)->bytes + PIECE - 1) / PIECE;
    }
    h->first[n_tensors] = pieces;
    if (pieces > UINT32_MAX)
        return ERR(LIMIT, "%s: the weights have %llu pieces of %u bytes, and %u can be hashed",
                   checkpoint_path(h->ck), (unsigned long long)pieces, (unsigned)(PIECE),
                   UINT32_MAX);
    *n = (uint32_t)pieces;
    return 0;
}

static int hash_pieces(struct hashing *h, uint32_t n, uint32_t threads)
{
    struct pool *p;
    threads = MIN(threads ? threads : cpu_count(), n);
    TRY(pool_open(&p, MAX(threads, 1)));
    pool_run(p, n, hash_piece, h);
    pool_close(p);
    return 0;
}

static void combine(const struct hashing *h, uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    uint32_t n_tensors = checkpoint_n_tensors(h->ck);
    digest_begin(&d);
    digest_text(&d, "kvik weights 1");
    digest_u64(&d, PIECE);
    digest_u64(&d, n_tensors);
    for (uint32_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = checkpoint_tensor_at(h->ck, i);
        digest_text(&d, t->name);
        digest_text(&d, dtype_name(t->dtype));
        digest_u64(&d, t->n_dims);
        for (uint32_t k = 0; k < t->n_dims; k++)
            digest_u64(&d, t->dim[k]);
        digest_u64(&d, t->bytes);
        for (uint64_t k = h->first[i]; k < h->first[i + 1]; k++)
            digest_add(&d, h->piece[k], DIGEST_BYTES);
    }
    digest_end(&d, out);
}

int weights_hash(const struct checkpoint *ck, uint32_t threads, uint8_t out[DIGEST_BYTES])
{
    struct hashing h = {.ck = ck};
    uint32_t n = 0;
    h.first = mem_array((size_t)checkpoint_n_tensors(ck) + 1, sizeof *h.first);
    int e = h.first ? count_pieces(&h, &n) : ERR_NOMEM;
    if (e >= 0 && !(h.piece = mem_array(MAX(n, 1), sizeof *h.piece))) e = ERR_NOMEM;
    if (e >= 0) e = hash_pieces(&h, n, threads);
    if (e >= 0) combine(&h, out);
    mem_free(h.piece);
    mem_free(h.first);
    return e;
}
