/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rails_route.h"
#include "output.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* The 16 bytes of an address, IPv4 mapped. */
static bool mapped(uint8_t bytes[16], const struct sockaddr *address)
{
    const union any_address *any = (const void *)address;
    memset(bytes, 0, 16);
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return false;
    if (address->sa_family == AF_INET6) {
        memcpy(bytes, &any->v6.sin6_addr, 16);
        return true;
    }
    bytes[10] = bytes[11] = 0xff;
    memcpy(bytes + 12, &any->v4.sin_addr, 4);
    return true;
}

static void text_of(char text[48], const uint8_t bytes[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(bytes, prefix, sizeof prefix) == 0)
        inet_ntop(AF_INET, bytes + 12, text, 48);
    else
        inet_ntop(AF_INET6, bytes, text, 48);
}

/* The host in "host:port", "[v6]:port", "v6", "host". */
static void host_of(char host[256], const char *address)
{
    const char *colon = strchr(address, ':');
    size_t length = strlen(address);
    if (*address == '[')
        length = strcspn(++address, "]");
    else if (colon && !strchr(colon + 1, ':'))
        length = (size_t)(colon - address);
    snprintf(host, 256, "%.*s", (int)length, address);
}

/* The resolver has no deadline of its own, so it has a thread of its own; one that was given up keeps this. */
static struct {
    char host[256];
    struct addrinfo *list;
    int result; /* an EAI_ code */
    sem_t done;
} lookup;

static void *look_up_main(void *argument)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    (void)argument;
    lookup.result = getaddrinfo(lookup.host, "1", &hints, &lookup.list);
    sem_post(&lookup.done);
    return NULL;
}

/* An EAI_ code; EAI_AGAIN too when the time is over. Once in a process. */
static int look_up(struct addrinfo **ret_list, const char *host, int64_t timeout_ns)
{
    struct timespec end;
    pthread_t thread;
    snprintf(lookup.host, sizeof lookup.host, "%s", host);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_ns / 1000000000 + (end.tv_nsec + timeout_ns % 1000000000) / 1000000000;
    end.tv_nsec = (end.tv_nsec + timeout_ns % 1000000000) % 1000000000;
    if (sem_init(&lookup.done, 0, 0) || pthread_create(&thread, NULL, look_up_main, NULL))
        return EAI_MEMORY;
    pthread_detach(thread);
    while (sem_timedwait(&lookup.done, &end))
        if (errno != EINTR)
            return EAI_AGAIN;
    *ret_list = lookup.list;
    return lookup.result;
}

/* Connecting a datagram socket asks the routing table, and sends nothing. */
static int find_local(uint8_t local[16], const struct addrinfo *peer)
{
    union any_address address = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t length = sizeof address;
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;
    if (fd < 0 || connect(fd, peer->ai_addr, peer->ai_addrlen) || getsockname(fd, &address.any, &length))
        error = -errno;
    if (fd >= 0)
        close(fd);
    return error ? error : mapped(local, &address.any) ? 0 : -EAFNOSUPPORT;
}

static void find_netdev(struct rails_route *route, const uint8_t local[16])
{
    struct ifaddrs *list;
    uint8_t theirs[16];
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
        if (mapped(theirs, entry->ifa_addr) && memcmp(theirs, local, sizeof theirs) == 0)
            snprintf(route->netdev, sizeof route->netdev, "%.15s", entry->ifa_name);
    freeifaddrs(list);
}

/* The first address that there is a way to. */
static int take_first(struct rails_route *route, uint8_t local[16], const struct addrinfo *list)
{
    int error = -EAFNOSUPPORT;
    for (; list && error; list = list->ai_next) {
        if (!mapped(route->peer, list->ai_addr))
            continue;
        error = find_local(local, list);
    }
    return error;
}

int rails_find_route(struct rails_route *ret_route, const char *address, int64_t timeout_ns)
{
    struct rails_route route = {.peer_text = ""};
    char host[256], text[48];
    uint8_t local[16];
    struct addrinfo *list = NULL;
    host_of(host, address);
    int result = look_up(&list, host, timeout_ns);
    if (result) {
        report("rails: %s: %s", host,
               result == EAI_AGAIN ? "the name was not found in time" : gai_strerror(result));
        return -EHOSTUNREACH;
    }
    result = take_first(&route, local, list);
    freeaddrinfo(list);
    if (result) {
        report("rails: there is no way to %s: %s", host, strerrordesc_np(-result));
        report_hint("ip route get ADDRESS shows what the kernel would do");
        return result;
    }
    text_of(route.local_text, local);
    text_of(text, route.peer);
    snprintf(route.peer_text, sizeof route.peer_text, strcmp(text, host) ? "%s (%s)" : "%s", host, text);
    find_netdev(&route, local);
    *ret_route = route;
    return 0;
}

static bool same_under(const uint8_t a[16], const uint8_t b[16], const uint8_t mask[16])
{
    for (size_t i = 0; i < 16; i++)
        if ((a[i] ^ b[i]) & mask[i])
            return false;
    return true;
}

bool rails_shares_subnet(const char *netdev, const struct rails_route *route)
{
    struct ifaddrs *list;
    bool shares = false;
    if (!netdev[0] || getifaddrs(&list))
        return false;
    for (const struct ifaddrs *entry = list; entry && !shares; entry = entry->ifa_next) {
        uint8_t ours[16], mask[16];
        if (strcmp(entry->ifa_name, netdev) != 0 || !mapped(ours, entry->ifa_addr) ||
            !mapped(mask, entry->ifa_netmask))
            continue;
        memset(mask, 0xff, entry->ifa_addr->sa_family == AF_INET ? 12 : 0);
        shares = same_under(ours, route->peer, mask);
    }
    freeifaddrs(list);
    return shares;
}
