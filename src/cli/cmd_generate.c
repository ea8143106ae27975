/* cmd_generate.c - kvik generate: prompts in, text out.  The whole command line is checked before the model is opened.  A
 * prompt that is too long for the model is refused before anything is computed. */
#include "base/file.h"
#include "cli/moved.h"

#include <string.h>
#include <unistd.h>

enum {
    LEAST_GAIN = 32 /* fewer tokens are not worth loading them from a file again */
};
#define NO_RECOMPUTE UINT32_MAX /* --recompute is not given */

struct options {
    struct common common;
    struct arg_list input_ids, attention_mask, decoder_ids;
    struct arg_list documents;
    uint32_t recompute;
    const char *features;
    const char *system, *config, *logits_file, *prefix_cache, *store, *assistant;
    bool cache_report;
};

static const struct arg_option table[] = {
    {"chat", ARG_FLAG, offsetof(struct options, common.chats), NULL, NULL,
     "apply the model's chat template to each PROMPT, as a user's message"},
    {"system", ARG_TEXT, offsetof(struct options, system), "TEXT", NULL,
     "system message; needs --chat"},
    {"template", ARG_TEXT, offsetof(struct options, common.template), "FILE|NAME", NULL,
     "with --chat: the chat template, a Jinja file, or a built-in format: chatml, gemma, llama2, llama3, llama4, mistral, phi3, "
     "alpaca, zephyr, vicuna, deepseek (default: the model's own, else guessed)"},
    {"input-ids", ARG_LIST, offsetof(struct options, input_ids), "ID,...", NULL,
     "a prompt as token ids instead of PROMPT; repeat the option for a batch"},
    {"attention-mask", ARG_LIST, offsetof(struct options, attention_mask), "0|1,...", NULL,
     "mask of the --input-ids before it; tokens under a 0 are left out"},
    {"decoder-input-ids", ARG_LIST, offsetof(struct options, decoder_ids), "ID,...", NULL,
     "for a model with an encoder, which reads the prompt: tokens that begin the decoder's text; one for each prompt"},
    {"input-features", ARG_TEXT, offsetof(struct options, features), "FILE[:TENSOR]", NULL,
     "for a model whose encoder hears: features [bins, frames] or [batch, bins, frames] of a safetensors file instead of "
     "PROMPT (default tensor: input_features)"},
    {"generation-config", ARG_TEXT, offsetof(struct options, config), "JSON|FILE", NULL,
     "generation options as a JSON object; options on the command line win over it"},
    {"logits-file", ARG_OUT, offsetof(struct options, logits_file), "FILE", NULL,
     "write the raw logits [steps, rows, vocab] to a safetensors file; with --output-scores true also "
     "the processed scores"},
    {"prefix-cache", ARG_TEXT, offsetof(struct options, prefix_cache), "DIR", NULL,
     "directory of saved prompts: reuse the longest saved prefix of each prompt, and save the prompt "
     "and its text there"},
    {"prefix-store", ARG_TEXT, offsetof(struct options, store), "ADDRESS", NULL,
     "store of prompts that processes share: redis://HOST, rediss://HOST (TLS), unix:///SOCKET or file:///DIR; "
     "$REDISCLI_AUTH is its password"},
    {"document", ARG_LIST, offsetof(struct options, documents), "FILE", NULL,
     "a text before PROMPT; repeat the option for more"},
    {"recompute", ARG_UINT, offsetof(struct options, recompute), "N", NULL,
     "read documents whose rows --prefix-cache has, at any position; compute N tokens of each again. "
     "Changes the text; needs --cache-config '{\"moved_chunks\": 16}'"},
    {"assistant-model", ARG_TEXT, offsetof(struct options, assistant), "MODEL", NULL,
     "smaller model with the same vocabulary that drafts tokens; the text does not change"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL, "print one JSON object"},
    {"cache-report", ARG_FLAG, offsetof(struct options, cache_report), NULL, NULL,
     "print on standard error what the cache held and how long each phase took"},
};

struct generation {
    const struct options *o;
    const struct args *args;
    struct engine s;
    json_t *given; /* owned: the generation options */
    /* [n] owned with their ids and masks: the prompts, or the encoder's inputs */
    kvik_source *source;
    kvik_prompt *prompt; /* [n] owned with the ids of a decoder */
    int64_t *loaded;     /* [n] tokens that were loaded from the directory */
    struct moved moved;  /* the prompt, if it has documents */
    float *features;     /* [n][bins][frames] owned, or NULL */
    uint32_t shape[3];
    kvik_encoder encoder;
    uint32_t n;
    bool unlimited; /* the user has not set a length */
    struct text_stream stream;
};

static int mask_parse(const char *text, size_t n, uint8_t **out)
{
    int32_t *v;
    size_t count;
    int status = ids_parse("--attention-mask", text, &v, &count);
    if (status) return status;
    uint8_t *mask = mem_alloc(n ? n : 1);
    bool binary = true;
    for (size_t i = 0; mask && i < MIN(n, count); i++) {
        binary &= v[i] == 0 || v[i] == 1;
        mask[i] = v[i] == 1;
    }
    mem_free(v);
    if (!mask) return say_error(ERR_NOMEM);
    if (count == n && binary) {
        *out = mask;
        return 0;
    }
    mem_free(mask);
    if (!binary)
        return say_usage("--attention-mask: \"%.40s\" must have only zeros and ones", text);
    return say_usage("--attention-mask has %zu numbers, its --input-ids has %zu", count, n);
}

static int prompts_of_ids(struct generation *r)
{
    const struct options *o = r->o;
    for (uint32_t i = 0; i < r->n; i++) {
        int32_t *ids;
        uint8_t *mask = NULL;
        size_t n;
        int status = ids_parse("--input-ids", o->input_ids.item[i], &ids, &n);
        if (status) return status;
        r->source[i].ids = ids;
        r->source[i].n = n;
        if (!o->attention_mask.n) continue;
        if ((status = mask_parse(o->attention_mask.item[i], n, &mask))) return status;
        r->source[i].attention_mask = mask;
    }
    return 0;
}

/* Reads --input-features.  Each item of its batch is a prompt. */
static int read_features(struct generation *r)
{
    const char *at = strrchr(r->o->features, ':');
    size_t n = at ? (size_t)(at - r->o->features) : strlen(r->o->features);
    char *path = mem_alloc(n + 1);
    if (!path) return say_error(ERR_NOMEM);
    memcpy(path, r->o->features, n);
    path[n] = 0;
    int e = kvik_features_load(path, at ? at + 1 : "input_features", r->shape, &r->features);
    mem_free(path);
    if (e < 0) return err_prefix(e, "--input-features"), say_error(e);
    r->n = r->shape[0];
    return 0;
}

static int prompts_of_features(struct generation *r)
{
    if (r->shape[1] != r->encoder.bins)
        return say_failed(
            "--input-features has %u values a frame, and the model's encoder takes %s%u",
            r->shape[1], r->encoder.bins ? "" : "token ids: ", r->encoder.bins);
    for (uint32_t i = 0; i < r->n; i++) {
        r->source[i].features = r->features + (size_t)i * r->shape[1] * r->shape[2];
        r->source[i].n_frames = r->shape[2];
    }
    return 0;
}

static int decoder_prompts(struct generation *r)
{
    const struct arg_list *l = &r->o->decoder_ids;
    if (l->n && l->n != r->n)
        return say_usage("%zu --decoder-input-ids for %u prompts; give one each", l->n, r->n);
    for (uint32_t i = 0; l->n && i < r->n; i++) {
        int32_t *ids;
        int status = ids_parse("--decoder-input-ids", l->item[i], &ids, &r->prompt[i].n);
        if (status) return status;
        r->prompt[i].ids = ids;
    }
    return 0;
}

static int encode_text(struct generation *r, const char *text, size_t len, kvik_source *p)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(r->s.model);
    int32_t *ids;
    size_t n;
    if (!t) return ERR(ARG, "the model has no tokenizer; give token ids with --input-ids");
    if (r->o->common.chats) {
        json_t *m = json_array();
        if (r->o->system)
            json_array_append_new(m, say_message("system", r->o->system, strlen(r->o->system)));
        json_array_append_new(m, say_message("user", text, len));
        char *messages;
        int e = json_text(m, &messages);
        json_decref(m);
        if (e < 0) return e;
        const kvik_chat chat = {
            .size = sizeof chat, .json = messages, .kwargs = "{\"add_generation_prompt\": true}"};
        e = kvik_chat_encode(t, &chat, &ids, &n, NULL);
        mem_free(messages);
        if (e < 0) return e;
    } else {
        TRY(kvik_tokenizer_encode(t, text, len, true, &ids, &n));
    }
    p->ids = ids;
    p->n = n;
    return n ? 0 : ERR(ARG, "the prompt has no tokens; give a text that is not empty");
}

/* Makes one chat of the documents and the prompt. */
static int chat_of_documents(struct generation *r, const struct text *prompt)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(r->s.model);
    json_t *texts = NULL;
    struct buf message;
    buf_init(&message, SIZE_MAX);
    int e = moved_message(&r->o->documents, prompt, &message, &texts);
    if (e >= 0) e = encode_text(r, message.data, message.len, &r->source[0]);
    if (e >= 0) e = moved_find(&r->moved, t, texts, &r->source[0]);
    buf_done(&message);
    json_decref(texts);
    return e;
}

static int prompts_of_text(struct generation *r, const struct texts *t)
{
    if (r->o->documents.n && r->o->common.chats) {
        int e = chat_of_documents(r, &t->text[0]);
        return e < 0 ? say_error(e) : 0;
    }
    if (r->o->documents.n) {
        int e = moved_read(&r->moved, kvik_model_tokenizer(r->s.model), &r->o->documents,
                           &t->text[0], &r->source[0]);
        return e < 0 ? say_error(e) : 0;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        int e = encode_text(r, t->text[i].s, t->text[i].n, &r->source[i]);
        if (e < 0) return say_error(e);
    }
    return 0;
}

/* Refuses texts if the model's encoder reads features. */
static int check_hears(const struct generation *r)
{
    const char *path = r->args->word[0];
    if (!r->encoder.bins) return 0;
    return say_failed("%s hears recordings and continues no text; write down what is said: kvik "
                      "transcribe %s FILE (or give --input-features)",
                      path, path);
}

/* Decides what the given texts or ids are: inputs of the encoder, or prompts if the model has no encoder. */
static int place_inputs(struct generation *r)
{
    if (!r->encoder.layers && r->o->decoder_ids.n)
        return say_failed("--decoder-input-ids is for models with an encoder");
    for (uint32_t i = 0; i < r->n; i++)
        if (r->encoder.layers)
            r->prompt[i].source = &r->source[i];
        else
            r->prompt[i] = (kvik_prompt){.size = sizeof *r->prompt,
                                         .ids = r->source[i].ids,
                                         .n = r->source[i].n,
                                         .attention_mask = r->source[i].attention_mask};
    return 0;
}

/* Returns the number of tokens of a prompt that are not masked. */
static size_t length(const kvik_prompt *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !p->attention_mask || p->attention_mask[i];
    return n;
}

static bool moves(const struct generation *r)
{
    return r->o->recompute != NO_RECOMPUTE;
}

/* Returns the length of a reply if the user has set none.  A static cache must have room for all of it. */
static uint32_t reply_tokens(const struct generation *r, size_t longest)
{
    const kvik_generation *g = &r->s.g;
    uint32_t most = MAX(REPLY_TOKENS, g->min_new_tokens);
    int64_t given = engine_configured(g, "max_cache_len");
    size_t room = MIN(engine_context(&r->s), given > 0 ? (size_t)given : SIZE_MAX);
    bool is_static = g->cache_implementation && strstr(g->cache_implementation, "static");
    return is_static && room > longest ? (uint32_t)MIN(most, room - longest) : most;
}

static int open_cache(struct generation *r)
{
    uint32_t context = engine_context(&r->s), vocab = kvik_model_vocab(r->s.model);
    size_t longest = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const kvik_prompt *p = &r->prompt[i];
        const kvik_source *in = &r->source[i];
        size_t n = length(p);
        if (n > context)
            return say_failed(
                "prompt %u has %zu tokens, the model's context is %u; shorten it by %zu", i + 1, n,
                context, n - context);
        for (size_t k = 0; k < in->n; k++)
            if ((uint32_t)in->ids[k] >= vocab)
                return say_failed("prompt %u: token id %d is outside the vocabulary of %u", i + 1,
                                  in->ids[k], vocab);
        longest = MAX(longest, r->encoder.layers ? p->n + 1 : p->n);
    }
    kvik_generation *g = &r->s.g;
    r->unlimited = !g->max_new_tokens && !g->max_length;
    if (r->unlimited && r->o->common.chats) g->max_new_tokens = reply_tokens(r, longest);
    uint64_t need = g->max_new_tokens ? longest + (uint64_t)g->max_new_tokens
                    : g->max_length   ? g->max_length
                                      : longest + KVIK_NEW_TOKENS;
    int status = engine_cache(&r->s, r->n + moves(r), MAX(need, longest));
    if (status || !r->o->assistant) return status;
    return engine_assist(&r->s, r->o->assistant, r->n, MAX(need, longest));
}

static void print_rows(struct generation *r, const kvik_result *res)
{
    for (uint32_t i = 0; i < res->n_rows; i++) {
        const kvik_row *row = res->row[i];
        if (res->n_rows > 1) printf("%s[%u/%u]\n", i ? "\n" : "", i + 1, res->n_rows);
        if (!row->text) {
            ids_print(row->ids + row->n_prompt, row->n - row->n_prompt);
            continue;
        }
        size_t n = strlen(row->text);
        if (r->stream.spoke) continue; /* its text is already printed */
        if (!n && row->finish == KVIK_FINISH_NOT_FINITE) continue;
        fputs(row->text, stdout);
        if (!n || row->text[n - 1] != '\n') putchar('\n');
    }
}

/* Prints which texts have fewer tokens than the user asked for, and which limit ended them. */
static void tell_limits(const struct generation *r, const kvik_result *res)
{
    uint32_t context = kvik_model_context(r->s.model);
    for (uint32_t i = 0; i < res->n_rows; i++) {
        const kvik_row *row = res->row[i];
        size_t n = row->n - row->n_prompt;
        char which[64];
        if (row->finish != KVIK_FINISH_CONTEXT && row->finish != KVIK_FINISH_MAX_CACHE_LEN)
            continue;
        if (res->n_rows > 1)
            snprintf(which, sizeof which, "text %u ended after %zu new token%s", i + 1, n,
                     n == 1 ? "" : "s");
        else
            snprintf(which, sizeof which, "the text ended after %zu new token%s", n,
                     n == 1 ? "" : "s");
        if (row->finish == KVIK_FINISH_CONTEXT)
            say_line("%s, at the model's context of %u tokens; shorten the prompt, or give "
                     "--cache-implementation sink --cache-config '{\"window_length\": %u, "
                     "\"num_sink_tokens\": 4}'",
                     which, context, MAX(MIN(1024u, context / 2), 8));
        else
            say_line("%s, at the max_cache_len of --cache-config; raise it, or shorten the prompt",
                     which);
    }
}

/* Prints how many texts ended at the default length. */
static void tell_default(const struct generation *r, const kvik_result *res)
{
    char what[48] = "the text";
    const char *whose = r->o->common.chats ? " of --chat" : "";
    uint32_t ended = 0;
    for (uint32_t i = 0; r->unlimited && i < res->n_rows; i++)
        ended += res->row[i]->finish == KVIK_FINISH_LENGTH;
    if (!ended) return;
    if (res->n_rows > 1) snprintf(what, sizeof what, "%u of %u texts", ended, res->n_rows);
    say_line("%s ended after %u new tokens, the default%s; --max-new-tokens N allows more", what,
             r->s.g.max_new_tokens ? r->s.g.max_new_tokens : KVIK_NEW_TOKENS, whose);
}

/* True if a text ended because logits are not finite.  A notice has told the user already. */
static bool is_broken(const kvik_result *res)
{
    for (uint32_t i = 0; i < res->n_rows; i++)
        if (res->row[i]->finish == KVIK_FINISH_NOT_FINITE) return true;
    return false;
}

static int print_result(struct generation *r, const kvik_result *res)
{
    kvik_usage usage = {.size = sizeof usage};
    int status = 0;
    bool cancelled = false;
    kvik_cache_usage(r->s.cache, &usage);
    if (r->o->common.json)
        status = report_json(&r->s, &usage, res);
    else
        print_rows(r, res);
    if (fflush(stdout) != 0 || ferror(stdout)) return EXIT_FAILED; /* reported by main */
    tell_limits(r, res);
    tell_default(r, res);
    if (r->o->logits_file) {
        int e = kvik_logits_save(res, r->o->logits_file);
        if (e < 0) return say_error(e);
    }
    if (r->o->cache_report || r->o->common.verbose) report_cache(&r->s, &usage, res);
    for (uint32_t i = 0; i < res->n_rows; i++)
        cancelled |= res->row[i]->finish == KVIK_FINISH_CANCELLED;
    if (is_broken(res) && !status) status = EXIT_FAILED;
    return cancelled && !status ? EXIT_INTERRUPTED : status;
}

/* True if an earlier prompt has loaded nearly all of what the directory has for prompt i.  The call then shares
 * these rows; loading them again would make a copy. */
static bool is_loaded(const struct generation *r, uint32_t i)
{
    const kvik_prompt *p = &r->prompt[i];
    for (uint32_t j = 0; j < i; j++) {
        const kvik_prompt *q = &r->prompt[j];
        size_t same = 0;
        while (same < MIN(p->n, q->n) && p->ids[same] == q->ids[same])
            same++;
        if (r->loaded[j] && ((size_t)r->loaded[j] < same || p->n - same < LEAST_GAIN)) return true;
    }
    return false;
}

/* Makes a sequence for prompt i, with the longest prefix that an earlier run has saved. */
static int prompt_begin(struct generation *r, uint32_t i)
{
    kvik_prompt *p = &r->prompt[i];
    int64_t n = 0;
    if (moves(r))
        return moved_begin(&r->moved, &r->s, r->o->prefix_cache, r->o->recompute, &p->seq);
    if (r->o->prefix_cache && !p->attention_mask && !is_loaded(r, i))
        n = stored_prefix_load(r->s.cache, r->o->prefix_cache, p->ids, p->n, &p->seq);
    if (n > 0 && r->o->common.verbose)
        say_line("%lld of %zu tokens of the prompt come from %s", (long long)n, p->n,
                 r->o->prefix_cache);
    if (n < 0) return (int)n;
    kvik_seq shared;
    int64_t more = p->attention_mask ? 0 : engine_fetch(&r->s, p->ids, p->n, (size_t)n, &shared);
    if (more > 0) {
        if (n) kvik_cache_drop(r->s.cache, p->seq);
        p->seq = shared;
        n = more;
        if (r->o->common.verbose)
            say_line("%lld of %zu tokens of the prompt come from the store", (long long)n, p->n);
    }
    r->loaded[i] = n;
    return n < 0 ? (int)n : n ? 0 : kvik_cache_new(r->s.cache, &p->seq);
}

/* Saves the prompts in the directory.  A failure is printed but not returned, because the text was printed
 * already. */
static void save_prompts(struct generation *r)
{
    int e = 0;
    for (uint32_t i = 0; r->o->prefix_cache && r->s.g.use_cache && i < r->n; i++)
        if (!r->prompt[i].attention_mask)
            e = MIN(e, stored_prefix_save(r->s.cache, r->o->prefix_cache, r->prompt[i].seq));
    for (uint32_t i = 0; r->s.shared && r->s.g.use_cache && i < r->n; i++)
        if (!r->prompt[i].attention_mask) engine_share(&r->s, r->prompt[i].seq);
    if (e < 0) say_error(e);
}

static int generate(struct generation *r)
{
    kvik_result *res;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && r->s.g.use_cache && i < r->n; i++)
        e = prompt_begin(r, i); /* the sequences live until after the report */
    if (e < 0) return say_error(e);
    r->s.g.output_logits = r->o->logits_file != NULL;
    r->stream.prints = r->n == 1 && r->s.g.num_return_sequences == 1 && !r->o->common.json;
    interrupt_catch();
    e = stream_generate(&r->stream, &r->s, &r->s.g, r->prompt, r->n, &res);
    if (e == KVIK_CANCELLED && interrupt_seen()) return EXIT_INTERRUPTED;
    if (e < 0) return say_error(e);
    bool broken = is_broken(res);
    int status = print_result(r, res);
    kvik_result_free(res);
    if (!broken && !moves(r)) save_prompts(r); /* what was moved is nobody else's prefix */
    return status;
}

static int check_line(const struct options *o, const struct args *a, json_t **given)
{
    if (!a->n)
        return say_usage("kvik generate needs a MODEL: a Hugging Face directory or a .gguf file");
    if (o->features && (o->input_ids.n || a->n > 1 || o->common.chats))
        return say_usage("give either --input-features or a text or --input-ids, not both");
    if (o->input_ids.n && a->n > 1) return say_usage("give either --input-ids or PROMPT, not both");
    if (o->input_ids.n && o->common.chats)
        return say_usage("--chat needs text; --input-ids are used as they are");
    if (o->attention_mask.n && o->attention_mask.n != o->input_ids.n)
        return say_usage("%zu --attention-mask for %zu --input-ids; give one each",
                         o->attention_mask.n, o->input_ids.n);
    if (o->documents.n && (o->input_ids.n || o->features || a->n > 2))
        return say_usage("--document takes one PROMPT, without --input-ids");
    if (o->recompute != NO_RECOMPUTE && (!o->documents.n || !o->prefix_cache))
        return say_usage("--recompute needs --document FILE and --prefix-cache DIR");
    if (o->system && !o->common.chats) return say_usage("--system needs --chat");
    if (o->common.template && !o->common.chats) return say_usage("--template needs --chat");
    int status = template_check(o->common.template);
    if (status) return status;
    int e = o->logits_file ? file_writable(o->logits_file) : 0;
    if (e < 0) return err_prefix(e, "--logits-file"), say_error(e);
    if (!o->input_ids.n && !o->features && a->n == 1 && isatty(STDIN_FILENO))
        return say_usage("give a PROMPT, --input-ids, or text on standard input");
    return engine_options(o->config, a->generation, given);
}

static int run_prompts(struct generation *r)
{
    const struct options *o = r->o;
    struct texts texts = {0};
    int status = check_line(o, r->args, &r->given);
    bool from_ids = o->input_ids.n > 0, from_features = o->features != NULL;
    if (status) return status;
    r->n = (uint32_t)(from_ids ? o->input_ids.n : MAX(r->args->n - 1, 1));
    if (from_features && (status = read_features(r))) return status;
    r->prompt = mem_array(r->n, sizeof *r->prompt);
    r->loaded = mem_array(r->n, sizeof *r->loaded);
    r->source = mem_array(r->n, sizeof *r->source);
    if (!r->prompt || !r->loaded || !r->source) return say_error(ERR_NOMEM);
    for (uint32_t i = 0; i < r->n; i++) {
        r->prompt[i].size = sizeof *r->prompt;
        r->source[i].size = sizeof *r->source;
    }
    if (from_ids) status = prompts_of_ids(r);
    if (!status) status = decoder_prompts(r);
    if (!status && !from_ids && !from_features) status = texts_read(r->args, 1, true, &texts);
    if (!status) status = engine_prefix(&r->s, o->prefix_cache);
    if (!status)
        status = engine_open(&r->s, r->args->word[0], &o->common, r->given, r->args->generation);
    r->encoder.size = sizeof r->encoder;
    if (!status && kvik_model_encoder(r->s.model, &r->encoder) < 0) status = say_error(KVIK_ARG);
    if (!status && !from_features) status = check_hears(r);
    if (!status && o->documents.n && r->encoder.layers)
        status = say_failed("--document is for models without an encoder");
    if (!status && moves(r) && !r->s.g.use_cache)
        status = say_failed("--recompute reads rows of a cache; leave --use-cache false out");
    if (!status && !from_ids && !from_features) status = prompts_of_text(r, &texts);
    if (!status && from_features) status = prompts_of_features(r);
    if (!status) status = place_inputs(r);
    if (!status) status = open_cache(r);
    if (!status) status = engine_prefix(&r->s, o->prefix_cache);
    if (!status && r->s.g.use_cache) status = engine_store(&r->s, o->store);
    if (!status) status = generate(r);
    texts_done(&texts);
    return status;
}

static int run_generate(const struct command *self, int argc, char **argv)
{
    struct options o = {.recompute = NO_RECOMPUTE};
    struct args a;
    struct generation r = {.o = &o, .args = &a};
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = run_prompts(&r);
    for (uint32_t i = 0; r.prompt && r.source && i < r.n; i++) {
        if (r.prompt[i].ids != r.source[i].ids) mem_free((void *)(uintptr_t)r.prompt[i].ids);
        mem_free((void *)(uintptr_t)r.source[i].ids);
        mem_free((void *)(uintptr_t)r.source[i].attention_mask);
    }
    mem_free(r.prompt);
    mem_free(r.source);
    mem_free(r.loaded);
    kvik_free(r.features);
    status = engine_close(&r.s, status);
    json_decref(r.given);
    args_done(&a);
    moved_done(&r.moved);
    args_list_done(&o.documents);
    args_list_done(&o.input_ids);
    args_list_done(&o.attention_mask);
    args_list_done(&o.decoder_ids);
    return MAX(status, 0);
}

const struct command command_generate = {
    .name = "generate",
    .usage = "MODEL [PROMPT...]",
    .summary = "continue texts",
    .about =
        "Continues each PROMPT and prints the new text; several prompts are one batch. The\n"
        "PROMPT - is standard input, without the newline at its end, and so is a missing PROMPT; behind -- a\n"
        "dash is a text. A text ends after 20 new tokens, or with --chat after 1024, unless --max-new-tokens or\n"
        "--max-length says otherwise. Ctrl-C stops after the current token, with exit status 130.",
    .run = run_generate,
    .option = table,
    .n_options = countof(table),
    .generation = true,
    .runs_model = true,
};
