/* answer_parts.c - what answers of several protocols are made of: events, messages, usage, calls, probabilities. */
#include "serve/answer.h"

json_t *answer_text(const char *s, size_t n)
{
    return json_stringn(s ? s : "", s ? n : 0);
}

void answer_send(struct answer *a, const struct buf *b)
{
    if (b)
        exchange_send(a->x, b->data, b->len);
    else
        atomic_store(&a->x->gone, true);
}

void answer_event(struct answer *a, const char *name, json_t *o)
{
    char *text = NULL;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    bool whole =
        o && json_text(o, &text) == 0 && (!name || buf_printf(&b, "event: %s\n", name) >= 0) &&
        buf_puts(&b, "data: ") >= 0 && buf_puts(&b, text) >= 0 && buf_puts(&b, "\n\n") >= 0;
    answer_send(a, whole ? &b : NULL);
    mem_free(text);
    buf_done(&b);
    json_decref(o);
}

json_t *answer_usage(const struct answer *a)
{
    json_int_t reasoning = 0;
    for (uint32_t i = 0; i < a->ask.choices; i++)
        reasoning += (json_int_t)a->choice[i].reasoning_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens",
                     (json_int_t)a->prompt_tokens, "completion_tokens", (json_int_t)a->new_tokens,
                     "total_tokens", (json_int_t)a->prompt_tokens + (json_int_t)a->new_tokens,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)a->reused,
                     "completion_tokens_details", "reasoning_tokens", reasoning);
}

json_t *answer_kvik(const struct answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s?, s:f, s:f, s:f}", "reused",
                     (json_int_t)a->reused, "fetched", (json_int_t)a->fetched, "moved",
                     (json_int_t)a->moved, "computed", (json_int_t)a->computed, "replayed",
                     (json_int_t)a->ask.replayed, "prefix_miss", a->reused ? NULL : a->miss,
                     "wait_seconds", a->waited, "first_token_seconds", a->first, "seconds",
                     a->seconds);
}

json_t *answer_call(const struct call *k, const char *arguments)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", k->id, "type", "function", "function",
                     "name", k->name, "arguments", arguments);
}

json_t *answer_message(const struct choice *c)
{
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          c->n_calls && !c->text.len ? json_null()
                                                     : answer_text(c->text.data, c->text.len)),
           *list = c->n_calls ? json_array() : NULL;
    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(list, answer_call(&c->call[i], call_arguments(&c->call[i])));
    if (list) json_object_set_new(m, "tool_calls", list);
    if (c->reason.len)
        json_object_set_new(m, "reasoning_content", answer_text(c->reason.data, c->reason.len));
    return m;
}

const char *answer_finish(const struct choice *c)
{
    if (!c->over) return NULL;
    if (c->n_calls && c->finish != KVIK_FINISH_LENGTH) return "tool_calls";
    return c->finish == KVIK_FINISH_EOS || c->finish == KVIK_FINISH_STOP ? "stop" : "length";
}

json_t *answer_new_ids(struct choice *c)
{
    size_t n = json_array_size(c->ids);
    json_t *list = json_array();
    for (; c->told_ids < n; c->told_ids++)
        json_array_append(list, json_array_get(c->ids, c->told_ids));
    return list;
}

json_t *answer_ids(struct choice *c, json_t *o)
{
    if (c->ids) json_object_set_new(o, "token_ids", answer_new_ids(c));
    return o;
}

json_t *answer_probabilities(struct choice *c)
{
    size_t n = json_array_size(c->logprobs);
    json_t *list = c->logprobs ? json_array() : NULL;
    for (; c->told < n; c->told++)
        json_array_append(list, json_array_get(c->logprobs, c->told));
    if (list &&
        c->answer->ask.stream) { /* the list is sent now, and no later part needs these entries */
        json_array_clear(c->logprobs);
        c->told = c->answer->probabilities = 0;
    }
    return list;
}

json_t *answer_logprobs(struct choice *c)
{
    json_t *list = answer_probabilities(c);
    return list ? json_pack("{s:o}", "content", list) : json_null();
}
