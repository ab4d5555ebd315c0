/* A disk that is full: loaded with LD_PRELOAD, it lets writes below one folder fail with ENOSPC.
 *
 * disk_arm(folder, number, for_good): the write of that number (1 is the next) writes a part of its bytes if it can, then
 * there is no space: for the next call only, or for good. disk_writes(): how many there have been. Writes are also
 * new files and folders, lengths, and flushes to disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long seen, fails_at;
static int for_good;

void disk_arm(const char *path, long number, int always) {
    snprintf(folder, sizeof folder, "%s", path);
    seen = 0, fails_at = number, for_good = always;
}

long disk_writes(void) { return seen; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char *path) { return folder[0] && strncmp(path, folder, strlen(folder)) == 0; }

static int ours(int fd) {
    char name[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}

static int named(int fd, const char *path) {
    if (path[0] == '/') return below(path);
    if (fd != AT_FDCWD) return ours(fd);
    char here[PATH_MAX];
    return getcwd(here, sizeof here) && below(here);
}

/* Whether this write is to fail. A write of bytes fails one call late: the call before writes half of them. */
static int fails(int *half) {
    long number = __sync_add_and_fetch(&seen, 1);
    if (half) {
        *half = number == fails_at;
        return fails_at && (for_good ? number > fails_at : number == fails_at + 1);
    }
    return fails_at && (for_good ? number >= fails_at : number == fails_at);
}

static ssize_t full(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *data, size_t size) {
    int half = 0;
    if (ours(fd) && fails(&half)) return full();
    if (half && size < 2) return full();
    return REAL(write)(fd, data, half ? size / 2 : size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (ours(fd) && fails(NULL)) return full();
    return REAL(writev)(fd, parts, count);
}

#define PWRITE(name, offset_t)                                                    \
    ssize_t name(int fd, const void *data, size_t size, offset_t at) {            \
        if (ours(fd) && fails(NULL)) return full();                               \
        return REAL(name)(fd, data, size, at);                                    \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define OPEN(name)                                                                \
    int name(const char *path, int flags, ...) {                                  \
        va_list rest;                                                             \
        va_start(rest, flags);                                                    \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;         \
        va_end(rest);                                                             \
        if (flags & O_CREAT && access(path, F_OK) && named(AT_FDCWD, path) && fails(NULL)) return (int)full(); \
        return REAL(name)(path, flags, mode);                                     \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                              \
    int name(int at, const char *path, int flags, ...) {                          \
        va_list rest;                                                             \
        va_start(rest, flags);                                                    \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;         \
        va_end(rest);                                                             \
        if (flags & O_CREAT && faccessat(at, path, F_OK, 0) && named(at, path) && fails(NULL)) return (int)full(); \
        return REAL(name)(at, path, flags, mode);                                 \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                               \
    FILE *name(const char *path, const char *mode) {                              \
        if (mode[0] != 'r' && named(AT_FDCWD, path) && fails(NULL)) return full(), NULL; \
        return REAL(name)(path, mode);                                            \
    }
FOPEN(fopen)
FOPEN(fopen64)

int mkdir(const char *path, mode_t mode) {
    if (named(AT_FDCWD, path) && access(path, F_OK) && fails(NULL)) return (int)full();
    return REAL(mkdir)(path, mode);
}

int fsync(int fd) {
    if (ours(fd) && fails(NULL)) return (int)full();
    return REAL(fsync)(fd);
}

#define FTRUNCATE(name, offset_t)                                                 \
    int name(int fd, offset_t size) {                                             \
        if (ours(fd) && fails(NULL)) return (int)full();                          \
        return REAL(name)(fd, size);                                              \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define SENDFILE(name, offset_t)                                                  \
    ssize_t name(int to, int from, offset_t *at, size_t size) {                   \
        if (ours(to) && fails(NULL)) return full();                               \
        return REAL(name)(to, from, at, size);                                    \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)
