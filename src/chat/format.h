/* format.h - one field of a format text, shared by % and .format(). */
#pragma once
#include "chat/value.h"

#define WIDTH_MAX (1 << 20)

struct spec {
    bool left, zero, plus, space, alt, comma;
    char align; /* < > ^ =, 0: the type's */
    uint32_t fill;
    int width, prec; /* prec -1: none */
    char conv;
};

int put_text(struct run *r, struct buf *out, const struct spec *s, struct val v);
int put_int(struct run *r, struct buf *out, const struct spec *s, int64_t v, char conv);
int put_float(struct run *r, struct buf *out, const struct spec *s, double f, char conv);
