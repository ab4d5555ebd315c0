/* Ends at file events: loaded with LD_PRELOAD, it stops a process, or lets a call fail, at a change below one folder.
 *
 * events_arm(folder, number, way): at the event of that number (1 is the next) the process dies, gets SIGINT, or the call
 * fails with ENOSPC or EFBIG: once, or with ENOSPC from then on. Half of the bytes of a write are written before.
 * events_seen(): how many there have been. Events are writes, new and emptied files, new folders, lengths, flushes,
 * locks, and files that are renamed or removed; a lock and a removal do not fail.
 * clock_jump(seconds): by so much the clock on the wall is wrong from the next event on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DEATH, INTERRUPT, FULL, FULL_ONCE, TOO_LARGE };
#define DEAD 9

static char folder[PATH_MAX];
static long seen, at_event;
static int way, late;
static long jump;

void events_arm(const char *path, long number, int how) {
    snprintf(folder, sizeof folder, "%s", path);
    seen = 0, at_event = number, way = how, late = 0;
}

long events_seen(void) { return seen; }

void clock_jump(long seconds) { jump = seconds; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long wrong(void) { return seen ? jump : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int error = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME && !error) now->tv_sec += wrong();
    return error;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int error = REAL(gettimeofday)(now, zone);
    if (!error) now->tv_sec += wrong();
    return error;
}

time_t time(time_t *at) {
    time_t now = REAL(time)(NULL) + wrong();
    if (at) *at = now;
    return now;
}

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

static int code(void) { return way == TOO_LARGE ? EFBIG : ENOSPC; }

/* Count an event; the error with which it fails, or 0. */
static int event(void) {
    long number = __sync_add_and_fetch(&seen, 1);
    if (!at_event || number < at_event || (number > at_event && way != FULL)) return 0;
    if (way == DEATH) _exit(DEAD);
    if (way == INTERRUPT) return kill(getpid(), SIGINT), 0;
    return code();
}

static ssize_t failed(int error) { return errno = error, -1; }

/* The bytes that a write may write, or -1: the one at the event writes half, then the process dies or the next fails. */
static ssize_t room(size_t size) {
    if (late) {
        if (way != FULL) late = 0;
        return failed(code());
    }
    long number = __sync_add_and_fetch(&seen, 1);
    if (number != at_event) return at_event && way == FULL && number > at_event ? failed(ENOSPC) : (ssize_t)size;
    if (way == INTERRUPT) kill(getpid(), SIGINT);
    if (way >= FULL && size < 2) return failed(code());
    late = way >= FULL;
    return way == INTERRUPT ? (ssize_t)size : (ssize_t)(size / 2);
}

static int dies_now(void) { return at_event && way == DEATH && seen >= at_event; }

ssize_t write(int fd, const void *data, size_t size) {
    if (!ours(fd)) return REAL(write)(fd, data, size);
    ssize_t some = room(size);
    ssize_t done = some < 0 ? -1 : REAL(write)(fd, data, some);
    if (dies_now()) _exit(DEAD);
    return done;
}

#define PWRITE(name, offset_t)                                                    \
    ssize_t name(int fd, const void *data, size_t size, offset_t at) {            \
        if (!ours(fd)) return REAL(name)(fd, data, size, at);                     \
        ssize_t some = room(size);                                                \
        ssize_t done = some < 0 ? -1 : REAL(name)(fd, data, some, at);            \
        if (dies_now()) _exit(DEAD);                                              \
        return done;                                                              \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

/* Calls of other kinds: an event if they are ours, then the call unless it fails. */
#define CALL(type, name, parameters, is_ours, arguments)                          \
    type name parameters {                                                        \
        int error = (is_ours) ? event() : 0;                                      \
        return error ? (type)failed(error) : REAL(name) arguments;                \
    }
#define QUIET(name, parameters, is_ours, arguments)                               \
    int name parameters {                                                         \
        if (is_ours) event();                                                     \
        return REAL(name) arguments;                                              \
    }
CALL(ssize_t, writev, (int fd, const struct iovec *parts, int count), ours(fd), (fd, parts, count))
CALL(int, fsync, (int fd), ours(fd), (fd))
CALL(int, ftruncate, (int fd, off_t size), ours(fd), (fd, size))
CALL(int, ftruncate64, (int fd, off64_t size), ours(fd), (fd, size))
CALL(ssize_t, sendfile, (int to, int from, off_t *at, size_t size), ours(to), (to, from, at, size))
CALL(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t size), ours(to), (to, from, at, size))
CALL(int, mkdir, (const char *path, mode_t mode), named(AT_FDCWD, path) && access(path, F_OK), (path, mode))
CALL(int, rename, (const char *old, const char *new), named(AT_FDCWD, new), (old, new))
CALL(int, renameat, (int from, const char *old, int to, const char *new), named(to, new), (from, old, to, new))
QUIET(flock, (int fd, int operation), ours(fd) && operation != LOCK_UN, (fd, operation))
QUIET(unlink, (const char *path), named(AT_FDCWD, path), (path))
QUIET(unlinkat, (int at, const char *path, int flags), named(at, path), (at, path, flags))
QUIET(rmdir, (const char *path), named(AT_FDCWD, path), (path))

/* posix_fallocate returns its error. */
#define FALLOCATE(name, offset_t)                                                 \
    int name(int fd, offset_t at, offset_t size) {                                \
        int error = ours(fd) ? event() : 0;                                       \
        return error ? error : REAL(name)(fd, at, size);                          \
    }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

static int changes(int at, const char *path, int flags) {
    if (!named(at, path)) return 0;
    return (flags & O_CREAT && faccessat(at, path, F_OK, 0)) || (flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY);
}

#define OPENED(name, parameters, at, arguments)                                   \
    int name parameters {                                                         \
        va_list rest;                                                             \
        va_start(rest, flags);                                                    \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;         \
        va_end(rest);                                                             \
        int error = changes(at, path, flags) ? event() : 0;                       \
        return error ? (int)failed(error) : REAL(name) arguments;                 \
    }
OPENED(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPENED(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPENED(openat, (int at, const char *path, int flags, ...), at, (at, path, flags, mode))
OPENED(openat64, (int at, const char *path, int flags, ...), at, (at, path, flags, mode))

#define FOPEN(name)                                                               \
    FILE *name(const char *path, const char *mode) {                              \
        int error = mode[0] == 'w' && named(AT_FDCWD, path) ? event() : 0;        \
        return error ? failed(error), NULL : REAL(name)(path, mode);              \
    }
FOPEN(fopen)
FOPEN(fopen64)
