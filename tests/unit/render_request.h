/* render_request.h - renders a conversation that a test writes as one JSON object: {"messages", "kwargs",
 * "special_tokens"}. */
#pragma once
#include "base/json.h"
#include "kvik.h"
#include "testing.h"

static inline int render_request(const char *template_text, const char *request, char **text)
{
    static const char *const key[] = {"messages", "kwargs", "special_tokens"};
    char *part[3] = {NULL, NULL, NULL};
    json_t *o;
    assert_int_equal(json_parse(request, strlen(request), "request", &o), 0);
    for (size_t i = 0; i < countof(key); i++)
        if (json_object_get(o, key[i]))
            assert_int_equal(json_text(json_object_get(o, key[i]), &part[i]), 0);
    const kvik_chat chat = {.size = sizeof chat,
                            .json = part[0],
                            .kwargs = part[1],
                            .template_text = template_text,
                            .special_tokens = part[2]};
    int e = kvik_chat_render(NULL, &chat, text);
    for (size_t i = 0; i < countof(key); i++)
        mem_free(part[i]);
    json_decref(o);
    return e;
}
