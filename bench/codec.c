/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the wire costs: encoding and decoding VerbsServerParams beside a memcpy of the same bytes, and a
 * two-rail table of 4096 regions through both sides of the handshake over loopback TCP.
 */
#include <gpusys/deadline.h>
#include <gpusys/handshake.h>
#include <gpusys/stream.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 15, CROSSINGS = 400, WARM_UP = 20, RAILS = 2, MOST_REGIONS = GPUSYS_MAX_REGIONS };

static void die(const char *what, const struct gpusys_error *error)
{
    char text[2048] = "";
    if (error)
        gpusys_error_format(error, text, sizeof text);
    fprintf(stderr, "codec: %s%s%s\n", what, error ? ": " : "", text);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, double *values, int n, const char *unit)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    printf("  %-28s %10.1f %s  [%.1f-%.1f]\n", name, values[n / 2], unit, values[0], values[n - 1]);
}

/* The three things that are timed, over the same bytes. */
struct subject {
    struct gpusys_verbs_server_params from, to;
    unsigned char *wire, *copy;
    size_t size;
};

static void encode(struct subject *subject)
{
    size_t size;
    if (gpusys_verbs_server_params_encode(&subject->from, subject->wire, subject->size, &size))
        die("the record does not encode", NULL);
}

static void decode(struct subject *subject)
{
    size_t size;
    if (gpusys_verbs_server_params_decode(&subject->to, subject->wire, subject->size, &size))
        die("the record does not decode", NULL);
}

static void copy(struct subject *subject)
{
    memcpy(subject->copy, subject->wire, subject->size);
    __asm__ volatile("" : : "r"(subject->copy) : "memory"); /* the copy is wanted */
}

static double time_one(void (*function)(struct subject *), struct subject *subject, int times)
{
    int64_t start = gpusys_now_ns();
    for (int i = 0; i < times; i++)
        function(subject);
    return (double)(gpusys_now_ns() - start) / times;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        die("out of memory", NULL);
    return memory;
}

static void measure_codec(uint32_t n_regions)
{
    struct subject subject = {.size = GPUSYS_VERBS_SERVER_PARAMS_BYTES(n_regions)};
    subject.from.n_regions = n_regions;
    subject.to.capacity = n_regions;
    subject.from.regions = allocate(n_regions, sizeof *subject.from.regions);
    subject.to.regions = allocate(n_regions, sizeof *subject.to.regions);
    subject.wire = allocate(1, subject.size);
    subject.copy = allocate(1, subject.size);
    double encoding[ROUNDS], decoding[ROUNDS], copying[ROUNDS];
    int times = (int)(4000000 / (n_regions + 20));
    for (int round = -1; round < ROUNDS; round++) { /* the round before the first only warms up */
        int at = round < 0 ? 0 : round;
        encoding[at] = time_one(encode, &subject, times);
        decoding[at] = time_one(decode, &subject, times);
        copying[at] = time_one(copy, &subject, times);
    }
    printf("VerbsServerParams, %u region%s (%zu bytes)\n", n_regions, n_regions > 1 ? "s" : "", subject.size);
    print_row("encode", encoding, ROUNDS, "ns");
    print_row("decode", decoding, ROUNDS, "ns");
    print_row("memcpy", copying, ROUNDS, "ns");
    free(subject.from.regions);
    free(subject.to.regions);
    free(subject.wire);
    free(subject.copy);
}

static struct gpusys_region_key served[MOST_REGIONS], seen[RAILS][MOST_REGIONS];

static void serve_once(struct gpusys_stream *stream)
{
    struct gpusys_error error;
    struct gpusys_handshake handshake;
    struct gpusys_verbs_server_params rails[RAILS] = {0};
    struct gpusys_qp_params clients[RAILS];
    for (int i = 0; i < RAILS; i++) {
        rails[i].n_regions = MOST_REGIONS;
        rails[i].regions = served;
    }
    int64_t deadline = gpusys_deadline_after(10000000000);
    if (gpusys_handshake_server_begin(&handshake, stream, GPUSYS_DIALECT_READ_ONLY, deadline, &error) ||
        gpusys_handshake_server_write_ro(&handshake, rails, RAILS, deadline, &error) ||
        gpusys_handshake_server_read_client(&handshake, clients, RAILS, deadline, &error) ||
        gpusys_handshake_server_finish(&handshake, GPUSYS_STATUS_OK, deadline, &error))
        die("server", &error);
}

static void *serve(void *stream)
{
    for (int i = 0; i < WARM_UP + CROSSINGS; i++)
        serve_once(stream);
    return NULL;
}

/* From the client's count byte to the server's ack. */
static double cross_once(struct gpusys_stream *stream)
{
    struct gpusys_error error;
    struct gpusys_handshake handshake;
    struct gpusys_verbs_server_params rails[RAILS] = {0};
    const struct gpusys_qp_params qps[RAILS] = {0};
    for (int i = 0; i < RAILS; i++) {
        rails[i].capacity = MOST_REGIONS;
        rails[i].regions = seen[i];
    }
    int64_t start = gpusys_now_ns(), deadline = gpusys_deadline_after(10000000000);
    if (gpusys_handshake_client_begin(&handshake, stream, GPUSYS_DIALECT_READ_ONLY, RAILS, deadline,
                                      &error) ||
        gpusys_handshake_client_read_ro(&handshake, rails, RAILS, deadline, &error) ||
        gpusys_handshake_client_complete(&handshake, qps, RAILS, deadline, &error) ||
        gpusys_handshake_client_finish(&handshake, deadline, &error))
        die("client", &error);
    return (double)(gpusys_now_ns() - start) / 1000;
}

/* A connected pair of loopback TCP streams. */
static void connect_pair(struct gpusys_stream **client, struct gpusys_stream **server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        die("cannot listen on loopback", NULL);
    char name[32];
    snprintf(name, sizeof name, "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    struct gpusys_error error;
    if (gpusys_stream_connect(client, name, gpusys_deadline_after(10000000000), &error))
        die("cannot connect", &error);
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (gpusys_stream_open_fd(server, accepted, NULL))
        die("cannot accept", NULL);
    close(listener);
}

static void measure_crossing(void)
{
    struct gpusys_stream *client, *server;
    pthread_t thread;
    connect_pair(&client, &server);
    if (pthread_create(&thread, NULL, serve, server))
        die("cannot start a thread", NULL);
    double times[CROSSINGS];
    for (int i = 0; i < WARM_UP; i++)
        cross_once(client);
    for (int i = 0; i < CROSSINGS; i++)
        times[i] = cross_once(client);
    pthread_join(thread, NULL);
    gpusys_stream_close(client);
    gpusys_stream_close(server);
    printf("Handshake over loopback TCP, %d rails, %d regions each\n", RAILS, MOST_REGIONS);
    print_row("count byte to ack, p50", times, CROSSINGS, "us");
}

int main(void)
{
    const uint32_t counts[] = {1, 64, MOST_REGIONS};
    printf("Medians [least-most] of %d interleaved rounds\n", ROUNDS);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        measure_codec(counts[i]);
    measure_crossing();
    return 0;
}
