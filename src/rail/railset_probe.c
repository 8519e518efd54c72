/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The field's handshake says nothing of MTUs, and a peer that cuts its answers smaller than we expect is not
 * heard: one read longer than a packet of ours finds out. When it fails, the same queue pair starts again at
 * a smaller MTU, its packet number advanced as far as the peer has counted: that read in packets of the
 * peer's MTU, if the peer's is the one tried. A wrong guess leaves the peer's count where it was, because the
 * next request then comes with a number that the peer does not expect.
 */
#include "rail/railset.h"

#include "base/gid.h"
#include "base/log.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAFE_PACKETS = 64, /* of one message, where nobody says that the peer's MTU is not larger */
    TRIES = 3,
    SMALLEST_MTU = 256,
    INVALID_REQUEST = 9, /* IBV_WC_REM_INV_REQ_ERR: a write in pieces of another size than the peer expects */
};

static const int64_t longest_wait_ns = 2000000000; /* for one answer: retries are exceeded well before */
static const int64_t shortest_wait_ns = 20000000;  /* below that a slow peer is no proof of anything */
static const int64_t drain_ns = 1000000000;

/* The probe of one rail. */
struct probe {
    struct gpusys_railset *set;
    uint32_t at;
    struct gpusys_qp *qp;
    struct gpusys_region_key region;
    uint64_t length;
    uint32_t own_mtu;    /* as it was */
    uint32_t mtu;        /* in use now */
    unsigned tries_left; /* of all rails together */
    int64_t deadline_ns;
    void *scratch;
    struct gpusys_mr *mr;
    struct gpusys_qp_completion completion; /* of the last request that failed; status 0: it hung */
};

/* ---- one request ---- */

static int64_t wait_until(const struct probe *probe)
{
    int64_t now = gpusys_now_ns(), share = (probe->deadline_ns - now) / probe->tries_left;
    share = share < shortest_wait_ns ? shortest_wait_ns : share;
    share = share > longest_wait_ns ? longest_wait_ns : share;
    return now + share < probe->deadline_ns ? now + share : probe->deadline_ns;
}

static int post(const struct probe *probe, uint32_t kind)
{
    struct gpusys_mr_info mr = {.size = sizeof mr};
    int result = gpusys_mr_info(probe->mr, &mr);
    if (result)
        return result;
    const struct gpusys_qp_op op = {.local = mr.address,
                                    .remote = probe->region.base,
                                    .length = probe->length,
                                    .lkey = mr.lkey,
                                    .rkey = probe->region.rkey,
                                    .kind = kind};
    result = gpusys_qp_post(probe->qp, &op, 1);
    return result < 0 ? result : result == 1 ? 0 : -EBUSY;
}

/* What the peer's MTU cannot be the reason for: a key, a right, memory of our own. */
static bool is_refusal(const struct gpusys_qp_completion *completion, uint32_t kind)
{
    if (completion->status == -EREMOTEIO)
        return kind == GPUSYS_QP_READ || completion->foreign != INVALID_REQUEST;
    return completion->status == -EFAULT;
}

/* 0: it arrived; 1: it did not, as when the MTUs differ; or why nothing more can be said. */
static int request(struct probe *probe, uint32_t kind, struct gpusys_error *error)
{
    const char *verb = kind == GPUSYS_QP_READ ? "reading" : "writing back";
    int result = post(probe, kind);
    probe->completion = (struct gpusys_qp_completion){.status = 0};
    if (result)
        return gpusys_error_set_errno(error, result, "%s %llu bytes as a probe", verb,
                                      (unsigned long long)probe->length);
    result =
        gpusys_qp_wait(probe->qp, &probe->completion, 1, probe->set->handshake.stream, wait_until(probe));
    if (result == 1 && probe->completion.status == 0)
        return 0;
    if (result == 1 && is_refusal(&probe->completion, kind))
        return gpusys_qp_explain(probe->qp, &probe->completion, error);
    if (result == 1 || (result == -ETIMEDOUT && gpusys_now_ns() < probe->deadline_ns))
        return 1;
    if (result == -ECONNRESET)
        return gpusys_error_set(error, result, "the peer closed the connection during the probe");
    return gpusys_error_set_errno(error, result, "%s %llu bytes as a probe", verb,
                                  (unsigned long long)probe->length);
}

/* ---- other MTUs ---- */

static uint32_t packets_at(const struct probe *probe, uint32_t mtu)
{
    return (uint32_t)((probe->length + mtu - 1) / mtu);
}

/*
 * The next one to try: those that explain the failure are below ours and shorter than the request. Ethernet
 * of 1500 bytes makes 1024 and is what a peer without jumbo frames has, so it comes first.
 */
static uint32_t next_mtu(const struct probe *probe, unsigned try)
{
    static const uint32_t mtus[] = {1024, 2048, 512, 256};
    for (size_t i = 0; i < sizeof mtus / sizeof mtus[0]; i++)
        if (mtus[i] < probe->own_mtu && mtus[i] < probe->length && try-- == 0)
            return mtus[i];
    return 0;
}

/* A request that hangs is flushed first: nothing may be under way when the queue pair starts again. */
static int start_again(struct probe *probe, uint32_t mtu, uint32_t packets, struct gpusys_error *error)
{
    int result = gpusys_qp_drain(probe->qp, NULL, 0, NULL, gpusys_deadline_after(drain_ns));
    if (result)
        return gpusys_error_set_errno(error, result, "stopping a probe that got no answer");
    probe->mtu = mtu;
    return gpusys_qp_reconnect(probe->qp, mtu, packets, error);
}

/* What both ways of failing have in common. */
static int fail(const struct probe *probe, const char *remote, struct gpusys_error *error)
{
    const struct gpusys_qp_completion *last = &probe->completion;
    struct gpusys_qp_info info = {.size = sizeof info};
    char ours[GS_GID_TEXT_BYTES] = "", theirs[GS_GID_TEXT_BYTES] = "";
    if (gpusys_qp_info(probe->qp, &info) == 0) {
        gs_gid_text(ours, info.local.gid);
        gs_gid_text(theirs, info.remote.gid);
    }
    gpusys_error_add_detail(error, "local", "GID %u %s, MTU %u", info.local.gid_index, ours, probe->own_mtu);
    gpusys_error_add_detail(error, "remote", "GID %s, MTU not said; %s", theirs, remote);
    gpusys_error_add_detail(error, "last request", "%s",
                            last->status ? gpusys_wc_status_text(last->foreign) : "no answer in time");
    gpusys_error_set_cause(
        error, "the two ports do not reach each other, or the network drops packets of this size");
    gpusys_error_set_hint(
        error, "rails pair by their order: name the devices in the order of the server's (--device); "
               "give both ports the same MTU, and every switch between them a larger one");
    return -EPROTO;
}

static int give_up(const struct probe *probe, const uint32_t *tried, unsigned n_tried,
                   struct gpusys_error *error)
{
    char list[64] = "no smaller one can be tried";
    for (unsigned i = 0, length = 0; i < n_tried; i++)
        length +=
            (unsigned)snprintf(list + length, sizeof list - length, "%s%u", i ? " nor " : "not ", tried[i]);
    gpusys_error_set(error, -EPROTO,
                     "reads of %llu bytes do not arrive: our MTU is %u, the peer's is not said, %s",
                     (unsigned long long)probe->length, probe->own_mtu, list);
    return fail(probe, list, error);
}

/*
 * A peer whose MTU is larger than ours answered, in fewer packets than we counted, and from now on our numbers are
 * ahead of its: a second read shows that. Then both start over where the peer is, and everything is sent in messages
 * of one packet, which both sides count alike. Some devices find together again by themselves, after messages of up to
 * a hundred packets and more but not after longer ones: where it passes, reads are kept shorter than that, and writes
 * to one packet, for they would be refused, and end the peer's queue pair.
 */
static int stay_in_step(struct probe *probe, struct gpusys_error *error)
{
    static const uint32_t larger[] = {4096, 2048};
    char name[GS_RAIL_TEXT];
    uint64_t length = probe->length;
    uint32_t counted = 0;
    if (probe->own_mtu >= larger[0])
        return 0;
    probe->length = probe->own_mtu < length ? probe->own_mtu : length;
    int result = request(probe, GPUSYS_QP_READ, error);
    for (size_t i = 0; i < sizeof larger / sizeof larger[0] && result > 0; i++) {
        uint32_t packets = (uint32_t)((length + larger[i] - 1) / larger[i]);
        if (larger[i] <= probe->own_mtu)
            break;
        result = start_again(probe, probe->own_mtu, packets - counted, error);
        counted = packets;
        if (!result)
            result = gpusys_qp_limit(probe->qp, probe->own_mtu, probe->own_mtu);
        if (!result)
            result = request(probe, GPUSYS_QP_READ, error);
        if (!result)
            gs_log(GPUSYS_LOG_WARN,
                   "%s: the peer's MTU is %u and ours %u: messages of at most %u bytes, which is slow",
                   gs_railset_name(probe->set, probe->at, name), larger[i], probe->own_mtu, probe->own_mtu);
    }
    struct gpusys_qp_info info = {.size = sizeof info};
    if (result == 0)
        result = gpusys_qp_info(probe->qp, &info);
    if (result == 0 && info.max_read_bytes > SAFE_PACKETS * probe->own_mtu)
        result = gpusys_qp_limit(probe->qp, SAFE_PACKETS * probe->own_mtu, probe->own_mtu);
    if (result <= 0)
        return result;
    gpusys_error_set(error, -EPROTO, "one read of %llu bytes arrives, and none after it: our MTU is %u",
                     (unsigned long long)length, probe->own_mtu);
    return fail(probe, "neither 4096 nor 2048", error);
}

static int find_mtu(struct probe *probe, struct gpusys_error *error)
{
    uint32_t tried[TRIES - 1], counted = 0;
    char name[GS_RAIL_TEXT];
    for (unsigned n_tried = 0;; n_tried++) {
        int result = request(probe, GPUSYS_QP_READ, error);
        if (result == 0 && n_tried)
            gs_log(GPUSYS_LOG_INFO, "%s: MTU %u instead of %u, as the peer has it",
                   gs_railset_name(probe->set, probe->at, name), probe->mtu, probe->own_mtu);
        if (result == 0 && n_tried == 0)
            return stay_in_step(probe, error);
        if (result <= 0)
            return result;
        uint32_t mtu = n_tried < TRIES - 1 ? next_mtu(probe, n_tried) : 0;
        if (!mtu)
            return give_up(probe, tried, n_tried, error);
        /* What an earlier guess had added is taken back: packet numbers are counted round at 24 bits. */
        uint32_t packets = packets_at(probe, mtu);
        result = start_again(probe, mtu, packets - counted, error);
        if (result)
            return result;
        tried[n_tried] = mtu;
        counted = packets;
        probe->tries_left -= probe->tries_left > 1;
    }
}

/* ---- one rail ---- */

static int write_back(struct probe *probe, struct gpusys_error *error)
{
    int result = request(probe, GPUSYS_QP_WRITE, error);
    if (result <= 0)
        return result;
    gpusys_error_set(error, -EPROTO, "%llu bytes can be read at an MTU of %u, and not be written back",
                     (unsigned long long)probe->length, probe->mtu);
    return fail(probe, "its answers come at ours", error);
}

static int open_scratch(struct probe *probe, struct gpusys_error *error)
{
    struct gpusys_rail *rail = &probe->set->slots[probe->at].rail;
    probe->scratch = malloc((size_t)probe->length);
    if (!probe->scratch)
        return gpusys_error_set_errno(error, -ENOMEM, "%llu bytes for a probe",
                                      (unsigned long long)probe->length);
    return gpusys_mr_open(&probe->mr, rail->pd, probe->scratch, probe->length, GPUSYS_MR_LANDING, error);
}

/*
 * A queue pair that failed goes first: afterwards the device touches the scratch memory no more, even where a
 * request never came back.
 */
static void close_scratch(struct probe *probe, bool failed)
{
    if (failed) {
        gpusys_qp_close(probe->qp);
        probe->set->slots[probe->at].rail.qp = NULL;
    }
    gpusys_mr_close(probe->mr);
    free(probe->scratch);
}

static int probe_rail(struct probe *probe, uint64_t length, struct gpusys_error *error)
{
    struct gpusys_qp_info info = {.size = sizeof info};
    int result = gpusys_qp_info(probe->qp, &info);
    if (result)
        return gpusys_error_set_errno(error, result, "the queue pair");
    if (info.outstanding)
        return gpusys_error_set(error, -EBUSY, "%u requests are under way", info.outstanding);
    probe->own_mtu = probe->mtu = info.mtu_bytes;
    uint64_t wanted =
        2 * (uint64_t)info.mtu_bytes + 1; /* one of MTU + 1 may hang where this one is refused */
    probe->length = length > wanted ? wanted : length;
    result = open_scratch(probe, error);
    if (!result)
        result = find_mtu(probe, error);
    if (!result && probe->set->handshake.dialect == GPUSYS_DIALECT_READ_WRITE)
        result = write_back(probe, error);
    close_scratch(probe, result);
    return result;
}

static int check(const struct gpusys_railset *set, uint32_t region, struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(set->handshake.stream);
    if (!set->is_connected)
        return gpusys_error_set(error, -EINVAL, "rails with %s: a probe before they are connected", peer);
    for (uint32_t at = 0; at < set->n_slots; at++)
        if (region >= set->tables[at].n_regions)
            return gpusys_error_set(error, -EINVAL, "rails with %s: region %u as a probe, rail %u has %u",
                                    peer, region, at, set->tables[at].n_regions);
    return 0;
}

int gpusys_railset_probe(struct gpusys_railset *set, uint32_t region, uint64_t length, int64_t deadline_ns,
                         struct gpusys_error *error)
{
    int result = gs_railset_check_side(set, false, "probing", error);
    if (!result)
        result = check(set, region, error);
    if (result || length <= SMALLEST_MTU)
        return result;
    for (uint32_t at = 0; at < set->n_slots && !result; at++) {
        struct probe probe = {.set = set,
                              .at = at,
                              .qp = set->slots[at].rail.qp,
                              .region = set->tables[at].regions[region],
                              .tries_left = TRIES * (set->n_slots - at),
                              .deadline_ns = deadline_ns};
        result = probe.qp ? probe_rail(&probe, length, error) : 0; /* one that was taken is the caller's */
        if (result)
            gs_railset_prefix(set, at, result, error);
    }
    set->is_connected = !result;
    return result;
}
