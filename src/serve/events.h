/* events.h - tells routers which blocks the cache holds, in the form of vLLM.  One ZMQ socket publishes each change; another one repeats
 * the newest changes for subscribers that have missed some.
 *
 * A message has three frames: a topic, a number of 8 bytes, big-endian, and msgpack [time, [event, ..], 0] with the events
 *   ["BlockStored", [hash, ..], hash of the block before or nil, [token, ..], 16, nil, "GPU"]
 *   ["BlockRemoved", [hash, ..], "GPU"]
 *   ["AllBlocksCleared"]
 * "GPU" is vLLM's word for the memory of the device that computes; here that is main memory.  The first message clears what routers know
 * of an earlier server, and the last message clears what they know of this one. */
#pragma once
#include "kvik_loop.h"
#include "serve/serve.h"

struct events;
/* Opens the sockets of o->events and o->events_replay.  *out is NULL if no endpoint is given. */
int events_open(const struct serve_options *o, struct events **out);
/* From now on publishes the blocks of cache c; c NULL: of no cache.  Only the thread that uses the cache calls this. */
int events_watch(struct events *e, kvik_cache *c);
/* Publishes what has changed since the last call; e may be NULL.  Waits for nobody. */
void events_flush(struct events *e);
void events_close(struct events *e);
