/* A server and a client of which one reads and writes by a ring of io_uring. System calls for the ring are made as liburing
 * makes them, or with "syscall" by syscall(2). "before": the ring is there before the connection; "after": bytes have gone by
 * recv and send first; "files": the ring reads and writes a file, and nothing goes by it but that. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART 3000
#define TURNS 40

static int inline_calls = 1;

static long call(long nr, long a, long b, long c, long d, long e, long f) {
    if (!inline_calls) return syscall(nr, a, b, c, d, e, f);
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}

static int ring = -1;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;

static void set_up(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    ring = call(__NR_io_uring_setup, 4, (long)&p, 0, 0, 0, 0);
    if (ring < 0) {
        printf("no rings here\n");
        exit(0);
    }
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof *cqes, 3, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    sqes = mmap(0, p.sq_entries * sizeof *sqes, 3, MAP_SHARED, ring, IORING_OFF_SQES);
    sq_tail = (unsigned *)(sq + p.sq_off.tail);
    sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + p.sq_off.array);
    cq_head = (unsigned *)(cq + p.cq_off.head);
    cq_tail = (unsigned *)(cq + p.cq_off.tail);
    cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

/* One operation, and its result. */
static unsigned long offset;
static int op(int code, int fd, void *buf, unsigned len) {
    unsigned tail = *sq_tail, at = tail & *sq_mask;
    memset(&sqes[at], 0, sizeof *sqes);
    sqes[at].opcode = code;
    sqes[at].fd = fd;
    sqes[at].addr = (unsigned long)buf;
    sqes[at].len = len;
    sqes[at].off = offset;
    sq_array[at] = at;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    call(__NR_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    unsigned head = *cq_head;
    while (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) usleep(100);
    int r = cqes[head & *cq_mask].res;
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    return r;
}

/* Turns of a part each way, the first by the caller if it begins. What was read wrong ends it. */
static int talk(int fd, int by_ring, int begins, int turns, const char *who) {
    char out[PART], in[PART];
    for (int i = 0; i < turns; i++) {
        memset(out, 'a' + i % 26, PART);
        for (int side = 0; side < 2; side++) {
            if ((side == 0) == begins) {
                for (int n = 0; n < PART;) {
                    int r = by_ring ? op(IORING_OP_SEND, fd, out + n, PART - n) : send(fd, out + n, PART - n, 0);
                    if (r <= 0) return printf("%s: send %d in turn %d\n", who, r, i);
                    n += r;
                }
            } else {
                for (int n = 0; n < PART;) {
                    int r = by_ring ? op(IORING_OP_RECV, fd, in + n, PART - n) : recv(fd, in + n, PART - n, 0);
                    if (r <= 0) return printf("%s: recv %d in turn %d\n", who, r, i);
                    n += r;
                }
                if (memcmp(in, out, PART)) return printf("%s: wrong bytes in turn %d\n", who, i);
            }
        }
    }
    return 0;
}

/* What a database does before it serves. */
static void use_a_file(void) {
    char name[] = "/tmp/uringXXXXXX", in[PART] = {0}, out[PART];
    int fd = mkstemp(name);
    unlink(name);
    memset(out, 'f', PART);
    for (offset = 0; offset < 8 * PART; offset += PART)
        if (op(IORING_OP_WRITE, fd, out, PART) != PART || op(IORING_OP_READ, fd, in, PART) != PART || memcmp(in, out, PART))
            printf("file: wrong\n");
    offset = 0;
}

/* uring inline|syscall before|after|files server|client */
int main(int argc, char **argv) {
    inline_calls = !strcmp(argv[1], "inline");
    int before = !strcmp(argv[2], "before"), files = !strcmp(argv[2], "files"), server_has = !strcmp(argv[3], "server");
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (struct sockaddr *)&a, len);
    getsockname(l, (struct sockaddr *)&a, &len);
    listen(l, 4);
    fflush(stdout);
    int serves = fork() != 0, mine = serves == server_has, fd;
    if (mine && (before || files)) set_up();
    if (mine && files) use_a_file();
    if (serves) {
        fd = accept(l, 0, 0);
    } else {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        connect(fd, (struct sockaddr *)&a, len);
    }
    const char *who = serves ? "server" : "client";
    int bad = !before && talk(fd, 0, !serves, TURNS, who);
    if (mine && !before && !files) set_up();
    bad = bad || talk(fd, mine && !files, !serves, TURNS, who);
    if (!bad) printf("%s: all right\n", who);
    fflush(stdout);
    if (serves) wait(0);
    return bad;
}
