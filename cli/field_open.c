/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From an address to a remote over a peer of the field, by way of what the peer says of itself. */
#include "field.h"

#include <errno.h>
#include <gpusys/verbs.h>
#include <stdlib.h>
#include <string.h>

enum exit_code field_exit_code(int code, bool only_verbs)
{
    return code && only_verbs && gpusys_verbs_status(NULL) ? EXIT_NOT_HERE : exit_code_of(code);
}

static int ask(struct gpusys_field_talk **ret_talk, const struct field_wishes *wishes,
               struct gpusys_error *error)
{
    return wishes->kind == GPUSYS_FIELD_WEIGHTS
               ? gpusys_weights_ask(ret_talk, wishes->address, wishes->model, &wishes->options, error)
               : gpusys_experts_ask(ret_talk, wishes->address, &wishes->options, error);
}

/* The talk is closed here in any case. */
static int connect_with(struct gpusys_remote **ret_remote, struct gpusys_field_talk *talk, uint32_t kind,
                        const char *text, size_t bytes, struct gpusys_error *error)
{
    struct field_table table = {0};
    int code = kind == GPUSYS_FIELD_WEIGHTS ? field_table_of_manifest(&table, text, bytes, error)
                                            : field_table_of_header(&table, text, bytes, error);
    if (code)
        gpusys_field_talk_close(talk);
    else
        code =
            gpusys_field_connect(ret_remote, talk, table.regions, table.n_regions, table.record_bytes, error);
    field_table_free(&table);
    return code;
}

int field_open(struct gpusys_remote **ret_remote, const struct field_wishes *wishes, char **ret_text,
               size_t *ret_bytes, struct gpusys_error *error)
{
    struct gpusys_field_talk *talk;
    size_t bytes;
    int code = ask(&talk, wishes, error);
    if (code)
        return code;
    const char *said = gpusys_field_text(talk, &bytes);
    char *text = malloc(bytes + 1);
    if (!text) {
        gpusys_field_talk_close(talk);
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    }
    memcpy(text, said, bytes + 1);
    code = connect_with(ret_remote, talk, wishes->kind, text, bytes, error);
    if (code) {
        free(text);
        return code;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}
