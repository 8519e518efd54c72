/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of what connections need: TCP and its congestion control, Unix sockets, the place for cookies. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* An open listener on a free port; *address then holds the port. Or a negative errno. */
static int listen_on(struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, address, size) || listen(fd, 1) || getsockname(fd, address, &size)) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

static int wait_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    int ready = poll(&entry, 1, 1000);
    return ready > 0 ? 0 : ready < 0 ? -errno : -ETIMEDOUT;
}

/* One byte there. */
static int pass_a_byte(int from, int to)
{
    char byte = 'x', got = 0;
    if (send(from, &byte, 1, MSG_NOSIGNAL) != 1)
        return -errno;
    int error = wait_readable(to);
    if (error)
        return error;
    return recv(to, &got, 1, 0) == 1 && got == byte ? 0 : -EPROTO;
}

static int accept_and_pass(int listener, int client)
{
    int error = wait_readable(listener);
    int server = error ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (!error)
        error = server < 0 ? -errno : pass_a_byte(client, server);
    close_if_open(server);
    return error;
}

static int try_tcp(struct sockaddr *address, socklen_t size)
{
    int listener = listen_on(address, size);
    if (listener < 0)
        return listener;
    int client = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = client < 0 || connect(client, address, size) ? -errno : accept_and_pass(listener, client);
    close_if_open(client);
    close(listener);
    return error;
}

static void tcp_loopback(struct doctor_finding *finding)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int error = try_tcp((struct sockaddr *)&address, sizeof address);
    if (!error) {
        doctor_found(finding, DOCTOR_OK, "a byte went through a connection to 127.0.0.1");
        return;
    }
    doctor_found(finding, DOCTOR_BROKEN, "a connection to 127.0.0.1: %s", strerrordesc_np(-error));
    doctor_so(finding, "no tcp transport on this host, and serve cannot listen where it does by default",
              "ip link set lo up; look for a firewall rule on lo");
}

static void tcp6_loopback(struct doctor_finding *finding)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int error = try_tcp((struct sockaddr *)&address, sizeof address);
    if (error)
        doctor_found(finding, DOCTOR_NOT_NEEDED, "a connection to ::1: %s; IPv4 will do",
                     strerrordesc_np(-error));
    else
        doctor_found(finding, DOCTOR_OK, "a byte went through a connection to ::1");
}

static void tcp_reno(struct doctor_finding *finding)
{
    char usual[16] = "unknown"; /* as long as the kernel lets the name be */
    socklen_t size = sizeof usual;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, &size);
    usual[sizeof usual - 1] = 0;
    if (fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0) {
        doctor_found(finding, DOCTOR_OK, "reno can be chosen for loopback; other connections use %s", usual);
    } else {
        doctor_found(finding, DOCTOR_MISSING, "choosing reno: %s; all connections use %s",
                     strerrordesc_np(errno), usual);
        doctor_so(finding,
                  "tcp on loopback runs as the machine's default does; bbr is several times slower there",
                  "sysctl net.ipv4.tcp_allowed_congestion_control=\"reno cubic\", with what you use already");
    }
    close_if_open(fd);
}

/* Room for one descriptor in a message, aligned as the kernel wants it. */
union descriptor_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int send_descriptor(int socket, int fd)
{
    char byte = 'x';
    union descriptor_room room = {.bytes = {0}};
    struct iovec iov = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int receive_descriptor(int socket)
{
    char byte;
    union descriptor_room room;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return -errno;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return -EPROTO;
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

/* Pass a memory file over a socket pair, and see whether the other end holds the same file. */
static int try_passing(int memory, const int ends[2])
{
    int error = send_descriptor(ends[0], memory);
    if (error)
        return error;
    int passed = receive_descriptor(ends[1]);
    if (passed < 0)
        return passed;
    struct stat here, there;
    bool same = fstat(memory, &here) == 0 && fstat(passed, &there) == 0 && here.st_ino == there.st_ino;
    close(passed);
    return same ? 0 : -EPROTO;
}

static void unix_sockets(struct doctor_finding *finding)
{
    int ends[2] = {-1, -1};
    int memory = memfd_create("gpusys-doctor", MFD_CLOEXEC), error;
    if (memory < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        error = -errno;
    else
        error = try_passing(memory, ends);
    if (!error)
        doctor_found(finding, DOCTOR_OK, "a descriptor went through a Unix socket");
    else
        doctor_found(finding, DOCTOR_BROKEN, "passing a descriptor: %s", strerrordesc_np(-error));
    if (error)
        doctor_so(finding, "no shm transport: clients on this host are served over tcp",
                  "a seccomp or LSM profile that allows Unix sockets and SCM_RIGHTS");
    close_if_open(memory);
    close_if_open(ends[0]);
    close_if_open(ends[1]);
}

enum { PATH_BYTES = 512 };

static bool is_ours(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

/* Where serve keeps cookies and sockets: the rule stands in the manual page. */
static void runtime_directory(char path[PATH_BYTES])
{
    const char *own = secure_getenv("GPUSYS_RUNTIME_DIR"), *session = secure_getenv("XDG_RUNTIME_DIR");
    unsigned user = (unsigned)geteuid();
    char run_user[64];
    snprintf(run_user, sizeof run_user, "/run/user/%u", user);
    if (own && *own)
        snprintf(path, PATH_BYTES, "%s", own);
    else if (session && *session == '/' && is_ours(session))
        snprintf(path, PATH_BYTES, "%s/gpusys", session);
    else if (is_ours(run_user))
        snprintf(path, PATH_BYTES, "%s/gpusys", run_user);
    else if (user == 0 && is_ours("/run"))
        snprintf(path, PATH_BYTES, "/run/gpusys");
    else
        snprintf(path, PATH_BYTES, "/tmp/gpusys-%u", user);
}

/* It is not there yet: could it be made? Tried with another name beside it, so as to be in nobody's way. */
static int try_making(const char *path)
{
    char trial[PATH_BYTES + 16];
    snprintf(trial, sizeof trial, "%s-XXXXXX", path);
    if (!mkdtemp(trial))
        return -errno;
    rmdir(trial);
    return 0;
}

static void runtime_dir(struct doctor_finding *finding)
{
    char path[PATH_BYTES];
    struct stat info;
    runtime_directory(path);
    if (lstat(path, &info)) {
        int error = errno == ENOENT ? try_making(path) : -errno;
        if (error)
            doctor_found(finding, DOCTOR_MISSING, "%.200s: %s", path, strerrordesc_np(-error));
        else
            doctor_found(finding, DOCTOR_OK, "%.200s will be made when it is first used", path);
    } else if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
        doctor_found(finding, DOCTOR_BROKEN, "%.200s: mode %04o, owner %u", path,
                     (unsigned)info.st_mode & 07777, (unsigned)info.st_uid);
    else
        doctor_found(finding, DOCTOR_OK, "%.200s is ours alone", path);
    if (finding->verdict != DOCTOR_OK)
        doctor_so(finding, "serve has no safe place for the cookie that its local clients show",
                  "chmod 700 it, or name another in GPUSYS_RUNTIME_DIR, for serve and its clients alike");
}

static const struct doctor_check checks[] = {
    {"tcp-loopback", "TCP over 127.0.0.1", tcp_loopback, 0},
    {"tcp6-loopback", "TCP over ::1", tcp6_loopback, 0},
    {"tcp-reno", "a congestion control that suits loopback", tcp_reno, 0},
    {"unix-sockets", "Unix sockets that pass descriptors", unix_sockets, 0},
    {"runtime-dir", "a private directory for cookies and sockets", runtime_dir, 0},
};

const struct doctor_module doctor_sockets = DOCTOR_MODULE(checks);
