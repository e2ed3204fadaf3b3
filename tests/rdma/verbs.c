/* See verbs.h. */

#include "verbs.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Reads at a time, each way. */
#define DEPTH 4
/* The longest silence, seconds: under emulation it may last. */
#define PATIENCE 20

static const char asks[8] = "interop?", answers[8] = "interop!";

struct rdma_cm_id *id;
struct ibv_mr *out, *window, *spare, *sink;
int initiator;
uint32_t seed;
struct come come[BUFFERS];
int first_come, last_come, done_reads, done_others;

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *receives;

void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "siw_peer: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	exit(1);
}

static struct ibv_mr *region(size_t len, int access)
{
	uint8_t *memory = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
	struct ibv_mr *mr;

	MUST(memory);
	memset(memory, 0, len);
	mr = ibv_reg_mr(id->pd, memory, len, access);
	MUST(mr);
	return mr;
}

void post_receive(int buffer)
{
	struct ibv_sge sge = { (uintptr_t)buffer_at(buffer), BUFFER, receives->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(id->qp, &wr, &bad) == 0);
}

int completion(void)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(cq, 1, &wc);

	MUST(n >= 0);
	if (n == 0)
		return 0;
	if (wc.status != IBV_WC_SUCCESS)
		return -1;
	switch (wc.opcode) {
	case IBV_WC_RECV:
		come[last_come % BUFFERS].buffer = wc.wr_id;
		come[last_come % BUFFERS].len = wc.byte_len;
		come[last_come % BUFFERS].with_inv = !!(wc.wc_flags & IBV_WC_WITH_INV);
		come[last_come % BUFFERS].inv = wc.invalidated_rkey;
		last_come++;
		break;
	case IBV_WC_RDMA_READ:
		done_reads++;
		break;
	default:
		done_others++;
	}
	return 1;
}

void wait_until(const char *what, const int *counter, int number)
{
	time_t begun = time(NULL);

	while (*counter < number) {
		int n = completion();

		if (n < 0)
			die("%s: a work request failed", what);
		if (n == 0) {
			if (time(NULL) - begun > PATIENCE)
				die("%s: nothing came", what);
			usleep(100);
		}
	}
}

int request(enum ibv_wr_opcode opcode, struct ibv_mr *mr, size_t from, size_t len, struct remote to, int flags)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr + from, len, mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode, .send_flags = IBV_SEND_SIGNALED | flags, .sg_list = &sge }, *bad;

	/* A Read has a sink even if it is empty. */
	wr.num_sge = len || opcode == IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = to.base;
	wr.wr.rdma.rkey = to.stag;
	/* libsiw takes the region that a Send ends from where a Write has its own; others take it from here. */
	if (opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = to.stag;
	return ibv_post_send(id->qp, &wr, &bad);
}

uint8_t *buffer_at(int buffer)
{
	return (uint8_t *)receives->addr + (size_t)buffer * BUFFER;
}

static enum rdma_cm_event_type next_event(struct rdma_cm_event **event)
{
	struct pollfd fd = { channel->fd, POLLIN, 0 };

	if (poll(&fd, 1, PATIENCE * 1000) != 1)
		die("no event of the connection manager");
	MUST(rdma_get_cm_event(channel, event) == 0);
	return (*event)->event;
}

void expect_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type is = next_event(&event);

	if (is != type)
		die("%s (%d) instead of %s", rdma_event_str(is), event->status, rdma_event_str(type));
	rdma_ack_cm_event(event);
}

static void make_queue_pair(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 64, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	cq = ibv_create_cq(id->verbs, 256, NULL, NULL, 0);
	MUST(cq);
	attr.send_cq = attr.recv_cq = cq;
	MUST(rdma_create_qp(id, NULL, &attr) == 0);
	receives = region(BUFFERS * BUFFER, IBV_ACCESS_LOCAL_WRITE);
	out = region(2 * BUFFER, 0);
	window = region(WINDOW, all);
	spare = region(SPARE, IBV_ACCESS_REMOTE_READ);
	sink = region(WINDOW, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < BUFFERS; i++)
		post_receive(i);
}

static void check_private(struct rdma_cm_event *event, const char *words)
{
	struct rdma_conn_param *param = &event->param.conn;
	uint32_t word;

	if (param->private_data_len < 12 || memcmp(param->private_data, words, 8))
		die("%d octets of private data, or the wrong ones", param->private_data_len);
	memcpy(&word, (const char *)param->private_data + 8, 4);
	if (initiator && ntohl(word) != seed)
		die("another seed");
	seed = ntohl(word);
}

int establish(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_conn_param param = { .responder_resources = DEPTH, .initiator_depth = DEPTH };
	struct rdma_cm_event *event;
	uint8_t private[12];
	uint32_t word;

	channel = rdma_create_event_channel();
	MUST(channel);
	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	if (!initiator)
		hints.ai_flags = RAI_PASSIVE;
	MUST(rdma_getaddrinfo((char *)address, (char *)port, &hints, &info) == 0);
	param.private_data = private;
	param.private_data_len = sizeof(private);
	if (initiator) {
		seed = time(NULL) * 0x9e3779b1u;
		memcpy(private, asks, 8);
		word = htonl(seed);
		memcpy(private + 8, &word, 4);
		MUST(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 2000) == 0);
		expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
		MUST(rdma_resolve_route(id, 2000) == 0);
		expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_queue_pair();
		if (rdma_connect(id, &param))
			die("connect: %s", strerror(errno));
		if (next_event(&event) != RDMA_CM_EVENT_ESTABLISHED) {
			printf("%s (%d)\n", rdma_event_str(event->event), event->status);
			return 0;
		}
		check_private(event, answers);
		rdma_ack_cm_event(event);
		return 1;
	}
	MUST(rdma_bind_addr(id, info->ai_src_addr) == 0);
	MUST(rdma_listen(id, 1) == 0);
	printf("listening\n");
	fflush(stdout);
	if (next_event(&event) != RDMA_CM_EVENT_CONNECT_REQUEST)
		die("%s instead of a connection", rdma_event_str(event->event));
	id = event->id;
	check_private(event, asks);
	rdma_ack_cm_event(event);
	memcpy(private, answers, 8);
	word = htonl(seed);
	memcpy(private + 8, &word, 4);
	make_queue_pair();
	MUST(rdma_accept(id, &param) == 0);
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	return 1;
}
