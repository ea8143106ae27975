/* messages.c - messages that a program gives as structs, made into JSON. */
#include "api/messages.h"
#include "chat/chat.h"
#include "generate/sizes.h"

int messages_of(const kvik_message *message, size_t n, json_t **out)
{
    JSON_SCOPE(scope);
    json_t *list = json_array();
    int e = list ? 0 : ERR(NOMEM, "out of memory");
    for (size_t i = 0; e >= 0 && i < n; i++) {
        kvik_message m = {0};
        json_t *o = json_object();
        if (!o || json_array_append_new(list, o) < 0) e = ERR(NOMEM, "out of memory");
        if (e >= 0) e = SIZED_NTH(&m, message, i, kvik_message);
        if (e >= 0) e = chat_message(o, i, m.role, m.content, m.more);
    }
    if (e >= 0) e = json_whole(&scope);
    if (e < 0)
        json_decref(list);
    else
        *out = list;
    return e;
}

KVIK_API int kvik_messages_json(const kvik_message *message, size_t n, char **json)
{
    json_t *list;
    if ((!message && n) || !json)
        return ERR(ARG, "messages and a pointer for the text are needed, and one of them is NULL");
    TRY(messages_of(message, n, &list));
    int e = json_text(list, json);
    json_decref(list);
    return e;
}
