/* What siw_peer.c needs of verbs and of the connection manager: one connection, its regions, and what has come on it. All
 * failures end the program with a message. */

#ifndef VERBS_H
#define VERBS_H

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <string.h>

#define BUFFER (128 << 10)
#define BUFFERS 8
#define WINDOW (256 << 10)
#define SPARE 4096

#define MUST(what) do { if (!(what)) die("%s: %s", #what, strerror(errno)); } while (0)

/* A place in a region of the peer's. */
struct remote {
	uint32_t stag;
	uint64_t base;
};

/* A Send that has come: its buffer, its octets, and the region that has ended with it, if the provider says so. */
struct come {
	int buffer;
	uint32_t len;
	int with_inv;
	uint32_t inv;
};

extern struct rdma_cm_id *id;
extern struct ibv_mr *out, *window, *spare, *sink;
/* Whether this end asks for the connection, and the seed of the patterns, which the initiator has chosen. */
extern int initiator;
extern uint32_t seed;
/* Sends that have come and were looked at, and completed Reads and other requests. */
extern struct come come[BUFFERS];
extern int first_come, last_come, done_reads, done_others;

void die(const char *format, ...);
/* Connects, or waits for one connection; 0: it was refused. */
int establish(const char *address, const char *port);
void expect_event(enum rdma_cm_event_type type);
void post_receive(int buffer);
uint8_t *buffer_at(int buffer);
/* Takes one completion; 0 if there is none, -1 if it is a failure. */
int completion(void);
void wait_until(const char *what, const int *counter, int number);
int request(enum ibv_wr_opcode opcode, struct ibv_mr *mr, size_t from, size_t len, struct remote to, int flags);

#endif
