/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One client of a field server: its thread, from the first byte to the last. */
#include "base/cursor.h"
#include "base/log.h"
#include "field/serve.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WRITE_STEP_BYTES = 1024 * 1024 };

/* ---- steps ---- */

int64_t gs_client_deadline(const struct gs_field_client *client)
{
    return gpusys_deadline_after(client->field->step_timeout_ns);
}

/* Who it was stands before it in the log. */
static int fail_step(int code, const char *what, struct gpusys_error *error)
{
    if (code == -ETIMEDOUT || code == -EAGAIN)
        return gpusys_error_set(error, -ETIMEDOUT, "it took too long over %s", what);
    if (code == -ECONNRESET || code == -EPIPE)
        return gpusys_error_set(error, code, "it left within %s", what);
    return gpusys_error_set_errno(error, code, "%s", what);
}

int gs_client_read(struct gs_field_client *client, const char *what, void *buffer, size_t size,
                   struct gpusys_error *error)
{
    int code = gpusys_stream_read(client->stream, buffer, size, gs_client_deadline(client), NULL);
    return code ? fail_step(code, what, error) : 0;
}

/* A long text is many steps. */
int gs_client_write(struct gs_field_client *client, const char *what, const void *bytes, size_t size,
                    struct gpusys_error *error)
{
    for (size_t done = 0; done < size;) {
        size_t step = size - done < WRITE_STEP_BYTES ? size - done : WRITE_STEP_BYTES;
        int code = gpusys_stream_write(client->stream, (const char *)bytes + done, step,
                                       gs_client_deadline(client), NULL);
        if (code)
            return fail_step(code, what, error);
        done += step;
    }
    return 0;
}

int gs_client_write_text(struct gs_field_client *client, const char *what, const void *text, size_t size,
                         struct gpusys_error *error)
{
    unsigned char head[4], *at = head;
    gs_put_u32(&at, (uint32_t)size);
    int code = gs_client_write(client, what, head, sizeof head, error);
    return code ? code : gs_client_write(client, what, text, size, error);
}

void gs_client_opened(struct gs_field_client *client, bool on_verbs, const char *over)
{
    struct gpusys_field *field = client->field;
    client->is_open = true;
    pthread_mutex_lock(&field->lock);
    client->on_verbs = on_verbs;
    pthread_mutex_unlock(&field->lock);
    atomic_fetch_add(&field->clients_total, 1);
    atomic_fetch_add(&field->verbs_total, on_verbs);
    gs_log(GPUSYS_LOG_INFO, "%s: a client over %s", gpusys_stream_name(client->stream), over);
}

int gs_client_idle(struct gs_field_client *client, struct gpusys_error *error)
{
    char byte;
    int code = gpusys_stream_read(client->stream, &byte, 1, GPUSYS_NO_DEADLINE, NULL);
    if (code == 0)
        return gpusys_error_set(error, -EPROTO,
                                "it sent bytes after its opening, where there is nothing to say");
    return 0;
}

/* ---- the thread ---- */

static int serve(struct gs_field_client *client, struct gpusys_error *error)
{
    switch (client->field->kind) {
    case GPUSYS_FIELD_WEIGHTS: return gs_serve_weights(client, error);
    case GPUSYS_FIELD_CACHE: return gs_serve_cache(client, error);
    default: return gs_serve_experts(client, error);
    }
}

/* A client that leaves was not refused; a server that closes has no complaints. */
static void tell(const struct gs_field_client *client, int code, const struct gpusys_error *error)
{
    struct gpusys_field *field = client->field;
    if (code == 0 || atomic_load(&field->is_closing))
        return;
    if (code == -ECONNRESET || code == -EPIPE) {
        gs_log(GPUSYS_LOG_INFO, "%s: %s", gpusys_stream_name(client->stream), error->message);
        return;
    }
    atomic_fetch_add(&field->refused_total, 1);
    gs_log(GPUSYS_LOG_WARN, "%s %s: %s%s%s", gpusys_stream_name(client->stream),
           client->is_open ? "is disconnected" : "is refused", error->message, error->cause[0] ? ": " : "",
           error->cause);
}

static void *client_main(void *argument)
{
    struct gs_field_client *client = argument;
    struct gpusys_field *field = client->field;
    struct gpusys_error error = {0};
    uint64_t one = 1;
    int code = serve(client, &error);
    tell(client, code, &error);
    pthread_mutex_lock(&field->lock);
    client->fd = -1;
    pthread_mutex_unlock(&field->lock);
    gpusys_stream_close(client->stream);
    pthread_mutex_lock(&field->lock);
    client->is_over = true;
    pthread_mutex_unlock(&field->lock);
    if (write(field->wake, &one, sizeof one) < 0) {
        /* it is awake already */
    }
    return NULL;
}

/* ---- accepting ---- */

/* A host that vanished says nothing: two minutes without an answer are the end. */
static void keep_alive(int fd)
{
    int on = 1, idle_s = 60, interval_s = 15, count = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static int start_thread(struct gs_field_client *client)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigfillset(&all);
    if (pthread_attr_init(&attributes))
        return -ENOMEM;
    pthread_attr_setsigmask_np(&attributes, &all); /* SIGPIPE too: sendfile has no flag against it */
    int code = -pthread_create(&client->thread, &attributes, client_main, client);
    pthread_attr_destroy(&attributes);
    return code;
}

static void refuse(struct gpusys_field *field, struct gpusys_stream *stream, const char *why)
{
    atomic_fetch_add(&field->refused_total, 1);
    gs_log(GPUSYS_LOG_WARN, "%s is refused: %s", stream ? gpusys_stream_name(stream) : "a client", why);
    gpusys_stream_close(stream);
}

/* Under the lock, so that the thread finds itself in the list when it ends. */
static int add_client(struct gpusys_field *field, struct gs_field_client *client)
{
    pthread_mutex_lock(&field->lock);
    int code = field->n_clients >= field->max_clients ? -EBUSY : start_thread(client);
    if (!code) {
        client->next = field->clients;
        field->clients = client;
        field->n_clients++;
    }
    pthread_mutex_unlock(&field->lock);
    return code;
}

void gs_client_accept(struct gpusys_field *field, int fd)
{
    struct gpusys_stream *stream = NULL;
    keep_alive(fd);
    if (gpusys_stream_open_fd(&stream, fd, NULL)) {
        refuse(field, NULL, "out of memory");
        return;
    }
    struct gs_field_client *client = malloc(sizeof *client);
    if (client)
        *client = (struct gs_field_client){.field = field, .stream = stream, .fd = fd};
    int code = client ? add_client(field, client) : -ENOMEM;
    if (!code)
        return;
    free(client);
    refuse(field, stream,
           code == -EBUSY ? "there are as many clients as are served at once" : strerrordesc_np(-code));
}
