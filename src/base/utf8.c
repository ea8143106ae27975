/* utf8.c - strict UTF-8 decoding and encoding, and hexadecimal digits. */
#include "base/utf8.h"

static int need(unsigned char c)
{
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF) return 2;
    if (c >= 0xE0 && c <= 0xEF) return 3;
    if (c >= 0xF0 && c <= 0xF4) return 4;
    return 0;
}

static bool second_ok(unsigned char a, unsigned char b)
{
    if ((b & 0xC0) != 0x80) return false;
    if (a == 0xE0) return b >= 0xA0;
    if (a == 0xED) return b <= 0x9F; /* surrogates */
    if (a == 0xF0) return b >= 0x90;
    if (a == 0xF4) return b <= 0x8F;
    return true;
}

uint32_t utf8_decode(const char *s, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)s;
    *len = 1;
    if (n == 0) return UTF8_BAD;
    int k = need(u[0]);
    if (k == 1) return u[0];
    if (k == 0 || (size_t)k > n || !second_ok(u[0], u[1])) return UTF8_BAD;
    uint32_t cp = u[0] & (0xFFu >> (k + 1));
    for (int i = 1; i < k; i++) {
        if ((u[i] & 0xC0) != 0x80) return UTF8_BAD;
        cp = cp << 6 | (u[i] & 0x3Fu);
    }
    *len = (size_t)k;
    return cp;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | (cp >> 18 & 7));
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0, k; i < n; i += k)
        if (utf8_decode(s + i, n - i, &k) == UTF8_BAD) return false;
    return true;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t c = 0;
    for (size_t i = 0, k; i < n; i += k, c++)
        utf8_decode(s + i, n - i, &k);
    return c;
}

size_t utf8_pending(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = u[n - back];
        if ((c & 0xC0) == 0x80) continue;
        int k = need(c);
        if (k < 2 || (size_t)k <= back) return 0;
        if (back >= 2 && !second_ok(c, u[n - back + 1])) return 0;
        return back;
    }
    return 0;
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}
