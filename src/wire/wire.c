/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The records of the rail handshake: structs to bytes and back. */
#include "base/cursor.h"
#include "wire/records.h"

#include <errno.h>
#include <stdbool.h>

_Static_assert(sizeof(struct gpusys_region_key) == 16 && offsetof(struct gpusys_region_key, rkey) == 8,
               "a region key lies in memory as on the wire, and four bytes more");

enum { STRIDE = GPUSYS_REGION_KEY_BYTES };

static bool count_in_range(uint32_t count, uint32_t most)
{
    return count >= 1 && count <= most;
}

static void put_qp(unsigned char **at, const struct gpusys_qp_params *qp)
{
    gs_put_u32(at, qp->qpn);
    gs_put_u32(at, qp->psn);
    gs_put_bytes(at, qp->gid, sizeof qp->gid);
}

static void get_qp(const unsigned char **at, struct gpusys_qp_params *qp)
{
    qp->qpn = gs_get_u32(at);
    qp->psn = gs_get_u32(at);
    gs_get_bytes(at, qp->gid, sizeof qp->gid);
}

static void put_region(unsigned char **at, const struct gpusys_region_key *region)
{
    gs_put_u64(at, region->base);
    gs_put_u32(at, region->rkey);
}

static struct gpusys_region_key get_region(const unsigned char **at)
{
    uint64_t base = gs_get_u64(at);
    return (struct gpusys_region_key){.base = base, .rkey = gs_get_u32(at)};
}

/*
 * Tables of regions move in steps of 16 bytes where memory is little-endian: what a step writes or reads past
 * its entry belongs to the next one, so the last entry alone must go field by field. Four steps a turn,
 * because the speed of a shorter loop hangs on where the linker happens to put it.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
typedef uint32_t quad __attribute__((vector_size(16)));

static inline void put_wide(unsigned char *to, const struct gpusys_region_key *region)
{
    quad entry;
    memcpy(&entry, region, sizeof entry);
    memcpy(to, &entry, sizeof entry);
}

static inline void get_wide(const unsigned char *from, struct gpusys_region_key *region)
{
    quad entry;
    memcpy(&entry, from, sizeof entry);
    entry &= (quad){UINT32_MAX, UINT32_MAX, UINT32_MAX, 0};
    memcpy(region, &entry, sizeof entry);
}

static uint32_t put_regions_wide(unsigned char **at, const struct gpusys_region_key *regions, uint32_t n)
{
    unsigned char *to = *at; /* a local copy: stores of bytes might change *at, for all the compiler knows */
    uint32_t i = 0;
    for (; i + 4 < n; i += 4, to += 4 * STRIDE) {
        put_wide(to, &regions[i]);
        put_wide(to + STRIDE, &regions[i + 1]);
        put_wide(to + 2 * STRIDE, &regions[i + 2]);
        put_wide(to + 3 * STRIDE, &regions[i + 3]);
    }
    *at = to;
    return i;
}

static uint32_t get_regions_wide(const unsigned char **at, struct gpusys_region_key *regions, uint32_t n)
{
    const unsigned char *from = *at;
    uint32_t i = 0;
    for (; i + 4 < n; i += 4, from += 4 * STRIDE) {
        get_wide(from, &regions[i]);
        get_wide(from + STRIDE, &regions[i + 1]);
        get_wide(from + 2 * STRIDE, &regions[i + 2]);
        get_wide(from + 3 * STRIDE, &regions[i + 3]);
    }
    *at = from;
    return i;
}
#else
static uint32_t put_regions_wide(unsigned char **at, const struct gpusys_region_key *regions, uint32_t n)
{
    (void)at, (void)regions, (void)n;
    return 0;
}

static uint32_t get_regions_wide(const unsigned char **at, struct gpusys_region_key *regions, uint32_t n)
{
    (void)at, (void)regions, (void)n;
    return 0;
}
#endif

static void put_regions(unsigned char **at, const struct gpusys_region_key *regions, uint32_t n)
{
    for (uint32_t i = put_regions_wide(at, regions, n); i < n; i++)
        put_region(at, &regions[i]);
}

void gs_regions_unpack(struct gpusys_region_key *regions, const unsigned char *bytes, uint32_t n)
{
    for (uint32_t i = get_regions_wide(&bytes, regions, n); i < n; i++)
        regions[i] = get_region(&bytes);
}

/* VerbsClientParams. */

int gpusys_qp_params_encode(const struct gpusys_qp_params *params, void *buffer, size_t size,
                            size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, GPUSYS_QP_PARAMS_BYTES);
    if (!at)
        return -ENOSPC;
    put_qp(&at, params);
    *ret_size = GPUSYS_QP_PARAMS_BYTES;
    return 0;
}

int gpusys_qp_params_decode(struct gpusys_qp_params *ret_params, const void *bytes, size_t size,
                            size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    const unsigned char *at = gs_cursor_take(&cursor, GPUSYS_QP_PARAMS_BYTES);
    if (!at)
        return -ENODATA;
    get_qp(&at, ret_params);
    *ret_size = GPUSYS_QP_PARAMS_BYTES;
    return 0;
}

/* CacheServerParams. */

static void put_cache_server(unsigned char **at, const struct gpusys_cache_server_params *params)
{
    put_qp(at, &params->qp);
    put_region(at, &params->region);
}

static void get_cache_server(const unsigned char **at, struct gpusys_cache_server_params *params)
{
    get_qp(at, &params->qp);
    params->region = get_region(at);
}

int gpusys_cache_server_params_encode(const struct gpusys_cache_server_params *params, void *buffer,
                                      size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, GPUSYS_CACHE_SERVER_PARAMS_BYTES);
    if (!at)
        return -ENOSPC;
    put_cache_server(&at, params);
    *ret_size = GPUSYS_CACHE_SERVER_PARAMS_BYTES;
    return 0;
}

int gpusys_cache_server_params_decode(struct gpusys_cache_server_params *ret_params, const void *bytes,
                                      size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    const unsigned char *at = gs_cursor_take(&cursor, GPUSYS_CACHE_SERVER_PARAMS_BYTES);
    if (!at)
        return -ENODATA;
    get_cache_server(&at, ret_params);
    *ret_size = GPUSYS_CACHE_SERVER_PARAMS_BYTES;
    return 0;
}

/* VerbsServerParams. */

static void put_verbs_server(unsigned char **at, const struct gpusys_verbs_server_params *params)
{
    put_qp(at, &params->qp);
    gs_put_u32(at, params->n_regions);
    put_regions(at, params->regions, params->n_regions);
}

void gs_verbs_server_head_decode(const unsigned char *head, struct gpusys_qp_params *ret_qp,
                                 uint32_t *ret_n_regions)
{
    get_qp(&head, ret_qp);
    *ret_n_regions = gs_get_u32(&head);
}

/* A record that was found whole, and its count. */
struct found {
    const unsigned char *at;
    uint32_t n_regions;
};

static int find_verbs_server(struct gs_cursor *cursor, struct found *found)
{
    const unsigned char *head = gs_cursor_take(cursor, GS_VERBS_SERVER_HEAD_BYTES);
    if (!head)
        return -ENODATA;
    const unsigned char *count = head + GPUSYS_QP_PARAMS_BYTES;
    uint32_t n = gs_get_u32(&count);
    if (!count_in_range(n, GPUSYS_MAX_REGIONS))
        return -EBADMSG;
    if (!gs_cursor_take(cursor, (size_t)n * GPUSYS_REGION_KEY_BYTES))
        return -ENODATA;
    *found = (struct found){.at = head, .n_regions = n};
    return 0;
}

static void get_verbs_server(const struct found *found, struct gpusys_verbs_server_params *params)
{
    gs_verbs_server_head_decode(found->at, &params->qp, &params->n_regions);
    gs_regions_unpack(params->regions, found->at + GS_VERBS_SERVER_HEAD_BYTES, found->n_regions);
}

int gpusys_verbs_server_params_encode(const struct gpusys_verbs_server_params *params, void *buffer,
                                      size_t size, size_t *ret_size)
{
    if (!count_in_range(params->n_regions, GPUSYS_MAX_REGIONS))
        return -EINVAL;
    size_t needed = GPUSYS_VERBS_SERVER_PARAMS_BYTES(params->n_regions);
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, needed);
    if (!at)
        return -ENOSPC;
    put_verbs_server(&at, params);
    *ret_size = needed;
    return 0;
}

int gpusys_verbs_server_params_decode(struct gpusys_verbs_server_params *params, const void *bytes,
                                      size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    struct found found;
    int error = find_verbs_server(&cursor, &found);
    if (error)
        return error;
    if (found.n_regions > params->capacity) {
        params->n_regions = found.n_regions;
        return -ENOSPC;
    }
    get_verbs_server(&found, params);
    *ret_size = size - gs_cursor_left(&cursor);
    return 0;
}

/* Rails: a count byte, then records. */

/* Take the count byte and see that it is in range and the one that is wanted. */
static int take_count(struct gs_cursor *cursor, uint32_t most, uint32_t wanted)
{
    const unsigned char *at = gs_cursor_take(cursor, 1);
    if (!at)
        return -ENODATA;
    if (!count_in_range(*at, most))
        return -EBADMSG;
    return *at == wanted ? 0 : -EPROTO;
}

int gpusys_server_rails_ro_size(const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                size_t *ret_size)
{
    if (!count_in_range(n_rails, GPUSYS_MAX_RAILS_READ_ONLY))
        return -EINVAL;
    size_t size = 1;
    for (uint32_t i = 0; i < n_rails; i++) {
        if (!count_in_range(rails[i].n_regions, GPUSYS_MAX_REGIONS))
            return -EINVAL;
        size += GPUSYS_VERBS_SERVER_PARAMS_BYTES(rails[i].n_regions);
    }
    *ret_size = size;
    return 0;
}

int gpusys_server_rails_ro_encode(const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                  void *buffer, size_t size, size_t *ret_size)
{
    size_t needed;
    int error = gpusys_server_rails_ro_size(rails, n_rails, &needed);
    if (error)
        return error;
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, needed);
    if (!at)
        return -ENOSPC;
    gs_put_u8(&at, (uint8_t)n_rails);
    for (uint32_t i = 0; i < n_rails; i++)
        put_verbs_server(&at, &rails[i]);
    *ret_size = needed;
    return 0;
}

/* Does every rail have room? When one has not, all are told what they need. */
static int check_room(struct gpusys_verbs_server_params *rails, const struct found *found, uint32_t n_rails)
{
    bool enough = true;
    for (uint32_t i = 0; i < n_rails; i++)
        enough = enough && found[i].n_regions <= rails[i].capacity;
    for (uint32_t i = 0; i < n_rails && !enough; i++)
        rails[i].n_regions = found[i].n_regions;
    return enough ? 0 : -ENOSPC;
}

int gpusys_server_rails_ro_decode(struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                  const void *bytes, size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    struct found found[GPUSYS_MAX_RAILS_READ_ONLY];
    int error = take_count(&cursor, GPUSYS_MAX_RAILS_READ_ONLY, n_rails);
    for (uint32_t i = 0; i < n_rails && !error; i++)
        error = find_verbs_server(&cursor, &found[i]);
    if (!error)
        error = check_room(rails, found, n_rails);
    if (error)
        return error;
    for (uint32_t i = 0; i < n_rails; i++)
        get_verbs_server(&found[i], &rails[i]);
    *ret_size = size - gs_cursor_left(&cursor);
    return 0;
}

int gpusys_server_rails_rw_encode(const struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                  void *buffer, size_t size, size_t *ret_size)
{
    if (!count_in_range(n_rails, GPUSYS_MAX_RAILS_READ_WRITE))
        return -EINVAL;
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, GPUSYS_SERVER_RAILS_RW_BYTES(n_rails));
    if (!at)
        return -ENOSPC;
    gs_put_u8(&at, (uint8_t)n_rails);
    for (uint32_t i = 0; i < n_rails; i++)
        put_cache_server(&at, &rails[i]);
    *ret_size = GPUSYS_SERVER_RAILS_RW_BYTES(n_rails);
    return 0;
}

int gpusys_server_rails_rw_decode(struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                  const void *bytes, size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    int error = take_count(&cursor, GPUSYS_MAX_RAILS_READ_WRITE, n_rails);
    if (error)
        return error;
    const unsigned char *at = gs_cursor_take(&cursor, (size_t)n_rails * GPUSYS_CACHE_SERVER_PARAMS_BYTES);
    if (!at)
        return -ENODATA;
    for (uint32_t i = 0; i < n_rails; i++)
        get_cache_server(&at, &rails[i]);
    *ret_size = GPUSYS_SERVER_RAILS_RW_BYTES(n_rails);
    return 0;
}

int gpusys_client_rails_encode(const struct gpusys_qp_params *rails, uint32_t n_rails, void *buffer,
                               size_t size, size_t *ret_size)
{
    if (!count_in_range(n_rails, GPUSYS_MAX_RAILS_READ_WRITE))
        return -EINVAL;
    struct gs_cursor cursor = gs_cursor_over(buffer, size);
    unsigned char *at = gs_cursor_take(&cursor, GPUSYS_CLIENT_RAILS_BYTES(n_rails));
    if (!at)
        return -ENOSPC;
    gs_put_u8(&at, (uint8_t)n_rails);
    for (uint32_t i = 0; i < n_rails; i++)
        put_qp(&at, &rails[i]);
    *ret_size = GPUSYS_CLIENT_RAILS_BYTES(n_rails);
    return 0;
}

int gpusys_client_rails_decode(struct gpusys_qp_params *rails, uint32_t n_rails, const void *bytes,
                               size_t size, size_t *ret_size)
{
    struct gs_cursor cursor = gs_cursor_over(bytes, size);
    int error = take_count(&cursor, GPUSYS_MAX_RAILS_READ_WRITE, n_rails);
    if (error)
        return error;
    const unsigned char *at = gs_cursor_take(&cursor, (size_t)n_rails * GPUSYS_QP_PARAMS_BYTES);
    if (!at)
        return -ENODATA;
    for (uint32_t i = 0; i < n_rails; i++)
        get_qp(&at, &rails[i]);
    *ret_size = GPUSYS_CLIENT_RAILS_BYTES(n_rails);
    return 0;
}
