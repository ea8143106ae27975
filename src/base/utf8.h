/* utf8.h - strict UTF-8 (no surrogates, no overlong forms, at most U+10FFFF), and hexadecimal digits. */
#pragma once
#include "base/base.h"

#define UTF8_BAD 0xFFFFFFFFu
/* Returns the code point at s[0..n) and writes its byte length to *len; UTF8_BAD with *len = 1 if it is malformed
 * or incomplete. */
uint32_t utf8_decode(const char *s, size_t n, size_t *len);
size_t utf8_encode(uint32_t cp, char out[4]); /* bytes written, 1..4 */
bool utf8_valid(const char *s, size_t n);
/* Returns where the character begins that ends just before s[at]; at > 0. */
static inline size_t utf8_back(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}
/* Returns the value of a hexadecimal digit of either case, or -1. */
int hex_digit(char c);
size_t utf8_count(const char *s, size_t n); /* code points; each malformed byte counts as one */
/* Returns how many bytes (0..3) at the end of s begin an incomplete character; a stream holds these back. */
size_t utf8_pending(const char *s, size_t n);
