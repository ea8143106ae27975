/* events.h - tells routers which blocks the cache holds, in the form of vLLM: a ZMQ socket that publishes each change, and one that
 * gives the newest changes again to those who have missed some.
 *
 * A message has three frames: a topic, a number of 8 bytes, big-endian, and msgpack [time, [event, ..], 0] with the events
 *     ["BlockStored", [hash, ..], hash of the block before or nil, [token, ..], 16, nil, "GPU"]
 *     ["BlockRemoved", [hash, ..], "GPU"]
 *     ["AllBlocksCleared"]
 * "GPU" is the word for where a model computes; here that is the main memory.  The first message clears what is known of a
 * server before, and so does the last one. */
#pragma once
#include "kvik_loop.h"
#include "serve/serve.h"

struct events;
/* Opens the sockets of o->events and o->events_replay; *out is NULL where there are none. */
int events_open(const struct serve_options *o, struct events **out);
/* Tells of the blocks of a cache from now on: in the thread that uses it.  NULL: of none. */
int events_watch(struct events *e, kvik_cache *c);
/* Publishes what has changed since the last call; e may be NULL.  Waits for nobody. */
void events_flush(struct events *e);
void events_close(struct events *e);
