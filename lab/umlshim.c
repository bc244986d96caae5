/* Preloaded into the kernel of a host, which is a process that controls others by ptrace. It fixes three faults.
 *
 * Registers: user-mode Linux 6.1 saves a process's extended registers into a buffer of fixed size and writes that
 * back. Where a processor has more of them (AMX), Linux refuses so short a write with EFAULT and the
 * kernel panics: "ptrace set fp regs failed". The shim copies the short write over the present state
 * and writes all of it. On other processors nothing changes.
 *
 * Reboot: the kernel executes itself anew, with its tap device and its memory file still open: the
 * device would be busy, the memory used twice. The shim closes all inherited descriptors except the standard streams
 * and the link (descriptors 8 and 9, wire.c) before the kernel starts.
 *
 * Idling: the kernel notes an interrupt of a disk or of the network while it goes to sleep, and then sleeps
 * anyway, until its next timer: for seconds, if nothing else happens. The shim limits its sleep.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

/* Larger than any processor's state so far (11 kB with AMX). */
enum { STATE_SIZE = 32768 };

static long set_state(long pid, struct iovec *saved)
{
    static char state[STATE_SIZE] __attribute__((aligned(64)));
    struct iovec whole = { state, sizeof state };
    void *kind = (void *)(long)NT_X86_XSTATE;

    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, kind, &whole) == 0 &&
        whole.iov_len > saved->iov_len) {
        memcpy(state, saved->iov_base, saved->iov_len);
        saved = &whole;
    }
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, kind, saved);
}

/* The system call returns the word that PEEK read through a pointer, the library function as its result. */
static long peek(enum __ptrace_request request, long pid, void *address)
{
    long word;

    if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
        return -1;
    errno = 0;
    return word;
}

/* Only the idle loop calls this; it checks for pending work after each return. */
int sigsuspend(const sigset_t *mask)
{
    static const struct timespec at_most = { 0, 2000000 };

    ppoll(NULL, 0, &at_most, mask);
    errno = EINTR;
    return -1;
}

__attribute__((constructor)) static void start_clean(void)
{
    syscall(SYS_close_range, 3, 7, 0);
    syscall(SYS_close_range, 10, ~0U, 0);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list rest;

    va_start(rest, request);
    long pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);

    switch (request) {
    case PTRACE_PEEKTEXT:
    case PTRACE_PEEKDATA:
    case PTRACE_PEEKUSER:
        return peek(request, pid, address);
    case PTRACE_SETREGSET:
        if ((long)address == NT_X86_XSTATE)
            return set_state(pid, data);
        /* fall through */
    default:
        return syscall(SYS_ptrace, request, pid, address, data);
    }
}
