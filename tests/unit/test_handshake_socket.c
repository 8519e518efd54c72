/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The handshake over real sockets: how many writes a step takes, signals, resets, and both sides at once. */
#include "handshake_play.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONG_NS = 60 * 1000 * 1000 * 1000LL };

/* A stream over one end of a socket pair; the other end is the test's. */
static struct gpusys_stream *open_pair(int type, int *ret_other)
{
    int fds[2];
    struct gpusys_stream *stream = NULL;
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(gpusys_stream_open_fd(&stream, fds[0], "the pair"), 0);
    *ret_other = fds[1];
    return stream;
}

/* Every write to a socket of packets is one packet: the two of the client are 1 and 1 + 24 n bytes long. */
static void test_writes_of_the_client(void **state)
{
    (void)state;
    int other;
    struct gpusys_stream *stream = open_pair(SOCK_SEQPACKET, &other);
    int64_t deadline = gpusys_deadline_after(LONG_NS);
    struct gpusys_handshake handshake;
    struct gpusys_cache_server_params arenas[2];
    unsigned char bytes[128];
    assert_int_equal(
        gpusys_handshake_client_begin(&handshake, stream, GPUSYS_DIALECT_READ_WRITE, 2, deadline, NULL), 0);
    assert_int_equal(recv(other, bytes, sizeof bytes, 0), 1);
    assert_int_equal(send(other, golden_server_rails_rw[2], 73, 0), 73);
    assert_int_equal(gpusys_handshake_client_read_rw(&handshake, arenas, 2, deadline, NULL), 0);
    assert_int_equal(recv(other, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    assert_int_equal(gpusys_handshake_client_complete(&handshake, golden_client, 2, deadline, NULL), 0);
    assert_int_equal(recv(other, bytes, sizeof bytes, 0), 49);
    assert_memory_equal(bytes, golden_client_rails[2], 49);
    gpusys_stream_close(stream);
    close(other);
}

/* A whole table of two rails goes out in one write. */
static void test_writes_of_the_server(void **state)
{
    (void)state;
    static struct gpusys_region_key regions[GPUSYS_MAX_REGIONS];
    static unsigned char bytes[128 * 1024];
    int other;
    struct gpusys_stream *stream = open_pair(SOCK_SEQPACKET, &other);
    int64_t deadline = gpusys_deadline_after(LONG_NS);
    struct gpusys_verbs_server_params rails[2] = {{.n_regions = GPUSYS_MAX_REGIONS, .regions = regions},
                                                  {.n_regions = GPUSYS_MAX_REGIONS, .regions = regions}};
    struct gpusys_handshake handshake;
    assert_int_equal(send(other, "\x02", 1, 0), 1);
    assert_int_equal(
        gpusys_handshake_server_begin(&handshake, stream, GPUSYS_DIALECT_READ_ONLY, deadline, NULL), 0);
    assert_int_equal(gpusys_handshake_server_write_ro(&handshake, rails, 2, deadline, NULL), 0);
    assert_int_equal(recv(other, bytes, sizeof bytes, 0),
                     1 + 2 * GPUSYS_VERBS_SERVER_PARAMS_BYTES(GPUSYS_MAX_REGIONS));
    gpusys_stream_close(stream);
    close(other);
}

/* ---- both sides, one in a thread ---- */

static void *serve_golden(void *context)
{
    struct play *play = context;
    return play_server(play) == 0 ? play : NULL;
}

/* A connected pair of loopback TCP sockets. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, length), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    close(listener);
}

static void check_both_sides(enum gpusys_dialect dialect)
{
    int fds[2];
    pthread_t thread;
    void *served;
    struct play client = {.dialect = dialect, .n_rails = 2, .deadline_ns = gpusys_deadline_after(LONG_NS)};
    struct play server = client;
    connect_pair(fds);
    assert_int_equal(gpusys_stream_open_fd(&client.stream, fds[0], NULL), 0);
    assert_int_equal(gpusys_stream_open_fd(&server.stream, fds[1], NULL), 0);
    for (int i = 0; i < 2; i++) {
        client.tables[i] = (struct gpusys_verbs_server_params){.capacity = 1, .regions = &client.room[i]};
        server.tables[i] = (struct gpusys_verbs_server_params){.capacity = 1, .regions = &server.room[i]};
    }
    assert_int_equal(pthread_create(&thread, NULL, serve_golden, &server), 0);
    assert_int_equal(play_client(&client), 0);
    assert_int_equal(pthread_join(thread, &served), 0);
    assert_ptr_equal(served, &server);
    assert_memory_equal(server.clients, golden_client, sizeof golden_client);
    for (int i = 0; i < 2; i++) {
        bool ro = dialect == GPUSYS_DIALECT_READ_ONLY;
        assert_memory_equal(ro ? &client.room[i] : &client.arenas[i].region, &golden_server[i].region,
                            sizeof golden_server[i].region);
    }
    gpusys_stream_close(client.stream);
    gpusys_stream_close(server.stream);
}

static void test_both_sides(void **state)
{
    (void)state;
    check_both_sides(GPUSYS_DIALECT_READ_ONLY);
    check_both_sides(GPUSYS_DIALECT_READ_WRITE);
}

/* ---- signals ---- */

static volatile sig_atomic_t alarms;
static int alarm_writes_to = -1;

/* The peer's answer comes from within the fifth signal: the client must have waited through those before. */
static void answer_at_the_fifth(int signal)
{
    (void)signal;
    if (++alarms == 5 && write(alarm_writes_to, golden_server_rails_rw[1], 37) != 37)
        abort();
}

static void test_signals_do_not_cut_a_wait(void **state)
{
    (void)state;
    int other;
    struct gpusys_stream *stream = open_pair(SOCK_STREAM, &other);
    int64_t deadline = gpusys_deadline_after(LONG_NS);
    struct gpusys_handshake handshake;
    struct gpusys_cache_server_params arena;
    struct sigaction action = {.sa_handler = answer_at_the_fifth},
                     before; /* no SA_RESTART: waits see EINTR */
    const struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000}, never = {0};
    assert_int_equal(
        gpusys_handshake_client_begin(&handshake, stream, GPUSYS_DIALECT_READ_WRITE, 1, deadline, NULL), 0);
    alarm_writes_to = other;
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    int code = gpusys_handshake_client_read_rw(&handshake, &arena, 1, deadline, NULL);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(code, 0);
    assert_true(alarms >= 5);
    assert_memory_equal(&arena, &golden_server[0], sizeof arena);
    gpusys_stream_close(stream);
    close(other);
}

/* ---- a peer that is gone ---- */

/* Closing with SO_LINGER 0 resets the connection instead of ending it. */
static void reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(fd);
}

static void test_reset_is_a_refusal(void **state)
{
    (void)state;
    int fds[2];
    struct gpusys_stream *stream;
    struct gpusys_handshake handshake;
    struct gpusys_error error;
    struct gpusys_cache_server_params arena;
    int64_t deadline = gpusys_deadline_after(LONG_NS);
    unsigned char count;
    connect_pair(fds);
    assert_int_equal(gpusys_stream_open_fd(&stream, fds[0], NULL), 0);
    assert_int_equal(
        gpusys_handshake_client_begin(&handshake, stream, GPUSYS_DIALECT_READ_WRITE, 1, deadline, NULL), 0);
    assert_int_equal(read(fds[1], &count, 1), 1);
    reset(fds[1]);
    assert_int_equal(gpusys_handshake_client_read_rw(&handshake, &arena, 1, deadline, &error), -ECONNREFUSED);
    assert_non_null(strstr(error.message, gpusys_stream_name(stream)));
    assert_non_null(strstr(error.message, "127.0.0.1:"));
    gpusys_stream_close(stream);
}

static void test_silence_ends_at_the_deadline(void **state)
{
    (void)state;
    int other;
    struct gpusys_stream *stream = open_pair(SOCK_STREAM, &other);
    struct gpusys_handshake handshake;
    struct gpusys_error error;
    struct gpusys_cache_server_params arena;
    assert_int_equal(write(other, golden_server_rails_rw[1], 20), 20);
    assert_int_equal(gpusys_handshake_client_begin(&handshake, stream, GPUSYS_DIALECT_READ_WRITE, 1,
                                                   gpusys_deadline_after(LONG_NS), NULL),
                     0);
    int64_t start = gpusys_now_ns();
    assert_int_equal(gpusys_handshake_client_read_rw(&handshake, &arena, 1, start + 20000000, &error),
                     -ETIMEDOUT);
    assert_true(gpusys_now_ns() - start >= 20000000);
    assert_non_null(strstr(error.message, "CacheServerParams of rail 0: 19 of 36 bytes came"));
    gpusys_stream_close(stream);
    close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_of_the_client), cmocka_unit_test(test_writes_of_the_server),
        cmocka_unit_test(test_both_sides),           cmocka_unit_test(test_signals_do_not_cut_a_wait),
        cmocka_unit_test(test_reset_is_a_refusal),   cmocka_unit_test(test_silence_ends_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
