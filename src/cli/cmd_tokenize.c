/* cmd_tokenize.c - kvik tokenize: converts text to token ids and back with the tokenizer of a model. */
#include "cli/cli.h"
#include "kvik_loop.h"

#include <unistd.h>

struct options {
    struct common common;
    const char *jsonl;
    bool add_special, skip_special, decode, pieces;
};

static const struct arg_option table[] = {
    {"decode", ARG_FLAG, offsetof(struct options, decode), NULL, NULL,
     "print the text of token ids; TEXT is a list such as 1,2,3"},
    {"pieces", ARG_FLAG, offsetof(struct options, pieces), NULL, NULL,
     "print one token a line: id, tab, its text as JSON"},
    {"add-special-tokens", ARG_BOOL, offsetof(struct options, add_special), "true|false", NULL,
     "add the tokens that the tokenizer puts around a text (default: true)"},
    {"skip-special-tokens", ARG_BOOL, offsetof(struct options, skip_special), "true|false", NULL,
     "leave special tokens out when decoding (default: false)"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "print one JSON object per TEXT"},
    {"jsonl", ARG_TEXT, offsetof(struct options, jsonl), "FILE|-", NULL,
     "answer each line: {\"text\", \"add_special_tokens\"} with {\"ids\"}, {\"ids\", \"skip_special_tokens\"} with {\"text\"}"},
};

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

static json_t *encode_json(const kvik_tokenizer *t, const char *text, size_t len, bool add_special)
{
    int32_t *ids;
    size_t n;
    if (kvik_tokenizer_encode(t, text, len, add_special, &ids, &n) < 0) return NULL;
    json_t *o = json_pack("{s:o}", "ids", ids_json(ids, n));
    kvik_free(ids);
    return o;
}

static json_t *decode_json(const kvik_tokenizer *t, const int32_t *ids, size_t n, bool skip_special)
{
    char *text;
    size_t len;
    if (kvik_tokenizer_decode(t, ids, n, skip_special, &text, &len) < 0) return NULL;
    json_t *o = json_pack("{s:o}", "text", say_json(text, len));
    kvik_free(text);
    return o;
}

static json_t *answer_ids(const kvik_tokenizer *t, const json_t *list, bool skip_special)
{
    size_t n = json_array_size(list);
    int32_t *ids = mem_array(n ? n : 1, sizeof *ids);
    if (!ids) return NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX) {
            mem_free(ids);
            err_set(ERR_ARG, "request: \"ids\" must be a list of token ids");
            return NULL;
        }
        ids[i] = (int32_t)id;
    }
    json_t *o = decode_json(t, ids, n, skip_special);
    mem_free(ids);
    return o;
}

static json_t *tokenize_request(void *ctx, const json_t *request)
{
    const kvik_tokenizer *t = ctx;
    const json_t *text = json_object_get(request, "text"), *ids = json_object_get(request, "ids");
    bool add_special = true, skip_special = false;
    if (json_get_bool(request, "request", "add_special_tokens", &add_special) < 0 ||
        json_get_bool(request, "request", "skip_special_tokens", &skip_special) < 0)
        return NULL;
    if (json_is_string(text) && !ids)
        return encode_json(t, json_string_value(text), json_string_length(text), add_special);
    if (json_is_array(ids) && !text) return answer_ids(t, ids, skip_special);
    err_set(ERR_ARG, "request: give either \"text\", a string, or \"ids\", a list of token ids");
    return NULL;
}

static int print_pieces(const kvik_tokenizer *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text, *quoted;
        size_t len;
        int e = kvik_tokenizer_decode(t, &ids[i], 1, false, &text, &len);
        if (e < 0) return say_error(e);
        json_t *j = say_json(text, len);
        e = json_text(j, &quoted);
        json_decref(j);
        kvik_free(text);
        if (e < 0) return say_error(e);
        printf("%d\t%s\n", ids[i], quoted);
        mem_free(quoted);
    }
    return 0;
}

static int encode_one(const struct options *o, const kvik_tokenizer *t, const char *text,
                      size_t len)
{
    int32_t *ids;
    size_t n;
    int e = kvik_tokenizer_encode(t, text, len, o->add_special, &ids, &n), status = 0;
    if (e < 0) return say_error(e);
    if (o->common.json)
        status = say_json_line(json_pack("{s:o}", "ids", ids_json(ids, n)));
    else if (o->pieces)
        status = print_pieces(t, ids, n);
    else
        ids_print(ids, n);
    kvik_free(ids);
    return status;
}

/* Prints the text of ids as the decoder gives it, once all ids are known to be in the vocabulary. */
static int print_text(const kvik_tokenizer *t, const int32_t *ids, size_t n, bool skip_special)
{
    kvik_decoder *d;
    const char *text;
    int e = kvik_decoder_open(t, skip_special, &d);
    if (e < 0) return say_error(e);
    int64_t len = kvik_decoder_put(d, ids, n, &text);
    if (len >= 0) {
        fwrite(text, 1, (size_t)len, stdout);
        len = kvik_decoder_flush(d, &text);
    }
    if (len >= 0) {
        fwrite(text, 1, (size_t)len, stdout);
        putchar('\n');
    }
    int status = len < 0 ? say_error((int)len) : 0;
    kvik_decoder_close(d);
    return status;
}

static int decode_one(const struct options *o, const kvik_tokenizer *t, const char *list)
{
    int32_t *ids;
    size_t n;
    int status = ids_parse("--decode", list, &ids, &n);
    if (status) return status;
    if (o->common.json) {
        json_t *text = decode_json(t, ids, n, o->skip_special);
        status = text ? say_json_line(text) : say_error(KVIK_ARG);
    } else {
        status = print_text(t, ids, n, o->skip_special);
    }
    mem_free(ids);
    return status;
}

static int each_text(const struct options *o, const struct args *a, const kvik_tokenizer *t)
{
    if (o->jsonl) return jsonl_run(o->jsonl, tokenize_request, (void *)(uintptr_t)t);
    struct texts texts;
    int status = texts_read(a, 1, false, &texts);
    for (size_t i = 0; i < texts.n && !status; i++)
        status = o->decode ? decode_one(o, t, texts.text[i].s)
                           : encode_one(o, t, texts.text[i].s, texts.text[i].n);
    texts_done(&texts);
    return status;
}

static int convert_texts(const struct options *o, const struct args *a)
{
    if (!a->n)
        return say_usage(
            "kvik tokenize needs a MODEL: a directory with tokenizer files or a .gguf file");
    if (o->jsonl && a->n > 1) return say_usage("give either --jsonl or TEXT, not both");
    if (o->pieces && (o->decode || o->common.json))
        return say_usage("--pieces goes with neither --decode nor --json");
    if (!o->jsonl && a->n == 1 && isatty(STDIN_FILENO))
        return say_usage("give TEXT, --jsonl, or text on standard input");
    kvik_tokenizer *t;
    char found[HUB_PATH];
    int e = model_locate(a->word[0], found);
    if (e >= 0) e = kvik_tokenizer_open(found, &t);
    if (e < 0) return say_error(e);
    int status = each_text(o, a, t);
    kvik_tokenizer_close(t);
    return status;
}

static int run_tokenize(const struct command *self, int argc, char **argv)
{
    struct options o = {.add_special = true};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = convert_texts(&o, &a);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .usage = "MODEL [TEXT...]",
    .summary = "texts to token ids and back",
    .about =
        "Prints the token ids of each TEXT. The TEXT - is standard input, and so is a missing TEXT; behind -- a\n"
        "dash is a text. MODEL can be a directory with tokenizer files alone.",
    .run = run_tokenize,
    .option = table,
    .n_options = countof(table),
};
