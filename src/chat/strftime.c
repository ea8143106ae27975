/* strftime.c - strftime_now: the caller's moment, or the clock, in the C locale's words. */
#include "chat/value.h"

#include <string.h>
#include <time.h>

static void now_of(const struct jinja_now *now, struct tm *tm)
{
    time_t t = time(NULL);
    memset(tm, 0, sizeof *tm);
    localtime_r(&t, tm);
    if (!now->set) return;
    *tm = (struct tm){.tm_year = now->year - 1900,
                      .tm_mon = now->month - 1,
                      .tm_mday = now->day,
                      .tm_hour = now->hour,
                      .tm_min = now->minute,
                      .tm_sec = now->second};
    struct tm day = *tm;
    day.tm_hour = 12;
    if (timegm(&day) == (time_t)-1 && day.tm_year != 69) return;
    tm->tm_wday = day.tm_wday;
    tm->tm_yday = day.tm_yday;
}

static const char *const month[] = {"January",   "February", "March",    "April",
                                    "May",       "June",     "July",     "August",
                                    "September", "October",  "November", "December"};
static const char *const weekday[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

/* ISO 8601 week and its year. */
static int iso_week(const struct tm *tm, int *year)
{
    int wday = (tm->tm_wday + 6) % 7, week = (tm->tm_yday - wday + 10) / 7;
    *year = tm->tm_year + 1900;
    for (int k = 0; k < 2; k++) {
        int y = k ? *year : *year - 1; /* the year whose length decides */
        bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        int jan1 = (wday - tm->tm_yday % 7 + 7 + (k ? 0 : -(365 + leap) % 7) + 14) % 7;
        int weeks = jan1 == 3 || (leap && jan1 == 2) ? 53 : 52;
        if (k == 0 && week < 1) {
            *year = y;
            return weeks;
        }
        if (k == 1 && week > weeks) {
            *year = y + 1;
            return 1;
        }
    }
    return week;
}

static int put(struct buf *out, const struct tm *tm, char c, bool pad);

static int put_number(struct buf *out, int v, int width, bool pad)
{
    return buf_printf(out, "%0*d", pad ? width : 1, v);
}

static int put_many(struct buf *out, const struct tm *tm, const char *parts)
{
    for (; *parts; parts++) {
        bool letter = (*parts | 32) >= 'a' && (*parts | 32) <= 'z';
        TRY(letter ? put(out, tm, *parts, true) : buf_putc(out, *parts));
    }
    return 0;
}

static int put_date(struct buf *out, const struct tm *tm, char c, bool pad)
{
    int year = tm->tm_year + 1900, iso;
    switch (c) {
    case 'd':
        return put_number(out, tm->tm_mday, 2, pad);
    case 'e':
        return buf_printf(out, "%2d", tm->tm_mday);
    case 'm':
        return put_number(out, tm->tm_mon + 1, 2, pad);
    case 'Y':
        return put_number(out, year, 1, true);
    case 'y':
        return put_number(out, ((year % 100) + 100) % 100, 2, pad);
    case 'C':
        return put_number(out, year / 100, 2, pad);
    case 'j':
        return put_number(out, tm->tm_yday + 1, 3, pad);
    case 'U':
        return put_number(out, (tm->tm_yday + 7 - tm->tm_wday) / 7, 2, pad);
    case 'W':
        return put_number(out, (tm->tm_yday + 7 - (tm->tm_wday + 6) % 7) / 7, 2, pad);
    case 'w':
        return put_number(out, tm->tm_wday, 1, pad);
    case 'u':
        return put_number(out, tm->tm_wday ? tm->tm_wday : 7, 1, pad);
    case 'V':
        return put_number(out, iso_week(tm, &iso), 2, pad);
    case 'G':
        iso_week(tm, &iso);
        return put_number(out, iso, 1, true);
    case 'a':
        return buf_append(out, weekday[tm->tm_wday], 3);
    case 'A':
        return buf_puts(out, weekday[tm->tm_wday]);
    case 'b':
    case 'h':
        return buf_append(out, month[tm->tm_mon], 3);
    case 'B':
        return buf_puts(out, month[tm->tm_mon]);
    default:
        return buf_printf(out, "%%%c", c);
    }
}

static int put(struct buf *out, const struct tm *tm, char c, bool pad)
{
    int hour12 = tm->tm_hour % 12 ? tm->tm_hour % 12 : 12;
    struct tm copy = *tm;
    switch (c) {
    case 'H':
        return put_number(out, tm->tm_hour, 2, pad);
    case 'k':
        return buf_printf(out, "%2d", tm->tm_hour);
    case 'I':
        return put_number(out, hour12, 2, pad);
    case 'l':
        return buf_printf(out, "%2d", hour12);
    case 'M':
        return put_number(out, tm->tm_min, 2, pad);
    case 'S':
        return put_number(out, tm->tm_sec, 2, pad);
    case 'f':
        return buf_puts(out, "000000");
    case 'p':
        return buf_puts(out, tm->tm_hour < 12 ? "AM" : "PM");
    case 'P':
        return buf_puts(out, tm->tm_hour < 12 ? "am" : "pm");
    case 's':
        copy.tm_isdst = -1;
        return buf_printf(out, "%lld", (long long)mktime(&copy));
    case 'z': /* a moment without a time zone */
    case 'Z':
        return 0;
    case 'n':
        return buf_putc(out, '\n');
    case 't':
        return buf_putc(out, '\t');
    case '%':
        return buf_putc(out, '%');
    case 'F':
        return put_many(out, tm, "Y-m-d");
    case 'T':
    case 'X':
        return put_many(out, tm, "H:M:S");
    case 'R':
        return put_many(out, tm, "H:M");
    case 'D':
    case 'x':
        return put_many(out, tm, "m/d/y");
    case 'r':
        return put_many(out, tm, "I:M:S p");
    case 'c':
        return put_many(out, tm, "a b e H:M:S Y");
    default:
        return put_date(out, tm, c, pad);
    }
}

int strftime_text(struct run *r, const struct str *fmt, struct buf *out)
{
    struct tm tm;
    now_of(&r->now, &tm);
    if (tm.tm_wday < 0 || tm.tm_wday > 6 || tm.tm_mon < 0 || tm.tm_mon > 11)
        return ERR(ARG, "strftime_now: the given moment is not a date");
    for (size_t i = 0; i < fmt->n; i++) {
        char ch = fmt->s[i];
        if (ch != '%' || i + 1 == fmt->n) {
            TRY(buf_putc(out, ch));
            continue;
        }
        bool pad = fmt->s[i + 1] != '-' || i + 2 == fmt->n;
        i += pad ? 1 : 2;
        TRY(run_work(r, 1));
        TRY(put(out, &tm, fmt->s[i], pad));
    }
    return 0;
}
