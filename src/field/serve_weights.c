/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A weight peer's client: a model by name, its manifest, its shards. */
#include "base/cursor.h"
#include "field/records.h"
#include "field/serve.h"

#include <errno.h>
#include <string.h>

/* ---- which model ---- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* By full path, or by the last part where that is one model's alone. *ret_count: how many answer to it. */
static struct gs_model *find_model(struct gpusys_field *field, const char *name, unsigned *ret_count)
{
    struct gs_model *found = NULL;
    *ret_count = 0;
    pthread_mutex_lock(&field->lock);
    for (struct gs_model *model = field->models; model; model = model->next) {
        bool exact = strcmp(model->path, name) == 0;
        if (exact)
            *ret_count = 0;
        if (exact || strcmp(last_part(model->path), name) == 0) {
            found = model;
            ++*ret_count;
        }
        if (exact)
            break;
    }
    pthread_mutex_unlock(&field->lock);
    return *ret_count == 1 ? found : NULL;
}

static int read_name(struct gs_field_client *client, char name[GS_MODEL_MAX + 1], struct gpusys_error *error)
{
    unsigned char head[4];
    const unsigned char *at = head;
    int code = gs_client_read(client, "the model request", head, sizeof head, error);
    if (code)
        return code;
    uint32_t size = gs_get_u32(&at);
    if (size < 1 || size > GS_MODEL_MAX)
        return gpusys_error_set(error, -EBADMSG, "a model request of %u bytes, 1 to %d are possible", size,
                                GS_MODEL_MAX);
    code = gs_client_read(client, "the model request", name, size, error);
    name[size] = 0;
    if (!code && strlen(name) != size)
        return gpusys_error_set(error, -EBADMSG, "a model request with a NUL in it");
    return code;
}

static int choose_model(struct gs_field_client *client, struct gs_model **ret_model,
                        struct gpusys_error *error)
{
    char name[GS_MODEL_MAX + 1];
    unsigned count;
    int code = read_name(client, name, error);
    if (code)
        return code;
    *ret_model = find_model(client->field, name, &count);
    if (count > 1)
        return gpusys_error_set(error, -ENOENT,
                                "\"%.200s\" is the last part of %u models: the full path says which", name,
                                count);
    if (!*ret_model)
        return gpusys_error_set(error, -ENOENT, "there is no model \"%.200s\" here", name);
    return 0;
}

/* ---- tcp ---- */

static int answer(struct gs_field_client *client, const struct gs_store *store,
                  const struct gs_weights_request *request, struct gpusys_error *error)
{
    bool known = request->shard < store->n_files;
    struct gs_region *file = store->files[known ? request->shard : 0];
    if (request->length > GS_PIECE_MAX)
        return gpusys_error_set(error, -EPROTO, "a request for %u bytes, %d are possible", request->length,
                                GS_PIECE_MAX);
    return gs_serve_bytes(client, file,
                          known && gs_range_fits(file->length, request->offset, request->length),
                          request->offset, request->length, error);
}

static int serve_tcp(struct gs_field_client *client, const struct gs_store *store, struct gpusys_error *error)
{
    unsigned char bytes[GS_WEIGHTS_REQUEST_BYTES];
    bool more;
    gs_client_opened(client, false, "tcp");
    for (;;) {
        int code = gs_serve_request(client, bytes, sizeof bytes, &more, error);
        struct gs_weights_request request = gs_weights_request_get(bytes);
        if (code || !more || request.shard == GS_GOODBYE)
            return code;
        code = answer(client, store, &request, error);
        if (code)
            return code;
    }
}

int gs_serve_weights(struct gs_field_client *client, struct gpusys_error *error)
{
    struct gs_model *model;
    uint8_t mode;
    int code = choose_model(client, &model, error);
    if (!code)
        code = gs_client_write_text(client, "the manifest", model->manifest, model->manifest_bytes, error);
    if (!code)
        code = gs_client_read(client, "the transport byte", &mode, 1, error);
    if (code)
        return code;
    if (mode == GPUSYS_MODE_VERBS)
        return gs_serve_store(client, &model->store, error);
    if (mode == GPUSYS_MODE_TCP)
        return serve_tcp(client, &model->store, error);
    return gpusys_error_set(error, -EBADMSG, "a transport byte of %u; there are 0 (tcp) and 1 (verbs)", mode);
}
