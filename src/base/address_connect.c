/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From the text of an address to a connected socket. */
#include "base/address_resolve.h"
#include "base/deadline.h"
#include <gpusys/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static const char *hint_for(int code, bool is_unix)
{
    switch (-code) {
    case ECONNREFUSED:
        return is_unix ? "the server that made the socket file has ended: start `gpusys serve` again"
                       : "is `gpusys serve` running there, on that port?";
    case ENOENT: return "no such socket file: is `gpusys serve` running, with this path as its --listen?";
    case EACCES: return is_unix ? "the socket belongs to another user" : "does a firewall refuse it?";
    case EAGAIN: return "give the call time to wait";
    case ETIMEDOUT:
        return is_unix ? "the server there does not accept connections: is it stuck?"
                       : "is the host up, and does a firewall drop the port?";
    case ENETUNREACH:
    case EHOSTUNREACH: return "is there a route to that host? (`ip route get ADDRESS`)";
    default: return "";
    }
}

static int fail(struct gpusys_error *error, int code, const struct gs_address *address)
{
    char text[GS_ADDRESS_TEXT_BYTES];
    gs_address_format(address, text);
    if (code == -EAGAIN)
        gpusys_error_set(error, code, "%s: cannot connect without waiting", text);
    else
        gpusys_error_set_errno(error, code, "%s: cannot connect", text);
    gpusys_error_set_hint(error, "%s", hint_for(code, address->is_unix));
    return code;
}

/*
 * A Unix server whose backlog is full makes a non-blocking connect fail and gives poll nothing to wait for;
 * only a blocking connect waits for room, for as long as SO_SNDTIMEO says.
 */
static int connect_waiting(int fd, const struct sockaddr_un *to, int64_t deadline_ns)
{
    int flags = fcntl(fd, F_GETFL), error;
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    do {
        int left = gs_deadline_ms(deadline_ns);
        if (left == 0)
            left = 1; /* zero would be no limit */
        struct timeval timeout = {0};
        if (left > 0)
            timeout = (struct timeval){.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        error = connect(fd, (const struct sockaddr *)to, sizeof *to) < 0 ? -errno : 0;
    } while (error == -EINTR);
    fcntl(fd, F_SETFL, flags);
    return error == -EAGAIN ? -ETIMEDOUT : error;
}

static int connect_unix(const struct gs_address *address, int64_t deadline_ns)
{
    struct sockaddr_un to;
    gs_address_to_unix(address, &to);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ? -errno : 0;
    if (error == -EAGAIN && gs_deadline_ms(deadline_ns) != 0)
        error = connect_waiting(fd, &to, deadline_ns);
    if (!error)
        return fd;
    close(fd);
    return error;
}

static int finish_connect(int fd, int64_t deadline_ns)
{
    int error = gs_wait_fd(fd, POLLOUT, deadline_ns), pending = 0;
    socklen_t size = sizeof pending;
    if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &size) < 0)
        error = -errno;
    return error ? error : -pending;
}

static int connect_one(const struct addrinfo *to, int64_t deadline_ns)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = connect(fd, to->ai_addr, to->ai_addrlen) < 0 ? -errno : 0;
    if (error == -EINPROGRESS)
        error = finish_connect(fd, deadline_ns);
    if (!error && gs_socket_is_self(fd))
        error = -ECONNREFUSED; /* the kernel drew the very port we asked for, and met itself */
    if (!error) {
        gs_socket_tune(fd);
        return fd;
    }
    close(fd);
    return error;
}

/* An address that swallows packets may use up its share of the time, not that of those behind it. */
static int64_t share_of(int64_t deadline_ns, const struct addrinfo *from)
{
    int64_t now = gpusys_now_ns(), waiting = 0;
    if (deadline_ns == GPUSYS_NO_DEADLINE || deadline_ns <= now)
        return deadline_ns;
    for (const struct addrinfo *at = from; at; at = at->ai_next)
        waiting++;
    return now + (deadline_ns - now) / waiting;
}

static void add_attempt(struct gpusys_error *error, const struct addrinfo *to, int code)
{
    char host[NI_MAXHOST];
    if (getnameinfo(to->ai_addr, to->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
        gpusys_error_add_detail(error, "tried", "%s: %s", host, strerrordesc_np(-code));
}

static int connect_tcp(const struct gs_address *address, int64_t deadline_ns, struct gpusys_error *error)
{
    struct addrinfo *list;
    int code = gs_address_resolve(&list, address, deadline_ns, error), fd = -EHOSTUNREACH;
    if (code)
        return code;
    struct gpusys_error attempts = {0};
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        fd = connect_one(at, share_of(deadline_ns, at));
        if (fd < 0)
            add_attempt(&attempts, at, fd);
    }
    freeaddrinfo(list);
    if (fd < 0) {
        fail(error, fd, address);
        if (error)
            memcpy(error->detail, attempts.detail, sizeof error->detail);
    }
    return fd;
}

int gs_address_connect(const char *text, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gs_address address;
    int code = gs_address_parse(&address, text, error);
    if (code)
        return code;
    if (address.is_unix) {
        int fd = connect_unix(&address, deadline_ns);
        return fd < 0 ? fail(error, fd, &address) : fd;
    }
    if (address.port == 0) {
        gpusys_error_set(error, -EINVAL, "address \"%.200s\": nobody can be reached at port 0", text);
        gpusys_error_set_hint(error, "leave the port out for %d, or give the one that the server printed",
                              GPUSYS_DEFAULT_PORT);
        return -EINVAL;
    }
    return connect_tcp(&address, deadline_ns, error);
}
