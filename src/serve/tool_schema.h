/* tool_schema.h - the JSON schema of a demanded call. */
#pragma once
#include "base/json.h"

/* Makes the schema of a call of one tool, or returns NULL if the tool has no name.  arguments: the model's own name for
 * the arguments of a call. */
json_t *tool_call_schema(const json_t *tool, const char *arguments);
/* Gives the objects of a schema only properties that it names, where it says nothing of others. */
void tool_schema_close(json_t *schema);
/* Makes the arguments of such a schema ready to stand where the whole schema has them: alone, or as number i of several
 * under "anyOf".  Their references lead to their new places, and their objects have only named properties. */
int tool_call_settle(json_t *call, const char *arguments, bool alone, size_t i);
