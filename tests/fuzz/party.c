/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "party.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };
static const int64_t opening_ns = 40000000, gather_ns = 3000000;

static char folder[64], address[128];
static pthread_t thread;
static uint32_t its_rank, its_ranks;
static int64_t limit_ns;

/* ---- what it says ---- */

static void remove_folder(void)
{
    unlink(address + 5);
    rmdir(folder);
}

const char *fuzz_party_address(void)
{
    const char *temporary = getenv("TMPDIR");
    if (folder[0])
        return address;
    snprintf(folder, sizeof folder, "%s/gpusys-fuzz-XXXXXX",
             temporary && strlen(temporary) < 32 ? temporary : "/tmp");
    REQUIRE(mkdtemp(folder));
    snprintf(address, sizeof address, "unix:%s/party", folder);
    atexit(remove_folder);
    return address;
}

void fuzz_party_magic(struct gs_bytes *bytes)
{
    unsigned char *at = gs_bytes_grow(bytes, GS_PARTY_MAGIC_BYTES);
    REQUIRE(at);
    memcpy(at, GS_PARTY_MAGIC, GS_PARTY_MAGIC_BYTES);
}

void fuzz_party_hello(struct gs_bytes *bytes, uint32_t n_ranks)
{
    struct gs_party_hello hello = {
        .version = GS_PARTY_VERSION, .n_ranks = n_ranks, .rank = 1, .member = {.host = "fuzz", .pid = 1}};
    fuzz_party_magic(bytes);
    REQUIRE(gs_party_hello_encode(bytes, &hello) == 0);
}

void fuzz_party_send(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size) {
        ssize_t count = send(fd, at, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return;
        at += count;
        size -= (size_t)count;
    }
}

void fuzz_party_listen(int fd, int milliseconds)
{
    char some[4096];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, milliseconds) == 1 && recv(fd, some, sizeof some, 0) > 0)
        ;
}

/* ---- the party ---- */

static void report(void *context, struct gs_report *ret_report)
{
    (void)context;
    *ret_report =
        (struct gs_report){.submitted = 1, .n_records = 1, .records = {{.sequence = 1, .function = 1}}};
}

static void failed(void *context, const struct gs_failure *failure)
{
    REQUIRE(failure->code < 0 && failure->n_suspects <= GS_PARTY_SUSPECTS);
    REQUIRE(memchr(failure->text, 0, sizeof failure->text));
    for (uint32_t i = 0; i < failure->n_suspects; i++)
        REQUIRE(failure->suspects[i] < its_ranks);
    ++*(unsigned *)context;
}

static void use(struct gs_party *party)
{
    static const struct gs_party_handlers handlers = {.report = report, .failed = failed};
    static unsigned char all[8 * 8], mine[8] = "a share";
    uint32_t ranks[8];
    unsigned n_failures = 0;
    struct gpusys_error error = {0};
    for (uint32_t i = 0; i < its_ranks; i++)
        ranks[i] = i;
    REQUIRE(gs_party_attach(party, 77, ranks, its_ranks, &handlers, &n_failures) == 0);
    int code = gs_party_gather(party, 9, ranks, its_ranks, mine, sizeof mine, all,
                               gpusys_deadline_after(gather_ns), &error);
    REQUIRE(code == error.code && (code == 0 || error.message[0]));
    gs_party_alarm(party, 77, -EIO, "NCCL says no", true);
    code = gs_party_gather(party, 10, ranks, its_ranks, mine, sizeof mine, all,
                           gpusys_deadline_after(gather_ns), NULL);
    gs_party_detach(party, 77);
    REQUIRE(n_failures <= 1);
    gs_party_close(party);
}

static void *party_main(void *argument)
{
    (void)argument;
    struct gs_party_options options = {.n_ranks = its_ranks,
                                       .rank = its_rank,
                                       .address = fuzz_party_address(),
                                       .self = {.host = "here", .pid = 2},
                                       .deadline_ns = gpusys_deadline_after(opening_ns)};
    struct gs_party *party = NULL;
    struct gpusys_error error = {0};
    int code = gs_party_open(&party, &options, &error);
    REQUIRE(code == error.code && (code == 0) == (party != NULL));
    REQUIRE(code == 0 || error.message[0]);
    if (party)
        use(party);
    return NULL;
}

void fuzz_party_start(uint32_t rank, uint32_t n_ranks)
{
    its_rank = rank;
    its_ranks = n_ranks;
    limit_ns = gpusys_deadline_after((int64_t)PATIENCE_S * 1000000000);
    REQUIRE(pthread_create(&thread, NULL, party_main, NULL) == 0);
}

void fuzz_party_stop(void)
{
    pthread_join(thread, NULL);
    REQUIRE(gpusys_now_ns() < limit_ns);
}
