/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the command cannot be made to do, through the library: one case a run, on one port.
 *   vm-verbs open DEVICE [GID-INDEX|-] [PEER-ADDRESS|-]    open a port
 *   vm-verbs connect DEVICE PEER-GID [QPN [PSN [MTU]]]     a queue pair towards a peer that is not there
 *   vm-verbs register DEVICE BYTES                         memory that the peer may read
 *   vm-verbs transfer DEVICE CASE                          between two queue pairs of this process; see `cases`
 * On stdout: the errno's name and the error as it is put into words, or "0" and what there is to show. The exit status
 * says whether the case could be tried.
 */
#include <gpusys/deadline.h>
#include <gpusys/verbs.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 8192, USAGE = 2, PATIENCE_S = 30 };

static int show(int result, const struct gpusys_error *error)
{
    char text[4096] = "";
    gpusys_error_format(error, text, sizeof text);
    printf("%s\n%s\n", result ? strerrorname_np(-result) : "0", text);
    return EXIT_SUCCESS;
}

/* Set-up that has to work. */
static void must(int result, const struct gpusys_error *error, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, strerrordesc_np(-result));
    show(result, error);
    exit(EXIT_FAILURE);
}

/* An address as a GID: IPv4 is mapped. */
static const uint8_t *gid_of(uint8_t gid[16], const char *text)
{
    memset(gid, 0, 16);
    if (inet_pton(AF_INET6, text, gid) == 1)
        return gid;
    gid[10] = gid[11] = 0xFF;
    if (inet_pton(AF_INET, text, gid + 12) == 1)
        return gid;
    fprintf(stderr, "%s is no address\n", text);
    exit(USAGE);
}

/* ---- open ---- */

static int try_open(char **words)
{
    struct gpusys_error error = {0};
    struct gpusys_verbs_options options = {.size = sizeof options, .device = words[0]};
    struct gpusys_gid_info gid = {.size = sizeof gid};
    struct gpusys_verbs *verbs = NULL;
    uint8_t peer[16];
    if (words[1] && strcmp(words[1], "-") != 0) {
        options.flags = GPUSYS_VERBS_GID_INDEX;
        options.gid_index = (uint32_t)strtoul(words[1], NULL, 0);
    }
    if (words[1] && words[2] && strcmp(words[2], "-") != 0)
        options.peer = gid_of(peer, words[2]);
    int result = gpusys_verbs_open(&verbs, &options, &error);
    if (result)
        return show(result, &error);
    must(gpusys_verbs_info(verbs, NULL, &gid), NULL, "info");
    printf("0\nGID %u %s\n", gid.index, gid.text);
    gpusys_verbs_close(verbs);
    return EXIT_SUCCESS;
}

/* ---- queue pairs ---- */

struct end {
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_qp *qp;
};

static struct end open_end(const char *device)
{
    struct end end;
    struct gpusys_error error = {0};
    const struct gpusys_verbs_options options = {.size = sizeof options, .device = device};
    const struct gpusys_qp_options quick = {.size = sizeof quick, .ack_timeout = 10, .retry_count = 2};
    must(gpusys_verbs_open(&end.verbs, &options, &error), &error, "the port");
    must(gpusys_pd_open(&end.pd, end.verbs, &error), &error, "the domain");
    must(gpusys_qp_open(&end.qp, end.pd, &quick, &error), &error, "the queue pair");
    return end;
}

static void close_end(struct end *end)
{
    gpusys_qp_close(end->qp);
    gpusys_pd_close(end->pd);
    gpusys_verbs_close(end->verbs);
}

static int try_connect(char **words)
{
    struct end end = open_end(words[0]);
    struct gpusys_error error = {0};
    struct gpusys_qp_end peer = {.size = sizeof peer, .qpn = 17, .psn = 1, .mtu_bytes = 1024};
    gid_of(peer.gid, words[1]);
    uint32_t *const values[] = {&peer.qpn, &peer.psn, &peer.mtu_bytes};
    for (int i = 0; i < 3 && words[2 + i]; i++)
        *values[i] = (uint32_t)strtoul(words[2 + i], NULL, 0);
    int result = gpusys_qp_connect(end.qp, &peer, &error);
    show(result, &error);
    close_end(&end);
    return EXIT_SUCCESS;
}

/* ---- memory ---- */

static int try_register(char **words)
{
    struct gpusys_error error = {0};
    struct gpusys_mr *mr = NULL;
    struct end end = open_end(words[0]);
    uint64_t bytes = strtoull(words[1], NULL, 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        must(-ENOMEM, &error, "the memory");
    int result = gpusys_mr_open(&mr, end.pd, memory, bytes, GPUSYS_MR_PEER_READ, &error);
    show(result, &error);
    gpusys_mr_close(mr);
    munmap(memory, bytes);
    close_end(&end);
    return EXIT_SUCCESS;
}

/* ---- transfers ---- */

static const struct transfer {
    const char *name;
    uint32_t access, kind;
    uint32_t rkey_off; /* added to the peer's key */
    uint64_t offset;   /* into the peer's region, half of which is asked for */
    bool is_gone;      /* the peer has closed its queue pair */
} cases[] = {
    {.name = "read", .access = GPUSYS_MR_PEER_READ, .kind = GPUSYS_QP_READ},
    {.name = "write", .access = GPUSYS_MR_PEER_READ_WRITE, .kind = GPUSYS_QP_WRITE},
    {.name = "wrong-key", .access = GPUSYS_MR_PEER_READ, .kind = GPUSYS_QP_READ, .rkey_off = 1},
    {.name = "outside", .access = GPUSYS_MR_PEER_READ, .kind = GPUSYS_QP_READ, .offset = BYTES / 2 + 1},
    {.name = "read-only", .access = GPUSYS_MR_PEER_READ, .kind = GPUSYS_QP_WRITE},
    {.name = "gone", .access = GPUSYS_MR_PEER_READ, .kind = GPUSYS_QP_READ, .is_gone = true},
};

static void join(struct end *one, struct end *two)
{
    struct gpusys_error error = {0};
    struct gpusys_qp_end first = {.size = sizeof first}, second = {.size = sizeof second};
    must(gpusys_qp_end(one->qp, &first), NULL, "our end");
    must(gpusys_qp_end(two->qp, &second), NULL, "the peer's end");
    must(gpusys_qp_connect(one->qp, &second, &error), &error, "connecting");
    must(gpusys_qp_connect(two->qp, &first, &error), &error, "connecting");
}

/* Post it and wait for it: what its completion says, in words. */
static int perform(struct gpusys_qp *qp, const struct gpusys_qp_op *op, struct gpusys_error *error)
{
    struct gpusys_qp_completion completion;
    if (gpusys_qp_post(qp, op, 1) != 1)
        must(-EIO, error, "posting");
    int count =
        gpusys_qp_wait(qp, &completion, 1, NULL, gpusys_deadline_after(PATIENCE_S * INT64_C(1000000000)));
    if (count != 1 || completion.id != op->id)
        must(count < 0 ? count : -EPROTO, error, "waiting");
    return gpusys_qp_explain(qp, &completion, error);
}

/* Our half of what was moved, and the peer's; both whole or both as they were. */
static const char *moved(const uint8_t *ours, const uint8_t *theirs)
{
    size_t same = 0;
    for (size_t i = 0; i < BYTES / 2; i++)
        same += ours[i] == theirs[i];
    return same == BYTES / 2 ? "all" : same == 0 ? "nothing" : "some";
}

static int try_transfer(char **words)
{
    static uint8_t ours[BYTES] __attribute__((aligned(BYTES))), theirs[BYTES] __attribute__((aligned(BYTES)));
    const struct transfer *one = cases, *end = cases + sizeof cases / sizeof cases[0];
    while (one < end && strcmp(one->name, words[1]) != 0)
        one++;
    if (one == end)
        return USAGE;
    struct gpusys_error error = {0};
    struct gpusys_mr *landing, *served;
    struct gpusys_mr_info local = {.size = sizeof local}, remote = {.size = sizeof remote};
    struct end client = open_end(words[0]), server = open_end(words[0]);
    memset(ours, 1, sizeof ours);
    memset(theirs, 2, sizeof theirs);
    must(gpusys_mr_open(&landing, client.pd, ours, BYTES, GPUSYS_MR_LANDING, &error), &error, "landing");
    must(gpusys_mr_open(&served, server.pd, theirs, BYTES, one->access, &error), &error, "the region");
    must(gpusys_mr_info(landing, &local), NULL, "landing");
    must(gpusys_mr_info(served, &remote), NULL, "the region");
    join(&client, &server);
    if (one->is_gone) {
        gpusys_qp_close(server.qp);
        server.qp = NULL;
    }
    const struct gpusys_qp_op op = {.id = 77,
                                    .kind = one->kind,
                                    .local = local.address,
                                    .lkey = local.lkey,
                                    .remote = remote.address + one->offset,
                                    .rkey = remote.rkey + one->rkey_off,
                                    .length = BYTES / 2};
    show(perform(client.qp, &op, &error), &error);
    printf("moved %s\n", moved(ours, theirs));
    gpusys_qp_close(client.qp);
    gpusys_qp_close(server.qp);
    client.qp = server.qp = NULL;
    gpusys_mr_close(landing);
    gpusys_mr_close(served);
    close_end(&client);
    close_end(&server);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int n_words;
        int (*run)(char **words);
    } commands[] = {{"open", 1, try_open},
                    {"connect", 2, try_connect},
                    {"register", 2, try_register},
                    {"transfer", 2, try_transfer}};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (argc >= 2 + commands[i].n_words && strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argv + 2);
    fprintf(stderr, "usage: vm-verbs open|connect|register|transfer DEVICE ...\n");
    return USAGE;
}
