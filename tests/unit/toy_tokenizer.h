/* toy_tokenizer.h - a byte-level BPE without merges, as files.  Ids 0..3 are special (<s>, </s>, <user>, <bot>),
 * the 256 bytes follow, and then words that no text has.  It puts <s> before a text.  And a tokenizer in memory
 * whose tokens have two letters. */
#pragma once
#include "base/buf.h"
#include "base/file.h"
#include "base/utf8.h"
#include "testing.h"
#include "tok/tok.h"

static inline void toy_put(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write(path, text, strlen(text)), 0);
}

/* Writes the tokenizer's files, with `size` ids, at least 260. */
static inline void toy_tokenizer(const char *dir, uint32_t size)
{
    static const char *const special[] = {"<s>", "</s>", "<user>", "<bot>"};
    struct buf b;
    uint32_t extra = 0;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"version\": \"1.0\", \"added_tokens\": [");
    for (int i = 0; i < 4; i++)
        buf_printf(&b,
                   "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                   "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                   i ? "," : "", i, special[i]);
    buf_puts(
        &b,
        "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
        "{\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
        "\"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0], \"tokens\": "
        "[\"<s>\"]}}}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"<s>\": 0, \"</s>\": 1, \"<user>\": 2, \"<bot>\": 3");
    for (uint32_t c = 0; c < 256; c++) {
        bool plain = (c > 32 && c < 127) || (c > 160 && c != 173);
        char text[5] = {0};
        utf8_encode(plain ? c : 256 + extra++, text);
        buf_printf(&b, ", \"%s%s\": %u", c == '"' || c == '\\' ? "\\" : "", text, c + 4);
    }
    for (uint32_t id = 260; id < size; id++)
        buf_printf(&b, ", \"w%u\": %u", id, id);
    buf_puts(&b, "}, \"merges\": []}}");
    toy_put(dir, "tokenizer.json", b.data);
    buf_done(&b);
    toy_put(dir, "tokenizer_config.json",
            "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"chat_template\": "
            "\"{{ bos_token }}{% for m in messages %}<user>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<bot>{% endif %}{{ mood }}\"}");
}

static inline void toy_unlink(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static inline void toy_remove(const char *dir)
{
    toy_unlink(dir, "tokenizer.json");
    toy_unlink(dir, "tokenizer_config.json");
}

/* Opens a tokenizer of 384 ids without merges; id i is the letters a + i % 20 and b + i / 20. */
static inline struct tok *toy_pairs(char a, char b)
{
    char json[8192];
    int n = snprintf(json, sizeof json,
                     "{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": "
                     "\"BPE\", \"merges\": [], \"vocab\": {");
    for (int i = 0; i < 384; i++)
        n += snprintf(json + n, sizeof json - (size_t)n, "%s\"%c%c\": %d", i ? ", " : "",
                      a + i % 20, b + i / 20, i);
    n += snprintf(json + n, sizeof json - (size_t)n, "}}}");
    struct tok *t;
    if (tok_open_json(json, (size_t)n, NULL, 0, &t) < 0) fail_msg("%s", err_last());
    return t;
}
