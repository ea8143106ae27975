/* match.c - gives an empty sequence the longest cached prefix of its tokens that another sequence has computed.
 * First the sequence gets the salt that appending these tokens would give it, because another padding or another
 * regime of rotary frequencies makes other rows.  Appending all tokens in one call would be one turn.  So there is
 * no hit where rows depend on turns (dynamic NTK, codecs that quantize by turns). */
#include "model/model.h"

int exec_match(struct exec *x, kv_seq seq, const int32_t *ids, uint32_t n, uint32_t pad,
               uint32_t *have)
{
    struct kv_salt salt = kv_salt(x->kv, seq);
    salt.regime = x->regime_rows ? regime_of(x->m, n) : 0;
    salt.pad = x->m->counts_padding ? pad : 0;
    *have = 0;
    if (!n || kv_len(x->kv, seq)) return 0;
    TRY(kv_resalt(x->kv, seq, &salt));
    return kv_match(x->kv, seq, &(struct kv_prefix){.tok = ids, .n = n - 1}, have);
}
