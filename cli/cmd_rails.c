/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys rails: the RDMA ports of this host, their GIDs, and which would be taken against a peer. */
#include "command.h"
#include "output.h"
#include "rails_peer.h"
#include "rails_route.h"

#include <gpusys/verbs.h>
#include <inttypes.h>
#include <string.h>

enum { SCHEMA = 1 };

struct rails_options {
    bool json;
};

#define OPTION(member) offsetof(struct rails_options, member)

static const struct option rows[] = {
    {"json", 0, NULL, OPTION_FLAG, OPTION(json), "print JSON instead of tables"},
};

/* ---- words ---- */

static const char *state_name(const struct gpusys_port_info *port)
{
    static const char *const names[] = {"-", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    return names[port->state < sizeof names / sizeof *names ? port->state : 0];
}

static const char *link_name(const struct gpusys_port_info *port)
{
    static const char *const names[] = {"-", "InfiniBand", "RoCE"};
    return names[port->link_layer < sizeof names / sizeof *names ? port->link_layer : 0];
}

static const char *type_name(const struct gpusys_gid_info *gid)
{
    static const char *const names[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    return gid->type < sizeof names / sizeof *names ? names[gid->type] : "-";
}

enum { NAME_BYTES = 80 };

/* "mlx5_0:1", as --device and the like take it; a device that did not open has no ports. */
static const char *port_name(char name[NAME_BYTES], const struct gpusys_port_info *port)
{
    snprintf(name, NAME_BYTES, port->port ? "%s:%u" : "%s", port->device, port->port);
    return name;
}

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

/* ---- walking through the snapshot ---- */

static bool get_port(const struct gpusys_ports *ports, uint32_t at, struct gpusys_port_info *ret_port)
{
    *ret_port = (struct gpusys_port_info){.size = sizeof *ret_port};
    return gpusys_ports_port(ports, at, ret_port) == 0;
}

static bool get_gid(const struct gpusys_ports *ports, uint32_t at, uint32_t rank,
                    struct gpusys_gid_info *ret_gid)
{
    *ret_gid = (struct gpusys_gid_info){.size = sizeof *ret_gid};
    return gpusys_ports_gid(ports, at, rank, ret_gid) == 0;
}

/* What a port would be known by against the peer. */
struct choice {
    bool any; /* the port can be used */
    bool shares_subnet;
    struct gpusys_gid_info gid; /* InfiniBand may have none */
};

static struct choice choose(const struct gpusys_ports *ports, uint32_t at,
                            const struct gpusys_port_info *port, const struct rails_route *route)
{
    struct choice choice = {.any = !port->problem[0]};
    struct gpusys_gid_info gid;
    get_gid(ports, at, 0, &choice.gid);
    choice.shares_subnet = rails_shares_subnet(port->netdev, route);
    for (uint32_t rank = 0; get_gid(ports, at, rank, &gid); rank++)
        choice.shares_subnet |= rails_shares_subnet(gid.netdev, route);
    return choice;
}

/* ---- tables ---- */

static void port_row(struct table *table, const struct gpusys_port_info *port)
{
    char name[NAME_BYTES];
    table_cell(table, "%s", port_name(name, port));
    table_cell(table, "%s", state_name(port));
    table_cell(table, "%s", link_name(port));
    table_cell(table, port->rate_mbps ? "%g Gb/s" : "-", port->rate_mbps / 1000.0);
    table_cell(table, port->mtu_bytes ? "%u of %u" : "-", port->mtu_bytes, port->max_mtu_bytes);
    table_cell(table, port->link_layer == GPUSYS_LINK_INFINIBAND ? "%u" : "-", port->lid);
    table_cell(table, port->numa_node < 0 ? "-" : "%d", port->numa_node);
    table_cell(table, "%s", or_dash(port->netdev));
    table_cell(table, "%s", or_dash(port->firmware));
}

static int print_ports(const struct gpusys_ports *ports)
{
    static const struct column columns[] = {
        {"PORT", ALIGN_LEFT},   {"STATE", ALIGN_LEFT},     {"LINK", ALIGN_LEFT},
        {"SPEED", ALIGN_RIGHT}, {"MTU", ALIGN_RIGHT},      {"LID", ALIGN_RIGHT},
        {"NUMA", ALIGN_RIGHT},  {"INTERFACE", ALIGN_LEFT}, {"FIRMWARE", ALIGN_LEFT}};
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    struct gpusys_port_info port;
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        port_row(table, &port);
    return table_print(table, stdout);
}

/* Ports that cannot be used as they are, and why. */
static int print_problems(const struct gpusys_ports *ports)
{
    static const struct column columns[] = {{"NOT USABLE", ALIGN_LEFT}, {"WHY", ALIGN_LEFT}};
    struct table *table = NULL;
    struct gpusys_port_info port;
    char name[NAME_BYTES];
    for (uint32_t at = 0; get_port(ports, at, &port); at++) {
        if (!port.problem[0])
            continue;
        if (!table)
            table = table_new(columns, sizeof columns / sizeof *columns);
        table_cell(table, "%s", port_name(name, &port));
        table_cell(table, "%s", port.problem);
    }
    if (!table)
        return 0;
    putchar('\n');
    return table_print(table, stdout);
}

static void gid_rows(struct table *table, const struct gpusys_ports *ports, uint32_t at,
                     const struct gpusys_port_info *port)
{
    char name[NAME_BYTES];
    struct gpusys_gid_info gid;
    for (uint32_t rank = 0; get_gid(ports, at, rank, &gid); rank++) {
        table_cell(table, "%s", port_name(name, port));
        table_cell(table, "%u", gid.index);
        table_cell(table, "%s", gid.text);
        table_cell(table, "%s", or_dash(gid.netdev));
        table_cell(table, "%s", gid.reason);
    }
}

static int print_gids(const struct gpusys_ports *ports)
{
    bool any = false;
    static const struct column columns[] = {{"PORT", ALIGN_LEFT},
                                            {"GID", ALIGN_RIGHT},
                                            {"ADDRESS", ALIGN_LEFT},
                                            {"INTERFACE", ALIGN_LEFT},
                                            {"WHY IN THIS ORDER", ALIGN_LEFT}};
    struct gpusys_port_info port;
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        any |= port.n_gids > 0;
    if (!any)
        return 0;
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    putchar('\n');
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        gid_rows(table, ports, at, &port);
    return table_print(table, stdout);
}

static void choice_row(struct table *table, const struct gpusys_port_info *port, const struct choice *choice)
{
    char name[NAME_BYTES];
    table_cell(table, "%s", port_name(name, port));
    if (!choice->any)
        table_cell(table, "-");
    else if (port->link_layer == GPUSYS_LINK_INFINIBAND)
        table_cell(table, "LID %u", port->lid);
    else
        table_cell(table, "GID %u, %s", choice->gid.index, choice->gid.text);
    table_cell(table, choice->shares_subnet ? "the peer's" : "another");
    table_cell(table, "%s", choice->any ? choice->gid.reason : port->problem);
}

/* What is known of the peer from this side alone, and what each port would be against it. */
static int show_peer(const struct gpusys_ports *ports, const struct rails_route *route)
{
    static const struct column columns[] = {
        {"PORT", ALIGN_LEFT}, {"AGAINST THE PEER", ALIGN_LEFT}, {"SUBNET", ALIGN_LEFT}, {"WHY", ALIGN_LEFT}};
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    struct gpusys_port_info port;
    char safe[NAME_BYTES * 8];
    printf("\nthe peer %s is reached from %s%s%s\n\n", output_safe(safe, sizeof safe, route->peer_text),
           route->local_text, route->netdev[0] ? " on " : "", route->netdev);
    for (uint32_t at = 0; get_port(ports, at, &port); at++) {
        struct choice choice = choose(ports, at, &port, route);
        choice_row(table, &port, &choice);
    }
    return table_print(table, stdout);
}

static void rail_row(struct table *table, const struct gpusys_rail_info *rail)
{
    table_cell(table, "%s:%u", rail->local_device, rail->local_port);
    table_cell(table, "GID %u, %s", rail->local_gid_index, rail->local_gid);
    table_cell(table, "%s", rail->remote_device);
    table_cell(table, "GID %u, %s", rail->remote_gid_index, rail->remote_gid);
    table_cell(table, "%u (%u and %u)", rail->mtu_bytes, rail->local_mtu_bytes, rail->remote_mtu_bytes);
    table_cell(table, "%u", rail->reads_out);
    table_cell(table, "%s; a first read went through",
               rail->same_subnet ? "one subnet" : "no subnet in common, in order");
}

/* What a gpusys server there and this host agreed on. */
static int show_rails(const struct rails_peer *peer)
{
    static const struct column columns[] = {
        {"OURS", ALIGN_LEFT}, {"KNOWN BY", ALIGN_LEFT}, {"THE PEER'S", ALIGN_LEFT}, {"KNOWN BY", ALIGN_LEFT},
        {"MTU", ALIGN_LEFT},  {"READS", ALIGN_RIGHT},   {"PAIRED BY", ALIGN_LEFT}};
    char safe[sizeof peer->why_not * 4];
    if (!peer->asked) {
        printf("\nno rails could be set up with a gpusys server there: %s\n",
               output_safe(safe, sizeof safe, peer->why_not));
        return 0;
    }
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    printf("\nwith the gpusys server there:\n\n");
    for (uint32_t i = 0; i < peer->n_rails; i++)
        rail_row(table, &peer->rails[i]);
    return table_print(table, stdout);
}

static int print_tables(const struct gpusys_ports *ports, const struct rails_route *route,
                        const struct rails_peer *peer)
{
    int code = print_ports(ports);
    if (!code)
        code = print_problems(ports);
    if (!code)
        code = print_gids(ports);
    if (!code && route)
        code = show_peer(ports, route);
    if (!code && peer)
        code = show_rails(peer);
    return code;
}

/* ---- JSON ---- */

static json_t *json_amount(uint64_t value)
{
    return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
}

/* What came from a driver or a file need not be UTF-8. */
static json_t *json_text(const char *text)
{
    char safe[1024];
    return text[0] ? json_string(output_safe(safe, sizeof safe, text)) : json_null();
}

static json_t *gid_object(const struct gpusys_gid_info *gid)
{
    return json_pack("{s:i, s:s, s:s, s:o, s:b, s:o}", "index", (int)gid->index, "address", gid->text, "type",
                     type_name(gid), "interface", json_text(gid->netdev), "usable", (int)gid->usable,
                     "reason", json_text(gid->reason));
}

static json_t *choice_object(const struct gpusys_port_info *port, const struct choice *choice)
{
    bool by_lid = port->link_layer == GPUSYS_LINK_INFINIBAND;
    return json_pack("{s:b, s:b, s:o, s:o}", "usable", choice->any, "shares_subnet", choice->shares_subnet,
                     "gid_index", choice->any && !by_lid ? json_integer(choice->gid.index) : json_null(),
                     "lid", choice->any && by_lid ? json_integer(port->lid) : json_null());
}

static json_t *port_object(const struct gpusys_ports *ports, uint32_t at, const struct gpusys_port_info *port,
                           const struct rails_route *route)
{
    struct gpusys_gid_info gid;
    json_t *gids = json_array();
    for (uint32_t rank = 0; get_gid(ports, at, rank, &gid); rank++)
        json_array_append_new(gids, gid_object(&gid));
    json_t *object = json_pack(
        "{s:o, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b}", "device", json_text(port->device), "port",
        (int)port->port, "state", state_name(port), "link", link_name(port), "rate_mbps",
        (int)port->rate_mbps, "mtu_bytes", (int)port->mtu_bytes, "max_mtu_bytes", (int)port->max_mtu_bytes,
        "lid", (int)port->lid, "sm_lid", (int)port->sm_lid, "grh_required", (int)port->grh_required);
    json_object_set_new(object, "numa_node",
                        port->numa_node < 0 ? json_null() : json_integer(port->numa_node));
    json_object_set_new(object, "interface", json_text(port->netdev));
    json_object_set_new(object, "firmware", json_text(port->firmware));
    json_object_set_new(object, "reads_out", json_integer(port->reads_out));
    json_object_set_new(object, "reads_in", json_integer(port->reads_in));
    json_object_set_new(object, "max_message_bytes", json_amount(port->max_message_bytes));
    json_object_set_new(object, "max_mr_bytes", json_amount(port->max_mr_bytes));
    json_object_set_new(object, "problem", json_text(port->problem));
    json_object_set_new(object, "gids", gids);
    if (route) {
        struct choice choice = choose(ports, at, port, route);
        json_object_set_new(object, "against_peer", choice_object(port, &choice));
    }
    return object;
}

static json_t *rail_object(const struct gpusys_rail_info *rail)
{
    return json_pack("{s:o, s:i, s:i, s:s, s:o, s:i, s:s, s:i, s:i, s:i, s:i, s:b}", "device",
                     json_text(rail->local_device), "port", (int)rail->local_port, "gid_index",
                     (int)rail->local_gid_index, "gid", rail->local_gid, "peer_device",
                     json_text(rail->remote_device), "peer_gid_index", (int)rail->remote_gid_index,
                     "peer_gid", rail->remote_gid, "mtu_bytes", (int)rail->mtu_bytes, "local_mtu_bytes",
                     (int)rail->local_mtu_bytes, "peer_mtu_bytes", (int)rail->remote_mtu_bytes, "reads_out",
                     (int)rail->reads_out, "shares_subnet", (int)rail->same_subnet);
}

static void add_rails(json_t *document, const struct rails_peer *peer)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < peer->n_rails; i++)
        json_array_append_new(list, rail_object(&peer->rails[i]));
    json_object_set_new(document, "rails", list);
    json_object_set_new(document, "why_no_rails", json_text(peer->why_not));
}

static int print_json(const struct gpusys_ports *ports, const struct rails_route *route,
                      const struct rails_peer *peer)
{
    json_t *document = json_document(SCHEMA), *list = json_array();
    struct gpusys_port_info port;
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        json_array_append_new(list, port_object(ports, at, &port, route));
    json_object_set_new(document, "library", json_text(gpusys_verbs_library()));
    if (route)
        json_object_set_new(document, "peer",
                            json_pack("{s:o, s:s, s:o}", "address", json_text(route->peer_text),
                                      "local_address", route->local_text, "interface",
                                      json_text(route->netdev)));
    json_object_set_new(document, "ports", list);
    if (peer)
        add_rails(document, peer);
    return json_print(document);
}

/* ---- the command ---- */

static bool is_absence(int code)
{
    return code == -EOPNOTSUPP || code == -ENOENT || code == -ELIBBAD || code == -ELIBACC ||
           code == -ENOSYS || code == -ENODEV;
}

/* Devices are there, but this process may not open one of them: what to do about it. */
static enum exit_code judge(const struct gpusys_ports *ports)
{
    struct gpusys_port_info port;
    struct gpusys_error error = {0};
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        if (port.state)
            return EXIT_DONE;
    if (gpusys_verbs_status(&error) == 0)
        return EXIT_DONE;
    report_error(&error);
    return EXIT_NOT_HERE;
}

static const int64_t patience_ns = 10000000000; /* for looking up the peer's name */

static enum exit_code run(const struct call *call)
{
    const struct rails_options *options = call->options;
    struct gpusys_error error = {0};
    struct rails_route route;
    bool has_peer = call->n_operands == 1;
    int64_t timeout_ns = call->settings->timeout_ns;
    if (has_peer && rails_find_route(&route, call->operands[0], timeout_ns > 0 ? timeout_ns : patience_ns))
        return EXIT_FAILED;
    struct gpusys_ports *ports;
    int code =
        gpusys_ports_new(&ports, has_peer ? route.local_text : NULL, has_peer ? route.peer : NULL, &error);
    if (code) {
        report_error(&error);
        return is_absence(code) ? EXIT_NOT_HERE : EXIT_FAILED;
    }
    struct rails_peer peer;
    if (has_peer)
        rails_ask_peer(&peer, call->operands[0], timeout_ns > 0 ? timeout_ns : patience_ns);
    code = options->json ? print_json(ports, has_peer ? &route : NULL, has_peer ? &peer : NULL)
                         : print_tables(ports, has_peer ? &route : NULL, has_peer ? &peer : NULL);
    enum exit_code verdict = code ? EXIT_FAILED : judge(ports);
    gpusys_ports_free(ports);
    return verdict;
}

extern const struct command command_rails;

const struct command command_rails = {
    .name = "rails",
    .summary = "show the RDMA ports of this host and the GIDs they would use",
    .operands = "[ADDR]",
    .description =
        "Lists every port of every RDMA device: its state, link, speed, MTU, LID, NUMA node and network "
        "interface, why it cannot be used where it cannot, and its GIDs in the order in which they would be "
        "taken, each with the reason for its place.\n"
        "\n"
        "With ADDR, a host with or without a port, the order is that against this peer: it also says what "
        "every "
        "port would be known by, and which ports are on a subnet of the peer. If a gpusys server answers "
        "there, "
        "the rails that both sides agree on are set up, tried with a first read, shown and closed.\n"
        "\n"
        "Exit code 77: there is no RDMA device that can be opened, no libibverbs, or no RDMA in this build.\n"
        "\n"
        "    gpusys rails\n"
        "    gpusys rails 10.0.0.1:7471",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct rails_options),
    .max_operands = 1,
};
