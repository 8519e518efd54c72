/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int gs_random(void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = getrandom((char *)bytes + done, size - done, 0);
        if (count < 0 && errno != EINTR)
            return -errno;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

bool gs_secret_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < size; i++)
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

/* ---- the directory ---- */

static bool is_ours(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

static void choose(char path[GS_PATH_BYTES])
{
    const char *own = secure_getenv("GPUSYS_RUNTIME_DIR"), *xdg = secure_getenv("XDG_RUNTIME_DIR");
    unsigned user = (unsigned)geteuid();
    char run_user[64];
    snprintf(run_user, sizeof run_user, "/run/user/%u", user);
    if (own && *own)
        snprintf(path, GS_PATH_BYTES, "%s", own);
    else if (xdg && *xdg == '/' && is_ours(xdg))
        snprintf(path, GS_PATH_BYTES, "%s/gpusys", xdg);
    else if (is_ours(run_user))
        snprintf(path, GS_PATH_BYTES, "%s/gpusys", run_user);
    else if (user == 0 && is_ours("/run"))
        snprintf(path, GS_PATH_BYTES, "/run/gpusys");
    else
        snprintf(path, GS_PATH_BYTES, "/tmp/gpusys-%u", user);
}

int gs_runtime_directory(char ret_path[GS_PATH_BYTES], struct gpusys_error *error)
{
    struct stat status;
    char path[GS_PATH_BYTES];
    choose(path);
    if (path[0] != '/') { /* it is told to processes that stand elsewhere */
        gpusys_error_set(error, -EINVAL, "GPUSYS_RUNTIME_DIR is no absolute path: %s", path);
        return -EINVAL;
    }
    int made = mkdir(path, 0700) < 0 ? -errno : 0;
    if (made && made != -EEXIST) {
        gpusys_error_set_errno(error, made, "the runtime directory %.300s", path);
        gpusys_error_set_hint(error, "name one that you may make in GPUSYS_RUNTIME_DIR, on both sides");
        return made;
    }
    if (lstat(path, &status) < 0)
        return gpusys_error_set_errno(error, -errno, "the runtime directory %.300s", path);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077)) {
        gpusys_error_set(error, -EACCES,
                         "the runtime directory %.300s is not this user's alone (mode %03o, user %u)", path,
                         (unsigned)status.st_mode & 0777, (unsigned)status.st_uid);
        gpusys_error_set_hint(error, "chmod 700 it, or name another in GPUSYS_RUNTIME_DIR, on both sides");
        return -EACCES;
    }
    memcpy(ret_path, path, GS_PATH_BYTES);
    return 0;
}

int gs_runtime_path(char ret_path[GS_PATH_BYTES], const struct gs_address *address, const char *kind,
                    struct gpusys_error *error)
{
    char directory[GS_PATH_BYTES];
    int length, result = address->is_unix ? 0 : gs_runtime_directory(directory, error);
    if (result)
        return result;
    if (address->is_unix)
        length = snprintf(ret_path, GS_PATH_BYTES, "%s.%s", address->host, kind);
    else
        length = snprintf(ret_path, GS_PATH_BYTES, "%s/tcp-%s-%u.%s", directory, address->host, address->port,
                          kind);
    if (length >= GS_PATH_BYTES)
        return gpusys_error_set(error, -ENAMETOOLONG, "the path of the %s file is too long", kind);
    return 0;
}

/* ---- cookies ---- */

static int write_file(const char *path, const uint8_t cookie[32])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int error = write(fd, cookie, 32) == 32 ? 0 : errno ? -errno : -EIO;
    close(fd);
    return error;
}

/* Only what an earlier server left is replaced, never a file of another kind. */
static int check_replaceable(const char *path, struct gpusys_error *error)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : gpusys_error_set_errno(error, -errno, "the cookie file %.300s", path);
    if (S_ISREG(status.st_mode) && status.st_size == 32 && status.st_uid == geteuid() &&
        !(status.st_mode & 077))
        return 0;
    gpusys_error_set(error, -EEXIST, "the cookie file %.300s: something else lies there", path);
    gpusys_error_set_hint(error, "name a file that is not there yet");
    return -EEXIST;
}

void gs_cookie_remove(const char *path, const uint8_t cookie[32])
{
    uint8_t there[32];
    if (gs_cookie_read(path, there, NULL) == 0 && gs_secret_equal(there, cookie, sizeof there))
        unlink(path);
}

int gs_cookie_write(const char *path, uint8_t ret_cookie[32], struct gpusys_error *error)
{
    uint8_t cookie[32];
    char fresh[GS_PATH_BYTES + 32];
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    int result = check_replaceable(path, error);
    if (result)
        return result;
    unlink(fresh);
    result = gs_random(cookie, sizeof cookie);
    if (!result)
        result = write_file(fresh, cookie);
    if (!result && rename(fresh, path) < 0)
        result = -errno;
    if (result) {
        unlink(fresh);
        return gpusys_error_set_errno(error, result, "the cookie file %.300s", path);
    }
    memcpy(ret_cookie, cookie, sizeof cookie);
    return 0;
}

static int read_file(int fd, const char *path, uint8_t ret_cookie[32], struct gpusys_error *error)
{
    struct stat status;
    uint8_t cookie[33];
    if (fstat(fd, &status) < 0)
        return gpusys_error_set_errno(error, -errno, "the cookie file %.300s", path);
    if (!S_ISREG(status.st_mode) || (status.st_mode & 077) ||
        (status.st_uid != geteuid() && status.st_uid != 0))
        return gpusys_error_set(error, -EACCES,
                                "the cookie file %.300s is not this user's alone (mode %03o, user %u)", path,
                                (unsigned)status.st_mode & 0777, (unsigned)status.st_uid);
    if (read(fd, cookie, sizeof cookie) != 32)
        return gpusys_error_set(error, -EBADMSG, "the cookie file %.300s does not hold 32 bytes", path);
    memcpy(ret_cookie, cookie, 32);
    return 0;
}

int gs_cookie_read(const char *path, uint8_t ret_cookie[32], struct gpusys_error *error)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return gpusys_error_set_errno(error, -errno, "the cookie file %.300s", path);
    int result = read_file(fd, path, ret_cookie, error);
    close(fd);
    return result;
}
