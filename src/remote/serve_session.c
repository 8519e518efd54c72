/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer's sessions: opened by HELLO, told what to do on the control stream, gone with it. */
#include "remote/serve.h"

#include "base/log.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdlib.h>

/* ---- the list ---- */

static struct gs_session *find(struct gpusys_peer *peer, const uint8_t id[GS_NONCE_BYTES])
{
    struct gs_session *found = NULL;
    for (struct gs_session *session = peer->sessions; session; session = session->next)
        if (gs_secret_equal(session->id, id, GS_NONCE_BYTES))
            found = session;
    return found;
}

struct gs_worker *gs_session_worker(struct gpusys_peer *peer, const uint8_t id[GS_NONCE_BYTES])
{
    pthread_mutex_lock(&peer->lock);
    struct gs_session *session = find(peer, id);
    struct gs_worker *worker = session ? session->worker : NULL;
    pthread_mutex_unlock(&peer->lock);
    return worker;
}

struct gs_session *gs_session_find(struct gpusys_peer *peer, const uint8_t id[GS_NONCE_BYTES])
{
    pthread_mutex_lock(&peer->lock);
    struct gs_session *session = find(peer, id);
    pthread_mutex_unlock(&peer->lock);
    return session;
}

static void link_session(struct gpusys_peer *peer, struct gs_session *session)
{
    pthread_mutex_lock(&peer->lock);
    session->number = ++peer->next_session;
    session->next = peer->sessions;
    session->link = &peer->sessions;
    if (session->next)
        session->next->link = &session->next;
    peer->sessions = session;
    pthread_mutex_unlock(&peer->lock);
}

static void unlink_session(struct gpusys_peer *peer, struct gs_session *session)
{
    pthread_mutex_lock(&peer->lock);
    *session->link = session->next;
    if (session->next)
        session->next->link = session->link;
    pthread_mutex_unlock(&peer->lock);
}

/* ---- opening ---- */

static bool may_open(struct gs_conn *conn, uint64_t serial, const struct gs_hello *hello)
{
    struct gpusys_peer *peer = conn->worker->peer;
    if (hello->version < GS_PROTOCOL_VERSION) {
        gs_conn_refuse(conn, serial, GS_REFUSED_VERSION, "this peer speaks gpusys/%d, the client only %u",
                       GS_PROTOCOL_VERSION, hello->version);
        return false;
    }
    if (!peer->insecure && !gs_secret_equal(hello->cookie, peer->cookie, sizeof hello->cookie)) {
        gs_conn_refuse(conn, serial, GS_REFUSED_COOKIE,
                       "the cookie is not the one in this server's cookie file");
        return false;
    }
    if (atomic_fetch_add(&peer->clients, 1) >= peer->max_clients) {
        atomic_fetch_sub(&peer->clients, 1);
        gs_conn_refuse(conn, serial, GS_REFUSED_BUSY, "%u clients are connected, and no more are let in",
                       peer->max_clients);
        return false;
    }
    return true;
}

static int welcome(struct gs_conn *conn, uint64_t serial, const struct gs_session *session,
                   const struct gs_hello *hello)
{
    struct gpusys_peer *peer = conn->worker->peer;
    struct gs_welcome message = {.version = GS_PROTOCOL_VERSION,
                                 .n_regions = atomic_load(&peer->table.count),
                                 .arena_bytes = peer->arena_limit,
                                 .slice_max = GS_SLICE_MAX,
                                 .requests_max = GS_REQUESTS_MAX,
                                 .unix_path = gs_text_of(peer->unix_path)};
    memcpy(message.session, session->id, GS_NONCE_BYTES);
    memcpy(message.proof, session->proof, GS_NONCE_BYTES);
    memcpy(message.cookie, peer->cookie + GS_COOKIE_BYTES / 2, GS_COOKIE_BYTES / 2);
    gs_verbs_serve_offer(conn, hello, &message);
    return gs_welcome_encode(&conn->channel.out, serial, &message);
}

void gs_session_open(struct gs_conn *conn, uint64_t serial, const struct gs_hello *hello)
{
    struct gpusys_peer *peer = conn->worker->peer;
    if (!may_open(conn, serial, hello))
        return;
    struct gs_session *session = calloc(1, sizeof *session);
    if (!session || gs_random(session->id, GS_NONCE_BYTES) || gs_random(session->proof, GS_NONCE_BYTES) ||
        welcome(conn, serial, session, hello)) {
        free(session);
        atomic_fetch_sub(&peer->clients, 1);
        gs_conn_refuse(conn, serial, GS_REFUSED_LIMIT, "out of memory");
        return;
    }
    session->worker = conn->worker;
    session->control = conn;
    conn->session = session;
    conn->role = GS_ROLE_CONTROL;
    conn->deadline_ns = gpusys_deadline_after(peer->step_timeout_ns); /* until READY */
    link_session(peer, session);
    atomic_fetch_add(&peer->clients_total, 1);
    gs_log(GPUSYS_LOG_INFO, "%s: client %llu is \"%.*s\"", conn->name, (unsigned long long)session->number,
           hello->name.length, hello->name.at);
}

static void drop_arena(struct gs_session *session, unsigned slot)
{
    struct gpusys_peer *peer = session->worker->peer;
    if (!session->arenas[slot])
        return;
    gs_verbs_grant_forget(session->grant, session->arenas[slot]);
    atomic_fetch_sub(&peer->arena_bytes, session->arenas[slot]->length);
    atomic_fetch_sub(&peer->arenas, 1);
    gs_region_drop(session->arenas[slot]);
    session->arenas[slot] = NULL;
}

void gs_session_close(struct gs_session *session)
{
    struct gpusys_peer *peer = session->worker->peer;
    unlink_session(peer, session);
    for (unsigned i = 0; i < GS_RAILS_MAX; i++)
        if (session->rails[i])
            gs_conn_close(session->rails[i]);
    gs_verbs_serve_leave(session);
    for (unsigned i = 0; i < GS_ARENAS_MAX; i++)
        drop_arena(session, i);
    atomic_fetch_sub(&peer->clients, 1);
    gs_log(GPUSYS_LOG_INFO, "client %llu is gone", (unsigned long long)session->number);
    free(session);
}

struct gs_region *gs_session_region(struct gs_session *session, uint32_t number)
{
    if (!(number & GS_ARENA_BIT))
        return gs_table_at(&session->worker->peer->table, number);
    uint32_t slot = number & ~GS_ARENA_BIT;
    return slot < GS_ARENAS_MAX ? session->arenas[slot] : NULL;
}

void gs_session_changed(struct gs_session *session, const struct gs_region *region)
{
    struct gs_conn *control = session->control;
    gs_conn_complain(control, "\"%s\" changed while it was served", region->name);
    gs_region_message_encode(&control->channel.out, GS_CHANGED, 0, region->number);
    gs_conn_settle(control);
}

/* ---- the table ---- */

static int add_page_entry(struct gs_conn *conn, size_t page_at, const struct gs_region *region)
{
    struct gs_region_entry entry = {.region = region->number,
                                    .kind = region->kind,
                                    .access = region->access,
                                    .place = region->place,
                                    .length = region->length,
                                    .mtime_ns = region->mtime_ns,
                                    .mode = region->mode,
                                    .name = {.at = region->name, .length = (uint16_t)strlen(region->name)}};
    return gs_regions_add(&conn->channel.out, page_at, &entry);
}

static int send_page(struct gs_conn *conn, uint64_t serial, const struct gs_list *list)
{
    struct gs_table *table = &conn->worker->peer->table;
    uint64_t total = atomic_load(&table->count), first = list->first < total ? list->first : total;
    size_t page_at = gs_bytes_queued(&conn->channel.out);
    int error = gs_regions_begin(&conn->channel.out, serial, total, first);
    for (uint64_t i = first; !error && i < total && i - first < list->count; i++)
        error = add_page_entry(conn, page_at, gs_table_at(table, (uint32_t)i));
    return error == -ENOSPC ? 0 : error; /* a full page is a page; the client asks for the next one */
}

/* ---- checksums ---- */

struct sum_job {
    struct gs_job job;
    struct gs_conn *conn;
    struct gs_region *region;
    struct gs_sum sum;
    uint64_t serial;
    uint32_t done; /* chunks of them */
    int error;
    uint8_t hashes[][GPUSYS_HASH_BYTES];
};

/* A few chunks; then the pool's other work has its turn. */
static void sum_work(struct gs_job *job)
{
    enum { CHUNKS = 2 };
    struct sum_job *self = (struct sum_job *)job;
    for (unsigned i = 0; i < CHUNKS && self->done < self->sum.count && !self->error; i++, self->done++)
        self->error = gs_region_sum(self->region, self->sum.first + self->done, self->hashes[self->done]);
}

static void decline_errno(struct gs_conn *conn, uint64_t serial, const struct gs_region *region, int error)
{
    if (error == -ESTALE)
        gs_conn_decline(conn, serial, GS_REFUSED_CHANGED, "\"%s\" changed while it was served", region->name);
    else if (error == -ERANGE)
        gs_conn_decline(conn, serial, GS_REFUSED_RANGE, "no such chunk in \"%s\", which has %llu bytes",
                        region->name, (unsigned long long)region->length);
    else
        gs_conn_decline(conn, serial, GS_REFUSED_IO, "\"%s\" cannot be read: %s", region->name,
                        strerrordesc_np(-error));
}

static void sum_done(struct gs_task *task)
{
    struct sum_job *self = (struct sum_job *)task;
    struct gs_conn *conn = self->conn;
    if (!conn->closed && !self->error && self->done < self->sum.count) {
        gs_pool_submit(conn->worker->peer->pool, &self->job);
        return;
    }
    if (gs_conn_drop_job(conn)) {
        struct gs_sums sums = {.region = self->sum.region,
                               .first = self->sum.first,
                               .count = self->sum.count,
                               .hashes = (const uint8_t(*)[GPUSYS_HASH_BYTES])self->hashes};
        if (self->error)
            decline_errno(conn, self->serial, self->region, self->error);
        else if (gs_sums_encode(&conn->channel.out, self->serial, &sums))
            gs_conn_close(conn);
        gs_conn_resume(conn);
    }
    gs_region_drop(self->region);
    free(self);
}

static int start_sum(struct gs_conn *conn, uint64_t serial, const struct gs_sum *sum)
{
    struct gs_region *region = gs_session_region(conn->session, sum->region);
    if (!region) {
        gs_conn_decline(conn, serial, GS_REFUSED_REGION, "there is no region %u", sum->region);
        return 0;
    }
    if (!gs_range_fits(gs_chunk_count(region->length), sum->first, sum->count)) {
        decline_errno(conn, serial, region, -ERANGE);
        return 0;
    }
    struct sum_job *job = calloc(1, sizeof *job + (size_t)sum->count * GPUSYS_HASH_BYTES);
    if (!job)
        return -ENOMEM;
    job->job = (struct gs_job){.loop = conn->worker->loop, .work = sum_work, .done.run = sum_done};
    job->conn = conn;
    job->region = gs_region_hold(region);
    job->sum = *sum;
    job->serial = serial;
    gs_conn_hold_job(conn);
    gs_pool_submit(conn->worker->peer->pool, &job->job);
    return 0;
}

/* ---- arenas ---- */

struct arena_job {
    struct gs_job job;
    struct gs_conn *conn;
    struct gs_region *region;
    uint64_t serial;
    unsigned slot;
    int error;
};

static void arena_work(struct gs_job *job)
{
    struct arena_job *self = (struct arena_job *)job;
    self->error = gs_shared_open(&self->region->memory, "gpusys arena", self->region->length, true,
                                 gs_region_can_guard() ? GS_HUGE_IF_FREE : GS_HUGE_NEVER);
}

/* Take from what the arenas may have together. */
static bool reserve(struct gpusys_peer *peer, uint64_t bytes)
{
    unsigned long long held = atomic_load(&peer->arena_bytes);
    do {
        if (bytes > peer->arena_limit || held > peer->arena_limit - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&peer->arena_bytes, &held, held + bytes));
    atomic_fetch_add(&peer->arenas, 1);
    return true;
}

static void unreserve(struct gpusys_peer *peer, uint64_t bytes)
{
    atomic_fetch_sub(&peer->arena_bytes, bytes);
    atomic_fetch_sub(&peer->arenas, 1);
}

static void grant(struct gs_conn *conn, struct arena_job *job)
{
    struct gs_session *session = conn->session;
    session->arena_pending[job->slot] = false;
    if (job->error) {
        unreserve(conn->worker->peer, job->region->length);
        gs_conn_decline(conn, job->serial, GS_REFUSED_LIMIT, "no memory for an arena of %llu bytes: %s",
                        (unsigned long long)job->region->length, strerrordesc_np(-job->error));
        return;
    }
    struct gs_granted granted = {.region = job->region->number, .length = job->region->length};
    session->arenas[job->slot] = gs_region_hold(job->region);
    gs_log(GPUSYS_LOG_INFO, "client %llu has an arena of %llu bytes%s", (unsigned long long)session->number,
           (unsigned long long)granted.length, job->region->memory.huge ? " in huge pages" : "");
    if (gs_granted_encode(&conn->channel.out, job->serial, &granted))
        gs_conn_close(conn);
}

static void arena_done(struct gs_task *task)
{
    struct arena_job *self = (struct arena_job *)task;
    struct gs_conn *conn = self->conn;
    struct gpusys_peer *peer = conn->worker->peer;
    if (gs_conn_drop_job(conn)) {
        grant(conn, self);
        gs_conn_resume(conn);
    } else {
        unreserve(peer, self->region->length);
    }
    gs_region_drop(self->region);
    free(self);
}

static unsigned free_slot(const struct gs_session *session)
{
    unsigned slot = 0;
    while (slot < GS_ARENAS_MAX && (session->arenas[slot] || session->arena_pending[slot]))
        slot++;
    return slot;
}

static int submit_arena(struct gs_conn *conn, uint64_t serial, uint64_t bytes, unsigned slot)
{
    struct gpusys_peer *peer = conn->worker->peer;
    struct arena_job *job = calloc(1, sizeof *job);
    if (!job || gs_region_new(&job->region, &peer->files, "arena")) {
        free(job);
        unreserve(peer, bytes);
        return -ENOMEM;
    }
    job->region->number = GS_ARENA_BIT | slot;
    job->region->kind = GPUSYS_REGION_ARENA;
    job->region->access = GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE;
    job->region->length = bytes;
    job->job = (struct gs_job){.loop = conn->worker->loop, .work = arena_work, .done.run = arena_done};
    job->conn = conn;
    job->serial = serial;
    job->slot = slot;
    conn->session->arena_pending[slot] = true;
    gs_conn_hold_job(conn);
    gs_pool_submit(peer->pool, &job->job);
    return 0;
}

static int start_arena(struct gs_conn *conn, uint64_t serial, uint64_t bytes)
{
    struct gpusys_peer *peer = conn->worker->peer;
    unsigned slot = free_slot(conn->session);
    if (bytes == 0)
        gs_conn_decline(conn, serial, GS_REFUSED_RANGE, "an arena of 0 bytes");
    else if (peer->arena_limit == 0)
        gs_conn_decline(conn, serial, GS_REFUSED_LIMIT, "this peer gives no arenas (serve --arena BYTES)");
    else if (slot == GS_ARENAS_MAX)
        gs_conn_decline(conn, serial, GS_REFUSED_LIMIT, "a client may have %d arenas", GS_ARENAS_MAX);
    else if (!reserve(peer, bytes))
        gs_conn_decline(conn, serial, GS_REFUSED_LIMIT,
                        "an arena of %llu bytes is above what is left of %llu (serve --arena)",
                        (unsigned long long)bytes, (unsigned long long)peer->arena_limit);
    else
        return submit_arena(conn, serial, bytes, slot);
    return 0;
}

static int free_arena(struct gs_conn *conn, uint64_t serial, uint32_t number)
{
    if (!(number & GS_ARENA_BIT) || !gs_session_region(conn->session, number)) {
        gs_conn_decline(conn, serial, GS_REFUSED_REGION, "there is no arena %u", number & ~GS_ARENA_BIT);
        return 0;
    }
    drop_arena(conn->session, number & ~GS_ARENA_BIT);
    return gs_empty_encode(&conn->channel.out, GS_FREED, serial);
}

/* ---- rails, notes ---- */

static int fence(struct gs_conn *conn, uint64_t serial, const struct gs_fence *message)
{
    struct gs_conn *rail = conn->session->rails[message->rail];
    if (rail && rail->generation == message->generation)
        gs_conn_close(rail); /* nothing is applied after this: what it still had to say stays unread */
    return gs_empty_encode(&conn->channel.out, GS_FENCED, serial);
}

static int note(struct gs_conn *conn, uint64_t serial, const unsigned char *body, uint32_t bytes)
{
    struct gpusys_peer *peer = conn->worker->peer;
    if (bytes > GPUSYS_NOTE_BYTES) {
        gs_conn_decline(conn, serial, GS_REFUSED_LIMIT, "a note has at most %d bytes", GPUSYS_NOTE_BYTES);
        return 0;
    }
    if (peer->on_note)
        peer->on_note(peer->context, conn->session->number, body, bytes);
    return gs_empty_encode(&conn->channel.out, GS_NOTED, serial);
}

static int ready(struct gs_conn *conn, uint64_t serial, const struct gs_ready *message)
{
    gs_log(GPUSYS_LOG_INFO, "client %llu uses %s (%.*s)", (unsigned long long)conn->session->number,
           gpusys_transport_name(message->transport), message->reason.length, message->reason.at);
    if (conn->deadline_ns == GPUSYS_NO_DEADLINE)
        return -EBADMSG; /* once is enough */
    conn->deadline_ns = GPUSYS_NO_DEADLINE;
    return gs_empty_encode(&conn->channel.out, GS_GO, serial);
}

/* 0; -EBADMSG for what makes no sense here, -ENOMEM. */
static int handle(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body)
{
    union {
        struct gs_list list;
        struct gs_sum sum;
        struct gs_fence fence;
        struct gs_ready ready;
        uint64_t bytes;
        uint32_t region;
    } message;
    uint32_t size = frame->body_bytes;
    switch (frame->type) {
    case GS_READY:
        return gs_ready_decode(body, size, &message.ready) ?: ready(conn, frame->serial, &message.ready);
    case GS_LIST:
        return gs_list_decode(body, size, &message.list) ?: send_page(conn, frame->serial, &message.list);
    case GS_SUM:
        return gs_sum_decode(body, size, &message.sum) ?: start_sum(conn, frame->serial, &message.sum);
    case GS_ARENA:
        return gs_arena_decode(body, size, &message.bytes) ?: start_arena(conn, frame->serial, message.bytes);
    case GS_ARENA_FREE:
        return gs_region_message_decode(body, size, &message.region)
                   ?: free_arena(conn, frame->serial, message.region);
    case GS_FENCE:
        return gs_fence_decode(body, size, &message.fence) ?: fence(conn, frame->serial, &message.fence);
    case GS_NOTE: return note(conn, frame->serial, body, size);
    case GS_PING: return size ? -EBADMSG : gs_empty_encode(&conn->channel.out, GS_PONG, frame->serial);
    default: return -EBADMSG;
    }
}

void gs_session_message(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body)
{
    int error = handle(conn, frame, body);
    if (error == -EBADMSG) {
        gs_conn_refuse(conn, frame->serial, GS_REFUSED_MESSAGE,
                       "message %u makes no sense here, or is malformed", frame->type);
    } else if (error) {
        gs_conn_complain(conn, "disconnected: %s", strerrordesc_np(-error));
        gs_conn_close(conn);
    }
}
