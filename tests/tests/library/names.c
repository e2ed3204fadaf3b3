/* Functions of the program's own by names that the library defines too, which go by libc's other names for
 * the same: some programs wrap system calls so (Erlang's does with sigaction). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern ssize_t __read(int, void *, size_t);
extern ssize_t __write(int, const void *, size_t);
extern ssize_t __send(int, const void *, size_t, int);
extern int __close(int);
extern int __dup2(int, int);
extern int __connect(int, const struct sockaddr *, socklen_t);

static int calls;

int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    int (*next)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "__sigaction");
    calls++;
    return next(number, new, old);
}
ssize_t read(int fd, void *to, size_t n) { calls++; return __read(fd, to, n); }
ssize_t write(int fd, const void *from, size_t n) { calls++; return __write(fd, from, n); }
ssize_t send(int fd, const void *from, size_t n, int flags) { calls++; return __send(fd, from, n, flags); }
int close(int fd) { calls++; return __close(fd); }
int dup2(int fd, int to) { calls++; return __dup2(fd, to); }
int connect(int fd, const struct sockaddr *to, socklen_t n) { calls++; return __connect(fd, to, n); }
int poll(struct pollfd *all, nfds_t n, int ms) {
    int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "__poll");
    calls++;
    return next(all, n, ms);
}

static void handler(int number) { (void)number; }

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    char byte = 'a';
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    int served, rounds = 0;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (sigaction(SIGUSR1, &action, 0) || bind(listener, (void *)&at, len) || listen(listener, 4) ||
        getsockname(listener, (void *)&at, &len) || connect(client, (void *)&at, len))
        return 1;
    served = accept(listener, 0, 0);
    if (dup2(served, 40) != 40 || close(served))
        return 2;
    for (; rounds < 40; rounds++) {
        struct pollfd one = {40, POLLIN, 0};
        if (write(client, &byte, 1) != 1 || poll(&one, 1, 5000) != 1 || read(40, &byte, 1) != 1 ||
            send(40, &byte, 1, 0) != 1 || read(client, &byte, 1) != 1)
            return 3;
    }
    printf("%d rounds, %d calls\n", rounds, calls);
    return close(40) || close(client) || close(listener);
}
