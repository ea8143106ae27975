/* segments.c - cuts the tokens of a window into segments at their timestamps, as Transformers does.  Two
 * timestamps in a row are the end of one segment and the beginning of the next.  The window ends somewhere in the
 * middle of the segment after the last pair.  So that segment is dropped, and the next window begins at the pair.
 * A single timestamp at the end says that nothing is spoken after it. */
#include "speech/speech.h"

size_t segments_cut(const struct speech_marks *k, const int32_t *ids, size_t n, uint32_t frames,
                    struct speech_part *part, uint32_t *advance)
{
    int32_t first = k->first_timestamp;
    size_t n_parts = 0, from = 0;
    bool single = n >= 2 && ids[n - 2] < first && ids[n - 1] >= first;
    *advance = frames;
    for (size_t i = 0; i + 1 < n; i++)
        if (ids[i] >= first && ids[i + 1] >= first) {
            part[n_parts++] = (struct speech_part){.from = from, .to = i + 1};
            from = i + 1;
        }
    if (!n_parts) {
        /* All tokens are one segment, which ends at the last timestamp or at the end of the window. */
        double end = (double)(uint32_t)(frames * SPEECH_FRAME / SPEECH_TICK);
        size_t at = n;
        while (at > 0 && ids[at - 1] < first)
            at--;
        if (at > 0 && ids[at - 1] != first) end = ids[at - 1] - first;
        part[0] = (struct speech_part){0, n, 0, end * SPEECH_TICK};
        return 1;
    }
    if (single)
        part[n_parts++] = (struct speech_part){.from = from, .to = n};
    else
        part[n_parts - 1].to++; /* keeps the second timestamp, which says that the text went on */
    for (size_t i = 0; i < n_parts; i++) {
        struct speech_part *p = &part[i];
        size_t last = p->to - (i + 1 < n_parts || single ? 1 : 2);
        p->start = (ids[p->from] - first) * SPEECH_TICK;
        p->end = (ids[last] - first) * SPEECH_TICK;
    }
    if (!single) {
        int64_t at = (int64_t)(ids[part[n_parts - 1].to - 2] - first) *
                     (int64_t)(SPEECH_TICK / SPEECH_FRAME);
        /* A window must not begin where the last one did, or the loop would never end. */
        if (at > 0) *advance = (uint32_t)at;
    }
    return n_parts;
}
