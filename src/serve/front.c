/* front.c - GET /: the page of the server, one file that loads nothing else.  The page needs no key, but the data
 * that it shows does. */
#include "serve/protocol.h"

__asm__(".section .rodata\n"
        "kvik_front_page:\n"
        ".incbin \"src/serve/page/front.html\"\n"
        "kvik_front_page_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char kvik_front_page[], kvik_front_page_end[];

static int front(struct server *s, struct exchange *x)
{
    size_t n = (size_t)(kvik_front_page_end - kvik_front_page);
    char *text = mem_strndup(kvik_front_page, n);
    (void)s;
    if (!text) return ERR_NOMEM;
    exchange_answer(x, 200, "text/html; charset=utf-8", text, n);
    return 0;
}

static const struct route front_routes[] = {
    {"/", EXCHANGE_GET, .open = true, .light = true, .protocol = &protocol_openai, .answer = front},
};
ROUTES(front_routes);
