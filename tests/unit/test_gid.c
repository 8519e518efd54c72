/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which GID of a port is taken for a peer, and the words for it. No device is needed. */
#include "rail/verbs_gid.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8 };

#define V1 GPUSYS_GID_ROCE_V1
#define V2 GPUSYS_GID_ROCE_V2

struct entry {
    const char *address; /* NULL ends the table */
    uint32_t type;
    enum gs_gid_place place;
};

/* A table of GIDs, in the order of their indices, and the order they are ranked in. */
struct row {
    const char *name;
    const char *local, *peer;
    struct entry table[MOST];
    const char *order;  /* indices, the best first, without a blank */
    const char *reason; /* of the best */
};

static const struct row rows[] = {
    {"a pair for each address, as mlx5 has them",
     NULL,
     NULL,
     {{"fe80::1", V1, GS_GID_HERE},
      {"fe80::1", V2, GS_GID_HERE},
      {"192.168.1.1", V1, GS_GID_HERE},
      {"192.168.1.1", V2, GS_GID_HERE}},
     "3120",
     "RoCE v2, global"},
    {"private addresses are as good as any: the order of the table decides",
     NULL,
     NULL,
     {{"fe80::1", V2, GS_GID_HERE},
      {"10.1.2.3", V2, GS_GID_HERE},
      {"8.8.8.8", V2, GS_GID_HERE},
      {"172.16.0.1", V2, GS_GID_HERE},
      {"fd00::1", V2, GS_GID_HERE}},
     "12340",
     "RoCE v2, global"},
    {"10/8 against a link-local address that stands before it",
     NULL,
     "10.0.0.2",
     {{"fe80::1", V2, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global, IPv4 like the peer"},
    {"an IPv4 address of 169.254 is link-local too",
     NULL,
     NULL,
     {{"169.254.7.7", V2, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global"},
    {"169.253 is not",
     NULL,
     NULL,
     {{"169.253.7.7", V2, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "01",
     "RoCE v2, global"},
    {"the address of the control connection comes first",
     "10.0.0.5:7471",
     "10.0.0.2",
     {{"10.0.0.1", V2, GS_GID_HERE}, {"10.0.0.5", V1, GS_GID_HERE}, {"10.0.0.5", V2, GS_GID_HERE}},
     "201",
     "RoCE v2, the address of the control connection"},
    {"though it is of the other family than the peer",
     "[fd00::5]:7471",
     "10.0.0.2",
     {{"10.0.0.1", V2, GS_GID_HERE}, {"fd00::5", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, the address of the control connection"},
    {"a RoCE v1 GID with that address gains nothing",
     "10.0.0.5",
     NULL,
     {{"10.0.0.5", V1, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global"},
    {"a control connection over another network",
     "192.0.2.1:7471",
     NULL,
     {{"fe80::1", V2, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global"},
    {"a control connection over a Unix socket",
     "unix:/run/x",
     NULL,
     {{"10.0.0.1", V2, GS_GID_HERE}, {"10.0.0.2", V2, GS_GID_HERE}},
     "01",
     "RoCE v2, global"},
    {"the peer's family",
     NULL,
     "fd00::9",
     {{"10.0.0.1", V2, GS_GID_HERE}, {"fd00::1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global, IPv6 like the peer"},
    {"a global address of the other family rather than a link-local one of the peer's",
     NULL,
     "fd00::9",
     {{"fe80::1", V2, GS_GID_HERE}, {"10.0.0.1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global, IPv4 while the peer has the other"},
    {"RoCE v2 before v1, whatever the address",
     NULL,
     "10.0.0.2",
     {{"10.0.0.1", V1, GS_GID_HERE}, {"fd00::1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global, IPv6 while the peer has the other"},
    {"nothing but link-local is said, not hidden",
     NULL,
     NULL,
     {{"fe80::1", V1, GS_GID_HERE}, {"fe80::1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, link-local, of use on its own segment only"},
    {"and that the peer is not",
     NULL,
     "fd00::9",
     {{"fe80::1", V2, GS_GID_HERE}},
     "0",
     "RoCE v2, link-local while the peer is not, IPv6 like the peer"},
    {"a peer that is known by a link-local address",
     NULL,
     "fe80::9",
     {{"fd00::1", V2, GS_GID_HERE}, {"fe80::1", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, link-local like the peer, IPv6 like the peer"},
    {"nothing but RoCE v1",
     NULL,
     NULL,
     {{"fe80::1", V1, GS_GID_HERE}, {"10.0.0.1", V1, GS_GID_HERE}},
     "10",
     "RoCE v1, which is not routed, global"},
    {"an interface that is down",
     NULL,
     NULL,
     {{"10.0.0.1", V2, GS_GID_DOWN}, {"fe80::1", V1, GS_GID_HERE}},
     "10",
     "RoCE v1, which is not routed, link-local, of use on its own segment only"},
    {"an interface of another namespace, though it has the control connection's address",
     "10.0.0.1",
     NULL,
     {{"10.0.0.1", V2, GS_GID_ELSEWHERE}, {"10.0.0.2", V2, GS_GID_HERE}},
     "10",
     "RoCE v2, global"},
    {"none can be used",
     NULL,
     NULL,
     {{"10.0.0.1", V2, GS_GID_ELSEWHERE}, {"10.0.0.2", V2, GS_GID_DOWN}},
     "01",
     "not usable: its interface belongs to another network namespace"},
    {"no interface is known",
     NULL,
     NULL,
     {{"fe80::1", V2, GS_GID_UNBOUND}, {"10.0.0.1", V2, GS_GID_UNBOUND}},
     "10",
     "RoCE v2, global"},
};

static void make_gid(struct gs_gid *gid, const char *address, uint32_t type, uint32_t index)
{
    *gid = (struct gs_gid){.info = {.size = sizeof gid->info, .index = index, .type = type}};
    assert_int_equal(gs_gid_of_address(gid->info.gid, address), 0);
}

static unsigned judge_row(const struct row *row, struct gs_gid *gids)
{
    struct gs_gid_aim aim;
    uint8_t peer[16];
    unsigned n = 0;
    if (row->peer)
        assert_int_equal(gs_gid_of_address(peer, row->peer), 0);
    gs_gid_aim(&aim, GPUSYS_LINK_ETHERNET, row->local, row->peer ? peer : NULL);
    for (const struct entry *entry = row->table; n < MOST && entry->address; n++, entry++) {
        make_gid(&gids[n], entry->address, entry->type, n);
        gs_gid_judge(&gids[n], entry->place, &aim);
    }
    gs_gid_sort(gids, n);
    return n;
}

static void test_ranking(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct gs_gid gids[MOST];
        char order[MOST + 1] = "";
        unsigned n = judge_row(&rows[r], gids);
        for (unsigned i = 0; i < n; i++)
            order[i] = (char)('0' + gids[i].info.index);
        if (strcmp(order, rows[r].order) != 0 || strcmp(gids[0].info.reason, rows[r].reason) != 0)
            fail_msg("%s: %s, first: %s", rows[r].name, order, gids[0].info.reason);
    }
}

/* Whatever stands in a table: one that is not usable is never before one that is, and no score is 0 but theirs. */
static void test_usable(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct gs_gid gids[MOST];
        unsigned n = judge_row(&rows[r], gids);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(gids[i].info.usable, gids[i].score > 0);
            assert_true(i == 0 || gids[i - 1].score >= gids[i].score);
            assert_true(gids[i].info.reason[0]);
        }
    }
}

static void test_down_interface_is_named(void **state)
{
    (void)state;
    struct gs_gid gid;
    struct gs_gid_aim aim;
    gs_gid_aim(&aim, GPUSYS_LINK_ETHERNET, NULL, NULL);
    make_gid(&gid, "10.0.0.1", V2, 3);
    strcpy(gid.info.netdev, "ens1f0");
    gs_gid_judge(&gid, GS_GID_DOWN, &aim);
    assert_string_equal(gid.info.reason, "not usable: ens1f0 is down");
    gs_gid_judge(&gid, GS_GID_ELSEWHERE, &aim);
    assert_string_equal(gid.info.reason, "not usable: ens1f0 belongs to another network namespace");
    gs_gid_judge(&gid, GS_GID_HERE, &aim);
    assert_int_equal(gid.info.usable, 1);
}

static void test_infiniband(void **state)
{
    (void)state;
    struct gs_gid gids[3];
    struct gs_gid_aim aim;
    uint8_t peer[16];
    assert_int_equal(gs_gid_of_address(peer, "10.0.0.2"), 0);
    gs_gid_aim(&aim, GPUSYS_LINK_INFINIBAND, "10.0.0.1", peer);
    make_gid(&gids[0], "fe80::2c9:300:1:2", GPUSYS_GID_INFINIBAND, 1);
    make_gid(&gids[1], "fe80::2c9:300:1:1", GPUSYS_GID_INFINIBAND, 0);
    make_gid(&gids[2], "fe80::2c9:300:1:3", GPUSYS_GID_INFINIBAND, 2);
    for (unsigned i = 0; i < 3; i++)
        gs_gid_judge(&gids[i], GS_GID_UNBOUND, &aim);
    gs_gid_sort(gids, 3);
    for (unsigned i = 0; i < 3; i++) {
        const char *why;
        assert_int_equal(gids[i].info.index, i);
        assert_int_equal(gids[i].info.usable, 1);
        assert_false(gs_gid_misfits(&gids[i].info, &aim, &why));
    }
    assert_non_null(strstr(gids[0].info.reason, "LID"));
}

static void test_misfits(void **state)
{
    (void)state;
    static const struct {
        const char *gid, *peer, *why; /* NULL: it fits */
    } pairs[] = {
        {"10.0.0.1", "10.9.0.2", NULL},
        {"10.0.0.1", NULL, NULL},
        {"fe80::1", NULL, NULL},
        {"fe80::1", "fe80::2", NULL},
        {"fd00::1", "fe80::2", NULL},
        {"fd00::1", "2001:db8::2", NULL},
        {"169.254.0.1", "169.254.0.2", NULL},
        {"fe80::1", "fd00::2", "it is link-local and the peer's is not"},
        {"169.254.0.1", "10.0.0.2", "it is link-local and the peer's is not"},
        {"10.0.0.1", "fd00::2", "it is an IPv4 address and the peer's is IPv6"},
        {"fe80::1", "10.0.0.2", "it is an IPv6 address and the peer's is IPv4"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct gs_gid gid;
        struct gs_gid_aim aim;
        uint8_t peer[16];
        const char *why = NULL;
        make_gid(&gid, pairs[i].gid, V2, 0);
        if (pairs[i].peer)
            assert_int_equal(gs_gid_of_address(peer, pairs[i].peer), 0);
        gs_gid_aim(&aim, GPUSYS_LINK_ETHERNET, NULL, pairs[i].peer ? peer : NULL);
        assert_int_equal(gs_gid_misfits(&gid.info, &aim, &why), pairs[i].why != NULL);
        if (pairs[i].why)
            assert_string_equal(why, pairs[i].why);
    }
}

/* Sixteen zeros are what an empty field holds: no peer. */
static void test_empty_peer(void **state)
{
    (void)state;
    static const uint8_t zeros[16];
    struct gs_gid_aim aim;
    gs_gid_aim(&aim, GPUSYS_LINK_ETHERNET, "", zeros);
    assert_false(aim.has_peer);
    assert_false(aim.has_local);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"10.0.0.1", "10.0.0.1"},        {"10.0.0.1:7471", "10.0.0.1"}, {"::ffff:10.0.0.1", "10.0.0.1"},
        {"[fd00::1]:7471", "fd00::1"},   {"fd00::1", "fd00::1"},        {"fe80::1%eth0", "fe80::1"},
        {"[fe80::1%eth0]:1", "fe80::1"},
    };
    static const char *const bad[] = {"", "mlx5_0", "mlx5_0:2", "ens1f0", "10.0.0", "unix:/x", "10.0.0.1:x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint8_t gid[16];
        char text[GS_GID_TEXT_BYTES];
        assert_int_equal(gs_gid_of_address(gid, good[i][0]), 0);
        gs_gid_text(text, gid);
        assert_string_equal(text, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t gid[16];
        assert_int_equal(gs_gid_of_address(gid, bad[i]), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranking),    cmocka_unit_test(test_usable),
        cmocka_unit_test(test_infiniband), cmocka_unit_test(test_down_interface_is_named),
        cmocka_unit_test(test_misfits),    cmocka_unit_test(test_empty_peer),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests_name("gid", tests, NULL, NULL);
}
