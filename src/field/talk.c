/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Asking a weight or expert peer what it has. */
#include "field/talk.h"

#include "base/cursor.h"
#include "base/options.h"
#include "field/records.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <stdlib.h>

static const int64_t default_timeout_ns = 10000000000;

enum { TEXT_STEP_BYTES = 1024 * 1024 };

/* ---- options ---- */

static int check_options(const struct gpusys_field_options *options, struct gpusys_error *error)
{
    if (options->require > GPUSYS_TRANSPORT_VERBS || options->require == GPUSYS_TRANSPORT_SHM)
        return gpusys_error_set(error, -EINVAL, "the field's dialects go over verbs or tcp, not over %s",
                                gpusys_transport_name(options->require));
    if (options->reserved || options->n_rails > GPUSYS_MAX_RAILS_READ_ONLY ||
        (options->n_devices > 0) != (options->devices != NULL))
        return gpusys_error_set(
            error, -EINVAL,
            "the options of a field client: %u rails of at most %u, %u devices with %s list, "
            "or a reserved field",
            options->n_rails, GPUSYS_MAX_RAILS_READ_ONLY, options->n_devices, options->devices ? "a" : "no");
    return 0;
}

static int copy_devices(struct gpusys_field_options *options)
{
    const char *const *given = options->devices;
    options->devices = NULL;
    if (!given)
        return 0;
    char **copy = calloc(options->n_devices, sizeof *copy);
    options->devices = (const char *const *)copy;
    for (uint32_t i = 0; copy && i < options->n_devices; i++)
        if (!(copy[i] = strdup(given[i] ? given[i] : "any")))
            return -ENOMEM;
    return copy ? 0 : -ENOMEM;
}

int gs_field_options_take(struct gpusys_field_options *ret_options, const struct gpusys_field_options *given,
                          struct gpusys_error *error)
{
    struct gpusys_field_options options;
    int result = gs_options_take(&options, sizeof options, given);
    *ret_options = (struct gpusys_field_options){.size = sizeof options};
    if (result)
        return gpusys_error_set(error, result, "the options of a field client are of another version");
    result = check_options(&options, error);
    if (result)
        return result;
    *ret_options = options;
    result = copy_devices(ret_options);
    return result ? gpusys_error_set_errno(error, result, "a field client") : 0;
}

void gs_field_options_free(struct gpusys_field_options *options)
{
    char **devices = (char **)(uintptr_t)options->devices;
    for (uint32_t i = 0; devices && i < options->n_devices; i++)
        free(devices[i]);
    free(devices);
    options->devices = NULL;
}

int64_t gs_field_deadline(const struct gpusys_field_options *options)
{
    return gpusys_deadline_after(options->timeout_ns ? options->timeout_ns : default_timeout_ns);
}

/* ---- steps ---- */

static int fail_step(int code, struct gpusys_stream *stream, const char *what, size_t done, size_t size,
                     struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(stream);
    if (code == -EAGAIN || code == -ETIMEDOUT)
        return gpusys_error_set(error, -ETIMEDOUT, "%s: %s took too long, %zu of %zu bytes went", peer, what,
                                done, size);
    if (code == -EPIPE || code == -ECONNRESET)
        return gpusys_error_set(error, code, "%s closed the connection within %s, %zu of %zu bytes went",
                                peer, what, done, size);
    return gpusys_error_set_errno(error, code, "%s: %s", peer, what);
}

int gs_talk_write(struct gpusys_stream *stream, const char *what, const void *bytes, size_t size,
                  int64_t deadline_ns, struct gpusys_error *error)
{
    size_t done = 0;
    int code = gpusys_stream_write(stream, bytes, size, deadline_ns, &done);
    return code ? fail_step(code, stream, what, done, size, error) : 0;
}

int gs_talk_read(struct gpusys_stream *stream, const char *what, void *buffer, size_t size,
                 int64_t deadline_ns, struct gpusys_error *error)
{
    size_t done = 0;
    int code = gpusys_stream_read(stream, buffer, size, deadline_ns, &done);
    return code ? fail_step(code, stream, what, done, size, error) : 0;
}

/* ---- the text ---- */

/* Memory is taken as bytes arrive, not as they are promised. */
static int read_text(struct gpusys_stream *stream, const char *what, char **ret_text, size_t size,
                     int64_t deadline_ns, struct gpusys_error *error)
{
    char *text = NULL;
    size_t done = 0;
    while (done < size) {
        size_t step = size - done < TEXT_STEP_BYTES ? size - done : TEXT_STEP_BYTES, got = 0;
        char *longer = realloc(text, done + step + 1);
        if (!longer) {
            free(text);
            return gpusys_error_set_errno(error, -ENOMEM, "%s: %s of %zu bytes", gpusys_stream_name(stream),
                                          what, size);
        }
        text = longer;
        int code = gpusys_stream_read(stream, text + done, step, deadline_ns, &got);
        done += got;
        if (code) {
            free(text);
            return fail_step(code == -ECONNRESET ? -EPIPE : code, stream, what, done, size, error);
        }
    }
    text[size] = 0;
    *ret_text = text;
    return 0;
}

/* The two usual reasons are all that can be said: the dialects have no frame for a refusal. */
static int explain_refusal(const struct gpusys_field_talk *talk, struct gpusys_error *error)
{
    gpusys_error_set(error, -ECONNREFUSED, "%s refused this client, and its own log has the reason",
                     talk->address);
    if (talk->kind == GPUSYS_FIELD_WEIGHTS)
        gpusys_error_set_cause(error, "usually it has no model \"%.100s\", or it is no weight peer",
                               talk->model);
    else
        gpusys_error_set_cause(error, "usually it has as many clients as it takes, or it is no expert peer");
    gpusys_error_set_hint(error,
                          "a model is asked for by its directory's full path, or the last part of that");
    return -ECONNREFUSED;
}

static int read_description(const struct gpusys_field_talk *talk, struct gpusys_stream *stream,
                            char **ret_text, size_t *ret_bytes, int64_t deadline_ns,
                            struct gpusys_error *error)
{
    bool weights = talk->kind == GPUSYS_FIELD_WEIGHTS;
    const char *what = weights ? "the manifest" : "the header";
    uint32_t most = weights ? GS_MANIFEST_MAX : GS_HEADER_MAX;
    unsigned char head[4];
    const unsigned char *at = head;
    size_t got = 0;
    int code = gpusys_stream_read(stream, head, sizeof head, deadline_ns, &got);
    if (code && got == 0 && (code == -ECONNRESET || code == -EPIPE))
        return explain_refusal(talk, error);
    if (code)
        return fail_step(code, stream, what, got, sizeof head, error);
    uint32_t size = gs_get_u32(&at);
    if (size < 1 || size > most)
        return gpusys_error_set(error, -EBADMSG, "%s: %s is said to be %u bytes long, 1 to %u are possible",
                                talk->address, what, size, most);
    code = read_text(stream, what, ret_text, size, deadline_ns, error);
    if (!code)
        *ret_bytes = size;
    return code;
}

/* A weight peer is told the model; an expert peer speaks first. */
static int send_model(const struct gpusys_field_talk *talk, struct gpusys_stream *stream, int64_t deadline_ns,
                      struct gpusys_error *error)
{
    unsigned char bytes[4 + GS_MODEL_MAX], *at = bytes;
    size_t size = strlen(talk->model);
    gs_put_u32(&at, (uint32_t)size);
    gs_put_bytes(&at, talk->model, size);
    return gs_talk_write(stream, "the model request", bytes, 4 + size, deadline_ns, error);
}

/* A stream on which the text has been read; outputs are written when all went well. */
static int dial(const struct gpusys_field_talk *talk, struct gpusys_stream **ret_stream, char **ret_text,
                size_t *ret_bytes, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_stream *stream;
    int code = gpusys_stream_connect(&stream, talk->address, deadline_ns, error);
    if (code)
        return code;
    if (talk->kind == GPUSYS_FIELD_WEIGHTS)
        code = send_model(talk, stream, deadline_ns, error);
    if (!code)
        code = read_description(talk, stream, ret_text, ret_bytes, deadline_ns, error);
    if (code)
        gpusys_stream_close(stream);
    else
        *ret_stream = stream;
    return code;
}

int gs_talk_redial(struct gpusys_field_talk *talk, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_stream *stream;
    char *text;
    size_t bytes;
    gpusys_stream_close(talk->stream);
    talk->stream = NULL;
    int code = dial(talk, &stream, &text, &bytes, deadline_ns, error);
    if (code)
        return code;
    bool same = bytes == talk->text_bytes && memcmp(text, talk->text, bytes) == 0;
    free(text);
    talk->stream = stream;
    return same ? 0
                : gpusys_error_set(error, -ESTALE,
                                   "%s describes itself otherwise than a moment ago: ask again",
                                   talk->address);
}

/* ---- life ---- */

static int ask(struct gpusys_field_talk **ret_talk, enum gpusys_field_kind kind, const char *address,
               const char *model, const struct gpusys_field_options *options, struct gpusys_error *error)
{
    struct gpusys_field_talk *talk = calloc(1, sizeof *talk);
    if (!talk)
        return gpusys_error_set_errno(error, -ENOMEM, "%s", address);
    talk->kind = kind;
    talk->address = strdup(address);
    talk->model = strdup(model ? model : "");
    int code = talk->address && talk->model ? gs_field_options_take(&talk->options, options, error)
                                            : gpusys_error_set_errno(error, -ENOMEM, "%s", address);
    if (!code)
        code = dial(talk, &talk->stream, &talk->text, &talk->text_bytes, gs_field_deadline(&talk->options),
                    error);
    if (code)
        gpusys_field_talk_close(talk);
    else
        *ret_talk = talk;
    return code;
}

int gpusys_weights_ask(struct gpusys_field_talk **ret_talk, const char *address, const char *model,
                       const struct gpusys_field_options *options, struct gpusys_error *error)
{
    size_t size = model ? strlen(model) : 0;
    if (size < 1 || size > GS_MODEL_MAX)
        return gpusys_error_set(error, -EINVAL, "a model's name of %zu bytes: 1 to %d are possible", size,
                                GS_MODEL_MAX);
    return ask(ret_talk, GPUSYS_FIELD_WEIGHTS, address, model, options, error);
}

int gpusys_experts_ask(struct gpusys_field_talk **ret_talk, const char *address,
                       const struct gpusys_field_options *options, struct gpusys_error *error)
{
    return ask(ret_talk, GPUSYS_FIELD_EXPERTS, address, NULL, options, error);
}

const char *gpusys_field_text(const struct gpusys_field_talk *talk, size_t *ret_bytes)
{
    if (ret_bytes)
        *ret_bytes = talk->text_bytes;
    return talk->text;
}

void gpusys_field_talk_close(struct gpusys_field_talk *talk)
{
    if (!talk)
        return;
    gpusys_stream_close(talk->stream);
    gs_field_options_free(&talk->options);
    free(talk->address);
    free(talk->model);
    free(talk->text);
    free(talk);
}
