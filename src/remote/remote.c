/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The remote: opening a session, choosing a transport, and the calls that need no engine. */
#include "remote/client.h"

#include "base/address.h"
#include "base/log.h"
#include "base/options.h"
#include "base/shared.h"
#include "remote/runtime.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const int64_t open_timeout_ns = 10000000000;

/* ---- transports ---- */

static const char *const transport_names[] = {"any", "shm", "tcp", "verbs"};

const char *gpusys_transport_name(enum gpusys_transport transport)
{
    return (unsigned)transport < 4 ? transport_names[transport] : "unknown";
}

int gpusys_transport_parse(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (name && strcmp(name, transport_names[i]) == 0)
            return i;
    return -EINVAL;
}

/* ---- the opening ---- */

/* Everything that the steps of one opening share. */
struct opening {
    struct gpusys_remote *remote;
    struct gpusys_remote_options options;
    int64_t deadline_ns;
    struct gpusys_error *error;
    bool local; /* the connection does not leave this host */
    bool has_cookie;
    char cookie_path[GS_PATH_BYTES]; /* where it is looked for */
    uint8_t cookie[GS_COOKIE_BYTES];
    struct gpusys_error cookie_error;      /* why there is none */
    char why_not[200], why_not_verbs[200]; /* why not a better transport */
    struct gpusys_error verbs_fault;       /* the last pair of ports that would not do */
    uint32_t attempts;                     /* rails that were attached and were of no use */
};

/* Only a connection that stays on this host is shown the cookie: it would be readable on a network. */
static void find_cookie(struct opening *opening)
{
    char *path = opening->cookie_path;
    struct gs_address address;
    const char *given = opening->options.cookie_file;
    opening->local = gs_socket_is_local(gpusys_stream_fd(opening->remote->channel.stream));
    if (!opening->local)
        return;
    if (given)
        snprintf(path, GS_PATH_BYTES, "%s", given);
    else if (gs_address_parse(&address, opening->remote->address, &opening->cookie_error) ||
             gs_runtime_path(path, &address, "cookie", &opening->cookie_error))
        return;
    opening->has_cookie = gs_cookie_read(path, opening->cookie, &opening->cookie_error) == 0;
}

static int send_hello(struct opening *opening, uint64_t serial)
{
    struct gpusys_remote *remote = opening->remote;
    char name[64];
    snprintf(name, sizeof name, "gpusys %s, process %ld", gpusys_version(), (long)getpid());
    struct gs_hello hello = {.version = GS_PROTOCOL_VERSION, .name = gs_text_of(name)};
    memcpy(hello.cookie, opening->cookie, sizeof hello.cookie);
    for (unsigned i = 0; i < remote->n_ends; i++)
        gs_verbs_end_describe(remote->ends[i], &hello.rails[hello.n_rails++]);
    unsigned char *magic = gs_bytes_grow(&remote->channel.out, GS_MAGIC_BYTES);
    if (!magic)
        return -ENOMEM;
    memcpy(magic, GS_MAGIC, GS_MAGIC_BYTES);
    return gs_hello_encode(&remote->channel.out, serial, &hello);
}

static int explain_refusal(const struct opening *opening, int result)
{
    struct gpusys_error *error = opening->error;
    if (result == -EACCES && !opening->has_cookie && opening->local) {
        gpusys_error_set_cause(error, "no cookie to show: %s", opening->cookie_error.message);
        gpusys_error_set_hint(error,
                              "run as the user who serves, or pass the server's cookie file (--cookie)");
    } else if (result == -EACCES) {
        gpusys_error_set_hint(
            error, "the cookie file is of another server, or older than this one; start the server "
                   "again, or serve with --insecure beyond this host");
    } else if (result == -ECONNRESET || result == -EPIPE) {
        gpusys_error_set_hint(error, "is it a gpusys server that listens there?");
    } else if (result == -ETIMEDOUT || result == -EBADMSG) {
        gpusys_error_set_cause(
            error, "something answers the connection, but it is no gpusys server, or it is stopped");
        gpusys_error_set_hint(error, "look what listens there (ss -ltnp on that host)");
    }
    return result;
}

/* What the peer showed of itself. */
static int check_proof(const struct opening *opening, const struct gs_welcome *welcome)
{
    static const uint8_t none[GS_COOKIE_BYTES / 2];
    const char *address = opening->remote->address;
    if (opening->has_cookie &&
        gs_secret_equal(welcome->cookie, opening->cookie + GS_COOKIE_BYTES / 2, sizeof welcome->cookie)) {
        opening->remote->proven = true;
        return 0;
    }
    if (!opening->has_cookie && !opening->options.cookie_file &&
        gs_secret_equal(welcome->cookie, none, sizeof none)) {
        gs_log(GPUSYS_LOG_WARN,
               "%s: nothing proves who serves there, and nothing keeps others from reading along", address);
        return 0;
    }
    gpusys_error_set(opening->error, -EACCES, "%s is not the server whose cookie lies in %s", address,
                     opening->cookie_path);
    gpusys_error_set_hint(opening->error, "if that server is gone and you trust this one, remove the file");
    return -EACCES;
}

static int keep_welcome(struct opening *opening)
{
    struct gpusys_remote *remote = opening->remote;
    struct gs_welcome welcome;
    if (gs_welcome_decode(remote->answer.data, remote->answer_frame.body_bytes, &welcome) ||
        welcome.version != GS_PROTOCOL_VERSION)
        return gpusys_error_set(opening->error, -EPROTO, "%s welcomed in a way that makes no sense",
                                remote->address);
    int result = check_proof(opening, &welcome);
    if (result)
        return result;
    memcpy(remote->session, welcome.session, GS_NONCE_BYTES);
    memcpy(remote->proof, welcome.proof, GS_NONCE_BYTES);
    memcpy(remote->unix_path, welcome.unix_path.at, welcome.unix_path.length);
    remote->n_regions_said = welcome.n_regions;
    remote->arena_bytes = welcome.arena_bytes;
    remote->n_offers = welcome.n_rails;
    memcpy(remote->offers, welcome.rails, sizeof remote->offers);
    remote->target = (struct gs_rail_target){.address = remote->address,
                                             .unix_path = remote->unix_path,
                                             .session = remote->session,
                                             .proof = remote->proof,
                                             .proven = remote->proven,
                                             .slice_max = welcome.slice_max,
                                             .requests_max = welcome.requests_max};
    return 0;
}

/* What was required cannot be had, and why not: all that is known of it stays in the error. */
static int refuse_verbs(struct opening *opening, int result, const struct gpusys_error *why)
{
    struct gpusys_error *error = opening->error;
    if (!error)
        return result;
    *error = *why;
    gpusys_error_set(error, result, "%s: verbs was required and is not to be had: %.400s",
                     opening->remote->address, why->message);
    memcpy(error->detail, why->detail, sizeof error->detail);
    memcpy(error->cause, why->cause, sizeof error->cause);
    memcpy(error->hint, why->hint, sizeof error->hint);
    if (!why->hint[0])
        gpusys_error_set_hint(error, "gpusys rails ADDR says what each port would be against that peer");
    return result;
}

/* RDMA is for peers elsewhere; on one host memory is shared unless verbs was asked for. */
static int open_ends(struct opening *opening)
{
    struct gpusys_error why = {0};
    uint32_t require = opening->options.require;
    if (require != GPUSYS_TRANSPORT_VERBS && (require != GPUSYS_TRANSPORT_ANY || opening->local))
        return 0;
    int result = gs_verbs_open_ends(opening->remote, &opening->options, &why);
    snprintf(opening->why_not_verbs, sizeof opening->why_not_verbs, "%s", why.message);
    if (!result || (require == GPUSYS_TRANSPORT_ANY && opening->options.n_devices == 0))
        return 0;
    return refuse_verbs(opening, opening->options.n_devices ? result : -EOPNOTSUPP, &why);
}

static int say_hello(struct opening *opening)
{
    struct gpusys_remote *remote = opening->remote;
    find_cookie(opening);
    int result = open_ends(opening);
    if (result)
        return result;
    uint64_t serial = gs_control_serial(remote);
    if (send_hello(opening, serial))
        return gpusys_error_set_errno(opening->error, -ENOMEM, "%s", remote->address);
    result = gs_control_ask(remote, serial, GS_WELCOME, "HELLO", opening->deadline_ns, opening->error);
    return result ? explain_refusal(opening, result) : keep_welcome(opening);
}

/* ---- choosing ---- */

static int add_lane(struct opening *opening, const struct gs_rail_ops *ops, struct gs_verbs_pair *pair,
                    struct gpusys_error *error)
{
    struct gpusys_remote *remote = opening->remote;
    struct gs_lane *lane = &remote->lanes[remote->n_lanes];
    struct gs_rail_target target = remote->target;
    /* The peer may not have noticed yet that an earlier attempt at this number is over: a later generation. */
    *lane = (struct gs_lane){
        .ops = ops, .pair = pair, .generation = 1 + opening->attempts, .retry_at_ns = GPUSYS_NO_DEADLINE};
    target.pair = pair;
    target.index = (uint8_t)remote->n_lanes;
    target.generation = lane->generation;
    int result = ops->connect(&lane->rail, &target, opening->deadline_ns, error);
    if (result)
        opening->attempts++;
    else
        remote->n_lanes++;
    return result;
}

static int try_shm(struct opening *opening, struct gpusys_error *error)
{
    struct gpusys_remote *remote = opening->remote;
    if (!remote->unix_path[0])
        return gpusys_error_set(error, -EOPNOTSUPP, "the peer offers no Unix socket");
    if (!opening->local && access(remote->unix_path, F_OK) < 0)
        return gpusys_error_set(error, -EHOSTUNREACH, "not the same host: the peer's socket %s is not here",
                                remote->unix_path);
    return add_lane(opening, &gs_rail_shm, NULL, error);
}

static int choose_shm(struct opening *opening)
{
    struct gpusys_remote *remote = opening->remote;
    struct gpusys_error fault = {0};
    int result = try_shm(opening, &fault);
    if (!result) {
        remote->shm = gs_shm_of(remote->lanes[0].rail);
        remote->transport = GPUSYS_TRANSPORT_SHM;
        snprintf(remote->reason, sizeof remote->reason, "%s, proved over its Unix socket",
                 opening->options.require ? "required; same host" : "same host");
        return 0;
    }
    snprintf(opening->why_not, sizeof opening->why_not, "%s", fault.message);
    if (opening->options.require != GPUSYS_TRANSPORT_SHM)
        return result;
    gpusys_error_set(opening->error, result, "%s: shm was required and is not to be had", remote->address);
    gpusys_error_set_cause(opening->error, "%s", fault.message);
    return result;
}

static int choose_tcp(struct opening *opening)
{
    struct gpusys_remote *remote = opening->remote;
    unsigned wanted = opening->options.tcp_connections ? opening->options.tcp_connections : 1;
    int result = 0;
    for (unsigned i = 0; i < wanted && !result; i++)
        result = add_lane(opening, &gs_rail_tcp, NULL, opening->error);
    if (result)
        return result;
    remote->transport = GPUSYS_TRANSPORT_TCP;
    bool reno = opening->local && strncmp(remote->address, "unix:", 5) != 0;
    const char *tail = reno ? "; reno, since both ends are on loopback" : "";
    if (opening->options.require == GPUSYS_TRANSPORT_TCP)
        snprintf(remote->reason, sizeof remote->reason, "required%s", tail);
    else if (opening->local)
        snprintf(remote->reason, sizeof remote->reason, "no shm: %s%s", opening->why_not, tail);
    else
        snprintf(remote->reason, sizeof remote->reason, "no verbs: %s", opening->why_not_verbs);
    return 0;
}

/* Over every pair of ports that a first read gets through. */
static int choose_verbs(struct opening *opening, struct gpusys_error *why)
{
    struct gpusys_remote *remote = opening->remote;
    uint32_t most = opening->options.n_rails ? opening->options.n_rails : GS_RAILS_MAX;
    unsigned n_pairs = gs_verbs_find_pairs(remote, why), n_failed = 0;
    for (unsigned i = 0; i < n_pairs && remote->n_lanes < most; i++) {
        if (add_lane(opening, &gs_rail_verbs, &remote->pairs[i], why) == 0)
            continue;
        n_failed++;
        gs_log(GPUSYS_LOG_WARN, "%s: a rail is left out: %s", remote->address, why->message);
    }
    if (remote->n_lanes == 0)
        return n_failed ? why->code : -EOPNOTSUPP;
    remote->transport = GPUSYS_TRANSPORT_VERBS;
    gs_verbs_limit_slices(remote);
    snprintf(remote->reason, sizeof remote->reason, "%s%u of %u pairs of RDMA ports%s%s",
             opening->options.require ? "required; " : "", remote->n_lanes, n_pairs,
             n_failed ? "; the last to fail: " : "", n_failed ? why->message : "");
    return 0;
}

/* Fewer rails than pairs is no failure but for those who asked for a number. */
static int require_verbs(struct opening *opening)
{
    const struct gpusys_remote *remote = opening->remote;
    struct gpusys_error why = {0};
    int result = choose_verbs(opening, &why);
    uint32_t wanted = opening->options.n_rails;
    if (!result && remote->n_lanes < wanted)
        result = gpusys_error_set(&why, -ENODEV, "%u rails were asked for, and %u are to be had", wanted,
                                  remote->n_lanes);
    if (!result)
        return 0;
    gpusys_error_add_detail(&why, "RDMA ports", "%u here, %u at the peer, %u pairs", remote->n_ends,
                            remote->n_offers, remote->n_pairs);
    return refuse_verbs(opening, result, &why);
}

static int choose(struct opening *opening)
{
    uint32_t require = opening->options.require;
    if (require == GPUSYS_TRANSPORT_VERBS)
        return require_verbs(opening);
    if (require != GPUSYS_TRANSPORT_TCP) {
        int result = choose_shm(opening);
        if (!result || require == GPUSYS_TRANSPORT_SHM)
            return result;
    }
    struct gpusys_error why = {0};
    if (require == GPUSYS_TRANSPORT_ANY && choose_verbs(opening, &why) == 0)
        return 0;
    if (why.message[0])
        snprintf(opening->why_not_verbs, sizeof opening->why_not_verbs, "%.199s", why.message);
    return choose_tcp(opening);
}

/* The third step: both sides know what will be used. */
static int say_ready(struct opening *opening)
{
    struct gpusys_remote *remote = opening->remote;
    struct gs_ready ready = {.transport = (uint8_t)remote->transport, .reason = gs_text_of(remote->reason)};
    uint64_t serial = gs_control_serial(remote);
    if (gs_ready_encode(&remote->channel.out, serial, &ready))
        return gpusys_error_set_errno(opening->error, -ENOMEM, "%s", remote->address);
    uint64_t asked = opening->options.slice_bytes, own = remote->lanes[0].ops->slice_bytes;
    remote->slice_bytes = asked ? asked : own;
    if (remote->slice_bytes > remote->target.slice_max)
        remote->slice_bytes = remote->target.slice_max;
    gs_log(GPUSYS_LOG_INFO, "%s: %s (%s)", remote->address, gpusys_transport_name(remote->transport),
           remote->reason);
    return gs_control_ask(remote, serial, GS_GO, "READY", opening->deadline_ns, opening->error);
}

static int connect_control(struct opening *opening, const char *address)
{
    struct gpusys_remote *remote = opening->remote;
    struct gpusys_stream *stream;
    int result = gs_engine_open(remote);
    if (result)
        return gpusys_error_set_errno(opening->error, result, "%s", address);
    result = gpusys_stream_connect(&stream, address, opening->deadline_ns, opening->error);
    if (result)
        return result;
    gs_channel_init(&remote->channel, stream, false);
    /* From here on the one address that answered, so that rails go to the same place. */
    char connected[GS_ADDRESS_BYTES];
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    if (!is_unix && (result = gs_address_of_peer(gpusys_stream_fd(stream), connected)) != 0)
        return gpusys_error_set_errno(opening->error, result, "%s", address);
    snprintf(remote->address, sizeof remote->address, "%s", is_unix ? address : connected);
    return 0;
}

static int take_options(struct gpusys_remote_options *options, const struct gpusys_remote_options *given,
                        struct gpusys_error *error)
{
    int result = gs_options_take(options, sizeof *options, given);
    if (result)
        return gpusys_error_set(error, result, "the remote's options are of another version");
    if (options->n_devices > GS_RAILS_MAX || options->n_rails > GS_RAILS_MAX)
        return gpusys_error_set(error, -EINVAL,
                                "the remote's options: %u devices and %u rails, of at most %d",
                                options->n_devices, options->n_rails, GS_RAILS_MAX);
    if (options->require > GPUSYS_TRANSPORT_VERBS || options->tcp_connections > GS_RAILS_MAX ||
        options->slice_bytes > GS_SLICE_MAX)
        return gpusys_error_set(
            error, -EINVAL,
            "the remote's options: transport %u of 0…3, %u connections of at most %d, slices of "
            "%llu bytes of at most %d",
            options->require, options->tcp_connections, GS_RAILS_MAX,
            (unsigned long long)options->slice_bytes, GS_SLICE_MAX);
    return 0;
}

int gpusys_remote_open(struct gpusys_remote **ret_remote, const char *address,
                       const struct gpusys_remote_options *options, struct gpusys_error *error)
{
    struct opening opening = {.error = error};
    int result = take_options(&opening.options, options, error);
    if (result)
        return result;
    opening.remote = calloc(1, sizeof *opening.remote);
    if (!opening.remote)
        return gpusys_error_set_errno(error, -ENOMEM, "%s", address);
    opening.deadline_ns =
        gpusys_deadline_after(opening.options.timeout_ns ? opening.options.timeout_ns : open_timeout_ns);
    result = connect_control(&opening, address);
    if (!result)
        result = say_hello(&opening);
    if (!result)
        result = choose(&opening);
    if (!result)
        result = say_ready(&opening);
    if (result) {
        gpusys_remote_close(opening.remote);
        return result == -EAGAIN ? -ETIMEDOUT : result; /* a deadline that was past from the start */
    }
    *ret_remote = opening.remote;
    return 0;
}

void gs_remote_fail(struct gpusys_remote *remote, int why)
{
    if (remote->dead)
        return;
    remote->dead = why;
    remote->hot = (struct gs_hot){0};
    if (remote->n_lanes > 0) /* before that there was no session: the opening has its own words */
        gs_log(GPUSYS_LOG_WARN, "%s: the session is over: %s", remote->address, strerrordesc_np(-why));
    gs_engine_fail_all(remote, why);
}

void gpusys_remote_close(struct gpusys_remote *remote)
{
    if (!remote)
        return;
    gs_engine_close(remote);
    gs_verbs_close(remote);
    gs_sums_free(remote);
    gs_listing_free(remote);
    gs_channel_free(&remote->channel);
    gs_bytes_free(&remote->answer);
    free(remote);
}

/* "rail 0: Network is down; rail 1: Connection timed out" */
static void describe_faults(const struct gpusys_remote *remote, char *text, size_t size)
{
    size_t length = 0;
    for (unsigned i = 0; i < remote->n_lanes && length < size; i++) {
        const struct gs_lane *lane = &remote->lanes[i];
        if (lane->last_words[0] && (!lane->rail || remote->dead))
            length += (size_t)snprintf(text + length, size - length, "%srail %u: %s", length ? "; " : "", i,
                                       lane->last_words);
    }
}

int gpusys_remote_info(const struct gpusys_remote *remote, struct gpusys_remote_info *ret_info)
{
    struct gpusys_remote_info info = {.transport = remote->transport,
                                      .n_regions = remote->n_regions_said,
                                      .arena_bytes = remote->arena_bytes,
                                      .slice_bytes = remote->slice_bytes};
    for (unsigned i = 0; i < remote->n_lanes; i++)
        info.n_rails += remote->lanes[i].rail != NULL;
    snprintf(info.address, sizeof info.address, "%s", remote->address);
    snprintf(info.reason, sizeof info.reason, "%s", remote->reason);
    describe_faults(remote, info.fault, sizeof info.fault);
    return gs_info_give(ret_info, &info, sizeof info);
}

/* ---- what this process holds of a region ---- */

int gs_remote_prepare(struct gpusys_remote *remote, const struct gs_lane *lane, uint32_t region,
                      int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_listed *listed = gs_listed_at(remote, region);
    if (!listed || listed->kind == GPUSYS_REGION_DIRECTORY)
        return gpusys_error_set(error, -ENOENT, "%s: there are no bytes in region %u", remote->address,
                                region);
    struct gs_rail_region wanted = {.number = region,
                                    .kind = listed->kind,
                                    .access = listed->access,
                                    .place = listed->place,
                                    .length = listed->length,
                                    .mtime_ns = listed->mtime_ns};
    int result = lane->ops->prepare(lane->rail, &wanted, deadline_ns, error);
    return result == -EAGAIN ? -ETIMEDOUT : result; /* a deadline that was past from the start */
}

static int mapping_of(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns,
                      struct gs_mapping **ret_mapping, struct gpusys_error *error)
{
    if (!remote->shm)
        return gpusys_error_set(error, -EOPNOTSUPP,
                                "%s: only the shm transport can share a region's memory (%s)",
                                remote->address, remote->reason);
    if (remote->dead)
        return gpusys_error_set(error, -ENOTCONN, "%s: the session is over", remote->address);
    int result =
        gs_remote_prepare(remote, &remote->lanes[0], region, gpusys_deadline_after(timeout_ns), error);
    if (!result)
        *ret_mapping = gs_shm_mapping(remote->shm, region);
    return result;
}

int gpusys_remote_fd_of(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns, int *ret_fd,
                        struct gpusys_error *error)
{
    struct gs_mapping *mapping = NULL;
    int result = mapping_of(remote, region, timeout_ns, &mapping, error);
    if (!result)
        *ret_fd = mapping->fd;
    return result;
}

int gpusys_remote_map(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns, void **ret_address,
                      struct gpusys_error *error)
{
    struct gs_mapping *mapping = NULL;
    int result = mapping_of(remote, region, timeout_ns, &mapping, error);
    if (!result && (result = gs_shm_populate(mapping)) == -EOPNOTSUPP)
        gpusys_error_set(
            error, result,
            "region %u is a file, which may shrink under a mapping, or another user's huge pages: "
            "read its descriptor",
            region);
    else if (result == -EIO)
        gpusys_error_set(error, result, "region %u: its memory is not all there", region);
    if (!result)
        *ret_address = mapping->base;
    return result;
}

void gpusys_remote_release(struct gpusys_remote *remote, uint32_t region)
{
    remote->hot = (struct gs_hot){0};
    if (remote->shm)
        gs_shm_release(remote->shm, region);
}
