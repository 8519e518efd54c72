/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An expert peer's client: the header, then records of a fixed length. */
#include "field/records.h"
#include "field/serve.h"

#include <errno.h>

static int answer(struct gs_field_client *client, const struct gs_experts_request *request,
                  struct gpusys_error *error)
{
    struct gs_store *layers = &client->field->layers;
    uint64_t stride = client->field->record_bytes;
    bool known = request->layer < layers->n_files;
    struct gs_region *file = layers->files[known ? request->layer : 0];
    return gs_serve_bytes(client, file, known && request->record < file->length / stride,
                          request->record * stride, stride, error);
}

static int serve_tcp(struct gs_field_client *client, struct gpusys_error *error)
{
    unsigned char bytes[GS_EXPERTS_REQUEST_BYTES];
    bool more;
    gs_client_opened(client, false, "tcp");
    for (;;) {
        int code = gs_serve_request(client, bytes, sizeof bytes, &more, error);
        struct gs_experts_request request = gs_experts_request_get(bytes);
        if (code || !more || (request.layer == GS_GOODBYE && request.record == GS_GOODBYE))
            return code;
        code = answer(client, &request, error);
        if (code)
            return code;
    }
}

int gs_serve_experts(struct gs_field_client *client, struct gpusys_error *error)
{
    struct gpusys_field *field = client->field;
    uint8_t mode;
    int code = gs_client_write_text(client, "the header", field->header, field->header_bytes, error);
    if (!code)
        code = gs_client_read(client, "the transport byte", &mode, 1, error);
    if (code)
        return code;
    if (mode == GPUSYS_MODE_VERBS)
        return gs_serve_store(client, &field->layers, error);
    if (mode == GPUSYS_MODE_TCP)
        return serve_tcp(client, error);
    return gpusys_error_set(error, -EBADMSG, "a transport byte of %u; there are 0 (tcp) and 1 (verbs)", mode);
}
