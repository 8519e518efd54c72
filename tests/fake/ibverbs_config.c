/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: devices as a text file describes them. */
#include "ibverbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char two_devices[] = "device fake0\n"
                                  "port 1\n"
                                  "gid 0 fe80::5054:ff:fe00:1 roce1 lo\n"
                                  "gid 1 fe80::5054:ff:fe00:1 roce2 lo\n"
                                  "gid 2 127.0.0.1 roce1 lo\n"
                                  "gid 3 127.0.0.1 roce2 lo\n"
                                  "gid 4 ::1 roce2 lo\n"
                                  "device fake1\n"
                                  "port 1\n"
                                  "gid 0 fe80::5054:ff:fe00:101 roce1 lo\n"
                                  "gid 1 fe80::5054:ff:fe00:101 roce2 lo\n"
                                  "gid 2 127.0.0.2 roce1 lo\n"
                                  "gid 3 127.0.0.2 roce2 lo\n";

struct reader {
    struct config *config;
    struct device *device;
    struct port *port;
    int port_number;
};

bool fake_gid_parse(union ibv_gid *ret_gid, const char *address)
{
    union ibv_gid gid = {.raw = {0}};
    if (inet_pton(AF_INET6, address, gid.raw) != 1) {
        if (inet_pton(AF_INET, address, gid.raw + 12) != 1)
            return false;
        gid.raw[10] = gid.raw[11] = 0xff;
    }
    *ret_gid = gid;
    return true;
}

static const struct {
    const char *name;
    int value;
} errnos[] = {{"EPERM", EPERM},   {"ENOENT", ENOENT},         {"EIO", EIO},
              {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM},         {"EACCES", EACCES},
              {"EFAULT", EFAULT}, {"EBUSY", EBUSY},           {"ENODEV", ENODEV},
              {"EINVAL", EINVAL}, {"ENOSYS", ENOSYS},         {"EMFILE", EMFILE},
              {"ENOSPC", ENOSPC}, {"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT}};

const char *fake_errno_value(const char *text, uint64_t *ret_value)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*text && !*end) {
        *ret_value = value;
        return NULL;
    }
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        if (strcmp(errnos[i].name, text) == 0) {
            *ret_value = (uint64_t)errnos[i].value;
            return NULL;
        }
    return "neither a number nor an errno that is known";
}

/* One of some words; gives its place, or -1. */
static int choose(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

static enum ibv_mtu mtu_of(uint64_t bytes)
{
    for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
        if (bytes == 128u << mtu)
            return (enum ibv_mtu)mtu;
    return (enum ibv_mtu)0;
}

static void fill_device(struct device *device, const char *name, int index)
{
    *device = (struct device){.has_dmabuf = true, .index = index, .max_inline = 128};
    device->base.node_type = IBV_NODE_CA;
    device->base.transport_type = IBV_TRANSPORT_IB;
    snprintf(device->base.name, sizeof device->base.name, "%s", name);
    snprintf(device->base.dev_name, sizeof device->base.dev_name, "uverbs%d", index);
    snprintf(device->base.dev_path, sizeof device->base.dev_path, "/sys/class/infiniband_verbs/uverbs%d",
             index);
    snprintf(device->base.ibdev_path, sizeof device->base.ibdev_path, "/sys/class/infiniband/%s", name);
    device->attr = (struct ibv_device_attr){.fw_ver = "1.0.0",
                                            .node_guid = htobe64(0x505400fffe000000u + (unsigned)index),
                                            .max_mr_size = UINT64_MAX,
                                            .page_size_cap = 4096,
                                            .vendor_id = 0xfa4e,
                                            .max_qp = QP_SLOTS,
                                            .max_qp_wr = 8192,
                                            .max_sge = SEND_SGE,
                                            .max_sge_rd = SEND_SGE,
                                            .max_cq = CQ_SLOTS,
                                            .max_cqe = 32767,
                                            .max_mr = MR_SLOTS,
                                            .max_pd = 32768,
                                            .max_qp_rd_atom = 16,
                                            .max_res_rd_atom = 16 * QP_SLOTS,
                                            .max_qp_init_rd_atom = 16,
                                            .atomic_cap = IBV_ATOMIC_NONE,
                                            .max_pkeys = PKEYS,
                                            .local_ca_ack_delay = 15};
    device->attr.sys_image_guid = device->attr.node_guid;
}

static void fill_port(struct port *port)
{
    *port = (struct port){.pkeys = {0xffff}};
    port->attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                        .max_mtu = IBV_MTU_4096,
                                        .active_mtu = IBV_MTU_4096,
                                        .gid_tbl_len = GIDS,
                                        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
                                        .max_msg_sz = 0x800000,
                                        .pkey_tbl_len = 1,
                                        .max_vl_num = 1,
                                        .active_width = 2,
                                        .active_speed = 32,
                                        .phys_state = 5,
                                        .link_layer = IBV_LINK_LAYER_ETHERNET};
}

static const char *begin_device(struct reader *reader, const char *name)
{
    if (reader->config->n_devices == DEVICES)
        return "too many devices";
    unsigned index = reader->config->n_devices++;
    reader->device = &reader->config->devices[index];
    reader->port = NULL;
    fill_device(reader->device, name, (int)index);
    return NULL;
}

static const char *begin_port(struct reader *reader, uint64_t number)
{
    if (!reader->device || number < 1 || number > PORTS)
        return "ports are 1 and 2 of a device";
    if (number > reader->device->attr.phys_port_cnt)
        reader->device->attr.phys_port_cnt = (uint8_t)number;
    reader->port = &reader->device->ports[number - 1];
    reader->port_number = (int)number;
    fill_port(reader->port);
    return NULL;
}

static const char *read_gid(struct reader *reader, char *text)
{
    char address[64], type[16], netdev[32] = "";
    unsigned index;
    int n = sscanf(text, "%u %63s %15s %31s", &index, address, type, netdev);
    int kind = n >= 3 ? choose(type, (const char *const[]){"ib", "roce1", "roce2", NULL}) : -1;
    if (kind < 0 || index >= GIDS)
        return "expected INDEX ADDRESS ib|roce1|roce2 [NETDEV]";
    struct ibv_gid_entry entry = {
        .gid_index = index, .port_num = (uint32_t)reader->port_number, .gid_type = (uint32_t)kind};
    if (!fake_gid_parse(&entry.gid, address))
        return "not an address";
    char *end;
    unsigned long number = strtoul(netdev, &end, 10);
    entry.ndev_ifindex = *netdev && !*end ? (uint32_t)number : if_nametoindex(netdev);
    reader->port->gids[index].entry = entry;
    reader->port->gids[index].used = true;
    return NULL;
}

static const char *read_rule(struct config *config, char *text)
{
    static const char *const actions[] = {"fail",  "event",  "complete", "hold",
                                          "stray", "remove", "exit",     NULL};
    char name[64], action[16], value_text[32] = "0";
    unsigned nth;
    int n = sscanf(text, "%63s %u %15s %31s", name, &nth, action, value_text);
    int which = n >= 3 ? choose(action, actions) : -1;
    if (which < 0 || config->n_rules == RULES || fake_function_of(name) > FUNCTIONS)
        return "expected NAME N ACTION [VALUE]";
    struct rule rule = {fake_function_of(name), nth, (enum fake_ibverbs_action)which, 0};
    const char *wrong = fake_errno_value(value_text, &rule.value);
    config->rules[config->n_rules++] = rule;
    return wrong;
}

static bool is_yes(const char *value)
{
    return strcmp(value, "yes") == 0;
}

/* The keys that stand before any device. *ret_known: it is one of them. */
static const char *read_global(struct config *config, const char *key, char *value, uint64_t number,
                               bool *ret_known)
{
    *ret_known = true;
    if (strcmp(key, "on") == 0)
        return read_rule(config, value);
    if (strcmp(key, "hold") == 0)
        config->hold = true;
    else if (strcmp(key, "delay_us") == 0)
        config->delay_us = number;
    else if (strcmp(key, "polls") == 0)
        config->polls = (unsigned)number;
    else if (strcmp(key, "retry_us") == 0)
        config->retry_us = number;
    else if (strcmp(key, "memlock_bytes") == 0)
        config->memlock_bytes = number;
    else if (strcmp(key, "resolve") == 0)
        config->resolve = is_yes(value);
    else if (strcmp(key, "pin_forced") == 0)
        config->pin_forced = is_yes(value);
    else if (strcmp(key, "numbers_part") == 0)
        config->numbers_part = is_yes(value);
    else
        *ret_known = false;
    return NULL;
}

static bool read_device_key(struct device *device, const char *key, const char *value, uint64_t number)
{
    struct ibv_device_attr *attr = &device->attr;
    const struct {
        const char *key;
        int *place;
    } numbers[] = {{"max_qp_rd_atom", &attr->max_qp_rd_atom},
                   {"max_qp_init_rd_atom", &attr->max_qp_init_rd_atom},
                   {"max_cqe", &attr->max_cqe},
                   {"max_qp_wr", &attr->max_qp_wr},
                   {"max_sge", &attr->max_sge},
                   {"max_mr", &attr->max_mr},
                   {"max_qp", &attr->max_qp},
                   {"max_cq", &attr->max_cq},
                   {"max_pd", &attr->max_pd}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            *numbers[i].place = (int)number;
            return true;
        }
    if (strcmp(key, "ibdev_path") == 0)
        snprintf(device->base.ibdev_path, sizeof device->base.ibdev_path, "%s", value);
    else if (strcmp(key, "node_guid") == 0)
        attr->node_guid = attr->sys_image_guid = htobe64(strtoull(value, NULL, 16));
    else if (strcmp(key, "fw_ver") == 0)
        snprintf(attr->fw_ver, sizeof attr->fw_ver, "%s", value);
    else if (strcmp(key, "dmabuf") == 0)
        device->has_dmabuf = is_yes(value);
    else if (strcmp(key, "max_mr_size") == 0)
        attr->max_mr_size = number;
    else if (strcmp(key, "max_inline") == 0)
        device->max_inline = (uint32_t)number;
    else
        return false;
    return true;
}

static bool read_port_words(struct ibv_port_attr *attr, const char *key, const char *value)
{
    int place;
    if (strcmp(key, "state") == 0) {
        place = choose(value, (const char *const[]){"down", "init", "armed", "active", NULL});
        attr->state = (enum ibv_port_state)(IBV_PORT_DOWN + place);
        attr->phys_state = place ? 5 : 3;
        return place >= 0;
    }
    if (strcmp(key, "link_layer") == 0) {
        place = choose(value, (const char *const[]){"infiniband", "ethernet", NULL});
        attr->link_layer = (uint8_t)(IBV_LINK_LAYER_INFINIBAND + place);
        attr->port_cap_flags = place ? attr->port_cap_flags : 0;
        return place >= 0;
    }
    if (strcmp(key, "grh_required") == 0) {
        attr->flags = is_yes(value) ? IBV_QPF_GRH_REQUIRED : 0;
        return true;
    }
    return false;
}

static const char *read_port_key(struct reader *reader, const char *key, char *value, uint64_t number)
{
    struct ibv_port_attr *attr = &reader->port->attr;
    if (strcmp(key, "gid") == 0)
        return read_gid(reader, value);
    if (read_port_words(attr, key, value))
        return NULL;
    if (strcmp(key, "lid") == 0)
        attr->lid = (uint16_t)number;
    else if (strcmp(key, "sm_lid") == 0)
        attr->sm_lid = (uint16_t)number;
    else if (strcmp(key, "lmc") == 0)
        attr->lmc = (uint8_t)number;
    else if (strcmp(key, "max_msg_sz") == 0)
        attr->max_msg_sz = (uint32_t)number;
    else if (strcmp(key, "active_width") == 0)
        attr->active_width = (uint8_t)number;
    else if (strcmp(key, "active_speed") == 0)
        attr->active_speed = (uint8_t)number;
    else if (strcmp(key, "gid_tbl_len") == 0)
        attr->gid_tbl_len = (int)number;
    else if (strcmp(key, "pkey") == 0)
        reader->port->pkeys[0] = (uint16_t)strtoul(value, NULL, 16);
    else if (strcmp(key, "active_mtu") == 0 && mtu_of(number))
        attr->active_mtu = mtu_of(number);
    else if (strcmp(key, "max_mtu") == 0 && mtu_of(number))
        attr->max_mtu = mtu_of(number);
    else
        return "no such key, or not a value for it";
    return NULL;
}

static const char *read_line(struct reader *reader, char *line)
{
    line[strcspn(line, "#\n")] = 0;
    char *key = line + strspn(line, " \t");
    if (!*key)
        return NULL;
    char *value = key + strcspn(key, " \t");
    if (*value)
        *value++ = 0;
    value += strspn(value, " \t");
    for (char *end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t');)
        *--end = 0;
    uint64_t number = strtoull(value, NULL, 0);
    bool is_known;
    const char *wrong = read_global(reader->config, key, value, number, &is_known);
    if (is_known)
        return wrong;
    if (strcmp(key, "device") == 0)
        return begin_device(reader, value);
    if (strcmp(key, "port") == 0)
        return begin_port(reader, number);
    if (reader->device && read_device_key(reader->device, key, value, number))
        return NULL;
    return reader->port ? read_port_key(reader, key, value, number) : "no such key";
}

static void read_stream(struct reader *reader, FILE *stream, const char *name)
{
    char line[512];
    for (int number = 1; fgets(line, sizeof line, stream); number++) {
        const char *wrong = read_line(reader, line);
        if (wrong) {
            fprintf(stderr, "stand-in libibverbs: %s, line %d: %s: %s\n", name, number, line, wrong);
            abort();
        }
    }
}

void fake_config_read(struct config *config, const char *path)
{
    memset(config, 0, sizeof *config);
    config->resolve = true;
    struct reader reader = {.config = config};
    FILE *stream =
        path ? fopen(path, "re") : fmemopen((void *)(uintptr_t)two_devices, strlen(two_devices), "r");
    if (!stream) {
        fprintf(stderr, "stand-in libibverbs: %s: %m\n", path ? path : "reading the default");
        abort();
    }
    read_stream(&reader, stream, path ? path : "default");
    fclose(stream);
}
